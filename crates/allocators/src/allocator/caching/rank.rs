//! Rank: which of several free blocks of equal size is taken first.
//!
//! Up to PyTorch 2.11 it is the one with the lowest address. Addresses are not the same in all processes of a job,
//! which NCCL's symmetric memory needs, so later versions number what they make, and take the lowest number:
//!
//! ```text
//!             segment A (made first)           segment B
//!             [ live ][ free  17 MiB ]         [ live ][ free  17 MiB ]
//!   address    0x7f40000000                     0x7f20000000
//!   2.11       second                           first: lower address
//!   2.12       whichever block was cut off first
//!   2.13       first: older segment             second
//! ```
//!
//! In 2.12 every block has a number of its own, and keeps it when it swallows a neighbour. From 2.13 on a segment (or a
//! reservation) has one, which all its blocks share; among those the address decides.

use gmlake_core::alloc_conf::TorchVersion;

/// What is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbered {
    Nothing,
    Blocks,
    Segments,
}

/// Hands out ranks.
#[derive(Debug, Clone)]
pub struct Ranks {
    numbered: Numbered,
    last: u32,
}

impl Ranks {
    /// As the given version of PyTorch does.
    pub fn new(version: TorchVersion) -> Self {
        let numbered = match version {
            _ if version.is_at_least(13) => Numbered::Segments,
            _ if version.is_at_least(12) => Numbered::Blocks,
            _ => Numbered::Nothing,
        };
        Self { numbered, last: 0 }
    }

    /// The rank of a block that is a whole new segment, or a new reservation.
    #[inline]
    pub fn of_new(&mut self) -> u32 {
        if self.numbered != Numbered::Nothing {
            self.last += 1;
        }
        self.last
    }

    /// Gives a block that was cut off from another one, whose rank it has, its own.
    #[inline]
    pub fn cut(&mut self, rank: &mut u32) {
        if self.numbered == Numbered::Blocks {
            *rank = self.of_new();
        }
    }
}
