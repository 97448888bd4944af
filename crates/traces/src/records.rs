//! Records: what a trace file says about one device, entry by entry, before anything is made of it.
//!
//! The words are PyTorch's (`torch.cuda.memory._snapshot()`), since that is what nearly all traces are; the other
//! formats fill in what they know. Two things are already settled here: stream handles are numbered in ascending order
//! ([`StreamId`]), and so are pool ids ([`PoolId`]), so that an entry is 32 bytes without a pointer.

use super::{Entry, Marks, Segment, Stacks, Warning, Writer};
use gmlake_core::alloc_conf::{AllocConf, TorchVersion};
use gmlake_core::units::Bytes;

/// A named moment of the program, from `record_function` or an optimizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The name, such as `Optimizer.step#AdamW.step`.
    pub name: String,
    /// Whether it marks the start (or the end) of the named span.
    pub is_start: bool,
    /// Microseconds since 1970.
    pub time_us: u64,
}

/// What a file says about one device.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Index of the device.
    pub device: u32,
    /// The history, oldest entry first.
    pub entries: Vec<Entry>,
    /// The segments at the end, in address order. Empty where the format has none.
    pub segments: Vec<Segment>,
    /// Whether the file describes the state at the end (`segments`), even if that is "nothing held".
    pub has_segments: bool,
    /// Whether the entries say which pool they belong to (PyTorch 2.12 and later).
    pub has_pools: bool,
    /// Annotations of this device in order of time.
    pub annotations: Vec<Annotation>,
    /// The allocator's settings when the snapshot was taken, if the file has them.
    pub settings: Option<AllocConf>,
    /// The versions of PyTorch that may have written the file, if its keys tell.
    pub written_by: Option<Writer>,
    /// How the file came about, if it is one of this library.
    pub marks: Marks,
    /// Handle of each [`StreamId`](crate::StreamId), ascending.
    pub streams: Vec<u64>,
    /// PyTorch's id of each [`PoolId`](crate::PoolId); the first is `(0, 0)`, the default pool.
    pub pools: Vec<(u64, u64)>,
    /// Call stacks. Empty unless they were asked for.
    pub stacks: Stacks,
    /// Address and stack of each block in `segments` that was in use and has one, ascending.
    pub live_stacks: Vec<(u64, u32)>,
    /// Entries of a kind that we do not know, which were left out.
    pub unknown_actions: u64,
    /// Entries before which the file says that the program emptied its cache, ascending. PyTorch does not record this.
    pub trims: Vec<usize>,
    /// Entries of no bytes, which are not among `entries` any more.
    pub left_out: usize,
    /// Entries before which memory ran out, ascending, where the file does not tell what was requested.
    pub unsized_failures: Vec<usize>,
    /// What is missing of a file that was cut off, in words: `the file ends in entry 12,345 of device 0`. The final
    /// state is then not that after the last entry.
    pub cut_off: Option<String>,
    /// PyTorch's own totals, where the format has them in place of segments: one for each entry that has some.
    pub totals: Vec<Total>,
    /// Whether another allocator than PyTorch's was at work: its segments tell nothing of what PyTorch decided.
    pub is_foreign: bool,
    /// What the reader had to assume.
    pub warnings: Vec<Warning>,
}

/// PyTorch's totals right after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// The entry's number.
    pub entry: usize,
    /// Bytes of all blocks in use.
    pub allocated: Bytes,
    /// Bytes of all segments.
    pub reserved: Bytes,
}

impl Records {
    /// Whether there are decisions of PyTorch's allocator among the entries. A table may hold requests alone.
    pub fn has_decisions(&self) -> bool {
        !self.is_foreign && self.entries.iter().any(|entry| entry.action.is_driver_call())
    }

    /// Forgets what was held at the end, where that is not the state after the last entry.
    pub fn forget_end(&mut self) {
        self.has_segments = false;
        self.segments.clear();
        self.live_stacks.clear();
    }

    /// Forgets what was obtained from the driver and what was held at the end, where that never happened: of a
    /// simulation only the requests count.
    pub fn forget_driver(&mut self) {
        self.entries.retain(|entry| !entry.action.is_driver_call());
        self.forget_end();
    }

    /// Where entry number `index` lies in time, in microseconds since the first; its number, if entries have no times.
    pub fn place_of(&self, index: usize) -> u64 {
        let since = |entry: &Entry| entry.time_us.saturating_sub(self.entries[0].time_us);
        match self.entries.last().map(since) {
            Some(0) | None => index as u64,
            Some(_) => since(&self.entries[index]),
        }
    }

    /// The place of the last entry; 0 if there are none.
    pub fn axis_end(&self) -> u64 {
        self.entries.len().checked_sub(1).map_or(0, |last| self.place_of(last))
    }

    /// The version of PyTorch to take for the writer of the file: the default, if nothing is known.
    pub fn version(&self) -> TorchVersion {
        self.written_by.map_or_else(TorchVersion::default, |writer| writer.taken())
    }
}
