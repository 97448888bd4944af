//! Churn: the calls as allocators make them, in disorder, on a device that already holds much.
//!
//! A call that is repeated on an empty device finds everything that it needs in the caches of the host and of the
//! driver, and is quicker than the same call in a program. So blocks of all kinds come and go here at random, while the
//! device is filled in steps:
//!
//! ```text
//!   held   ▁▁▁▁▁▁▂▂▂▂▂▂▃▃▃▃▃▃▅▅▅▅▅▅▇▇▇▇▇▇ ▁▁▁▁▁▁▂▂▂▂ ...
//!          stitched blocks, aliases, cuMemAllocs of all sizes: one goes, another comes
//! ```

use serde::Serialize;

use super::CalibrationError;
use super::measure::SMALL_LIMIT;
use crate::device::{Call, Device, DevicePtr, HandleId};
use crate::replay::cuda::CudaDevice;
use crate::trace::synthetic::SplitMix64;
use crate::units::{Bytes, GIB, MIB};

/// One call, what it was about, and what the device held then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// The call.
    #[serde(serialize_with = "name")]
    pub call: Call,
    /// Handles that it was about.
    pub handles: u64,
    /// Bytes that it was about.
    pub size: Bytes,
    /// Physical memory held before.
    pub held: Bytes,
    /// Allocations and mappings that there were.
    pub objects: u64,
    /// Nanoseconds that it took.
    pub ns: u64,
}

fn name<S: serde::Serializer>(call: &Call, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(call.name())
}

/// Shares of the memory that is to be used, at which blocks come and go.
const LEVELS: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 1.0];
/// Blocks that come and go at each level.
const TURNS: u32 = 60;
/// Most handles in a block: beyond, the cost is known from those below.
const MOST_HANDLES: u64 = 32;
/// The largest block.
const LARGEST: Bytes = 2 * GIB;

#[derive(Debug)]
enum Block {
    Malloc { at: DevicePtr, size: Bytes },
    Stitched { at: DevicePtr, chunk: Bytes, handles: Vec<HandleId>, is_alias: bool },
}

/// The device, what is on it, and what was seen.
pub(super) struct Churn {
    device: CudaDevice,
    random: SplitMix64,
    blocks: Vec<Block>,
    held: Bytes,
    objects: u64,
    seen: Vec<Observation>,
}

impl Churn {
    pub(super) fn new(device: CudaDevice) -> Self {
        let random = SplitMix64::new(0x6d61_6b65);
        Self { device, random, blocks: Vec::new(), held: 0, objects: 0, seen: Vec::new() }
    }

    /// Fills up to `most` bytes, level by level, again and again until `over` says so.
    pub(super) fn run(
        mut self,
        most: Bytes,
        over: &dyn Fn() -> bool,
    ) -> Result<Vec<Observation>, CalibrationError> {
        while !over() {
            for level in LEVELS {
                while self.held < (most as f64 * level) as Bytes && !over() {
                    self.come()?;
                }
                for _ in 0..TURNS {
                    self.come()?;
                    self.go();
                }
            }
            while !self.blocks.is_empty() {
                self.go();
            }
            if let Some(error) = self.device.first_error() {
                return Err(error.clone().into());
            }
        }
        Ok(self.seen)
    }

    fn time<T>(
        &mut self,
        (call, handles, size): (Call, u64, Bytes),
        run: impl FnOnce(&mut CudaDevice) -> T,
    ) -> T {
        let start = std::time::Instant::now();
        let result = run(&mut self.device);
        let ns = start.elapsed().as_nanos() as u64;
        let (held, objects) = (self.held, self.objects);
        self.seen.push(Observation { call, handles, size, held, objects, ns });
        result
    }

    /// A new block of a random kind.
    fn come(&mut self) -> Result<(), CalibrationError> {
        match self.random.below(4) {
            0 => self.malloc(),
            1 => self.alias(),
            _ => self.stitch(),
        }
    }

    fn malloc(&mut self) -> Result<(), CalibrationError> {
        let least = if self.random.below(2) == 0 { 512 } else { SMALL_LIMIT + 512 };
        let most = if least == 512 { SMALL_LIMIT } else { GIB };
        let size = self.between(least, most).next_multiple_of(512);
        let at = self.time((Call::MemAlloc, 1, size), |device| device.malloc(size))?;
        self.held += size;
        self.objects += 1;
        self.blocks.push(Block::Malloc { at, size });
        Ok(())
    }

    fn stitch(&mut self) -> Result<(), CalibrationError> {
        let chunk = (2 * MIB) << self.random.below(9);
        let count = self.between(1, MOST_HANDLES.min(LARGEST / chunk));
        let mut handles = Vec::new();
        for _ in 0..count {
            let made = self.time((Call::Create, 1, chunk), |device| device.create(chunk));
            match made {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    handles.into_iter().for_each(|handle| self.device.release(handle));
                    return Err(error.into());
                }
            }
            self.held += chunk;
        }
        self.map(chunk, handles, false)
    }

    /// A second address for the memory of a block.
    fn alias(&mut self) -> Result<(), CalibrationError> {
        let count = self.blocks.len() as u64;
        let pick = if count == 0 { 0 } else { self.random.below(count) as usize };
        match self.blocks.get(pick) {
            Some(Block::Stitched { chunk, handles, is_alias: false, .. }) => {
                let (chunk, handles) = (*chunk, handles.clone());
                self.map(chunk, handles, true)
            }
            _ => self.stitch(),
        }
    }

    fn map(
        &mut self,
        chunk: Bytes,
        handles: Vec<HandleId>,
        is_alias: bool,
    ) -> Result<(), CalibrationError> {
        let count = handles.len() as u64;
        let size = chunk * count;
        let at = self.time((Call::AddressReserve, 0, size), |device| device.reserve(size))?;
        self.time((Call::Map, count, size), |device| device.map(at, &handles))?;
        self.time((Call::SetAccess, count, size), |device| device.set_access(at, size))?;
        self.objects += count;
        self.blocks.push(Block::Stitched { at, chunk, handles, is_alias });
        Ok(())
    }

    /// A random block goes. The memory under an alias goes with the last of the two.
    fn go(&mut self) {
        let pick = self.random.below(self.blocks.len() as u64) as usize;
        match self.blocks.swap_remove(pick) {
            Block::Malloc { at, size } => {
                self.time((Call::MemFree, 1, size), |device| device.free(at));
                self.held -= size;
                self.objects -= 1;
            }
            Block::Stitched { at, chunk, handles, is_alias } => {
                let count = handles.len() as u64;
                let size = chunk * count;
                self.time((Call::Unmap, count, size), |device| device.unmap(at, size));
                self.objects -= count;
                if !is_alias {
                    for handle in handles {
                        self.time((Call::Release, 1, chunk), |device| device.release(handle));
                        self.held -= chunk;
                    }
                }
                self.time((Call::AddressFree, 0, size), |device| device.unreserve(at, size));
            }
        }
    }

    /// A random number, each order of magnitude as likely as any other.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        let share = self.random.below(1 << 20) as f64 / f64::from(1 << 20);
        let span = (most as f64 + 1.0).ln() - (least as f64).ln();
        (((least as f64).ln() + share * span).exp() as u64).clamp(least, most)
    }
}
