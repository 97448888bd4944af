//! Properties: what a program learns about a card, as far as it chooses kernels and workspaces by it.
//!
//! All of it is in the catalogue of cards, [`Card`].

use gmlake_core::cards::{Card, Chip, named};
use gmlake_core::units::{Bytes, KIB, MIB};

/// The properties of a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    /// Its name in the catalogue.
    pub name: String,
    /// Bytes of memory that a program sees.
    pub memory: Bytes,
    /// The rest of what the catalogue says.
    pub chip: Chip,
}

/// What a multiprocessor has, by compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Bytes of shared memory.
    pub shared: Bytes,
    /// Bytes of shared memory that a block can have if its kernel asks for them.
    pub shared_per_block: Bytes,
    /// Threads that run at a time.
    pub threads: i32,
    /// Blocks that run at a time.
    pub blocks: i32,
}

/// By compute capability: KiB of shared memory, threads, and blocks of a multiprocessor. From NVIDIA's CUDA C++
/// Programming Guide, table "Technical Specifications per Compute Capability".
const MULTIPROCESSORS: &[((i32, i32), Bytes, i32, i32)] = &[
    ((7, 0), 96, 2048, 32),
    ((7, 5), 64, 1024, 16),
    ((8, 0), 164, 2048, 32),
    ((8, 6), 100, 1536, 16),
    ((8, 9), 100, 1536, 24),
    ((9, 0), 228, 2048, 32),
    ((10, 0), 228, 2048, 32),
    ((10, 3), 228, 2048, 32),
    ((12, 0), 100, 1536, 24),
    ((12, 1), 100, 1536, 24),
];

impl Properties {
    /// All cards that the virtual GPU can be.
    pub fn all() -> Vec<Self> {
        let of = |card: Card| {
            Some(Self { chip: card.chip?, name: card.name, memory: card.usable_bytes })
        };
        Card::built_in().into_iter().filter_map(of).collect()
    }

    /// The card of this name as people write it.
    ///
    /// # Errors
    /// If there is none, or several; the message says which there are.
    pub fn find(name: &str) -> Result<Self, String> {
        let mut all = Self::all();
        let names: Vec<&str> = all.iter().map(|card| card.name.as_str()).collect();
        match *named(&names, name) {
            [place] => Ok(all.swap_remove(place)),
            _ => {
                let known = names.join(", ");
                Err(format!("there is no virtual card {name:?}; there are: {known}"))
            }
        }
    }

    /// The limits of one of its multiprocessors.
    pub fn multiprocessor(&self) -> Multiprocessor {
        let found = MULTIPROCESSORS.iter().find(|row| row.0 == self.chip.capability);
        let &(_, shared, threads, blocks) = found.expect("a test looks for every card's");
        let shared = shared * KIB;
        let shared_per_block = shared - self.kept_shared();
        Multiprocessor { shared, shared_per_block, threads, blocks }
    }

    /// Shared memory of a block that the system keeps.
    fn kept_shared(&self) -> Bytes {
        if self.chip.capability.0 >= 8 { KIB } else { 0 }
    }

    /// The number by which compilers call its architecture: 90 for compute capability 9.0.
    pub fn architecture(&self) -> i32 {
        10 * self.chip.capability.0 + self.chip.capability.1
    }

    /// `cudaDeviceGetAttribute` and `cuDeviceGetAttribute`, which number attributes alike. Zero for what is not there.
    pub fn attribute(&self, number: i32) -> i32 {
        let one = self.multiprocessor();
        match number {
            1..=3 => 1024,     // threads per block, and its first two extents
            4 => 64,           // its third
            5 => i32::MAX,     // blocks per grid
            6 | 7 => 65_535,   // its other extents
            8 => 48 << 10,     // shared memory per block
            9 => 64 << 10,     // constant memory
            10 => 32,          // warp
            11 => i32::MAX,    // pitch
            12 | 82 => 65_536, // registers per block and multiprocessor
            14 => 512,         // alignment of textures
            16 => self.chip.multiprocessors,
            38 => (self.chip.l2_mib * MIB) as i32, // L2 cache
            39 => one.threads,
            40 => 3,  // copy engines
            51 => 32, // alignment of texture pitch
            75 => self.chip.capability.0,
            76 => self.chip.capability.1,
            81 => one.shared as i32,
            97 => one.shared_per_block as i32,
            106 => one.blocks,
            111 => self.kept_shared() as i32,
            120 => i32::from(self.chip.capability.0 >= 9), // clusters
            // What every card has: streams with priorities, caches, managed memory, cooperative launches, virtual
            // memory management with file descriptors, memory pools, unified addresses, ...
            19 | 31 | 32 | 41 | 78..=80 | 83 | 89 | 90 | 95 | 99 | 102 | 103 | 115 => 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_has_memory_a_capability_and_a_source() {
        for card in Properties::all() {
            assert!(card.memory > 0 && card.chip.source.len() > 10, "{card:?}");
            assert!(card.chip.bandwidth_gbs > 200.0 && card.chip.tflops > 50.0, "{card:?}");
            let known = MULTIPROCESSORS.iter().any(|row| row.0 == card.chip.capability);
            assert!(known, "MULTIPROCESSORS lacks the capability of {card:?}");
        }
    }

    #[test]
    fn an_h200_is_what_pytorch_reports_of_one() {
        let card = Properties::find("H-200").unwrap();
        assert_eq!((card.memory, card.architecture()), (150_109_880_320, 90));
        let read = [16, 39, 81, 97, 106, 38, 75, 76].map(|number| card.attribute(number));
        assert_eq!(read, [132, 2048, 233_472, 232_448, 32, 62_914_560, 9, 0]);
    }

    #[test]
    fn an_unknown_card_is_answered_with_the_list() {
        let error = Properties::find("MI300X").unwrap_err();
        assert!(error.contains("MI300X") && error.contains("H100 80GB"), "{error}");
    }
}
