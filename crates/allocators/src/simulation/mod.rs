//! A run on the simulated GPU, and what is measured of it after every event.
//!
//! All of it is compiled here, optimised for speed: nothing is generic in [`Replay::simulate`]. The package of the
//! programs is compiled for size.

mod extremes;
mod held_segments;

pub use extremes::{Extremes, Range};
pub use held_segments::{HeldSegments, Owner, SegmentCalls};

use std::ops::{self, ControlFlow};

use crate::allocator::Allocator;
use crate::device::{Counted, Priced, Result, SimDevice, Watched};
use crate::drive::Replay;

/// The device of a run: its calls are counted, priced if there is a profile, and noted where segments are asked for.
pub type Simulated = Watched<SimDevice, (Counted, Priced, Option<HeldSegments>)>;

impl Replay<'_> {
    /// As [`Replay::advance`], on the simulated GPU.
    ///
    /// # Errors
    /// If the device fails in another way than by running out of memory.
    pub fn simulate(
        &mut self,
        range: ops::Range<usize>,
        allocator: &mut dyn Allocator,
        device: &mut Simulated,
        extremes: &mut Extremes,
    ) -> Result<ControlFlow<()>> {
        self.advance(range, allocator, device, extremes)
    }
}
