//! The full mount: an allocator of PyTorch's own kind (C++, `python/gmlake/mount`), which keeps
//! PyTorch's books and leaves memory itself to us.
//!
//! ```text
//!   c10::cuda::CUDACachingAllocator::get() ──▶ Mounted ──┬─▶ memory of the program          (here)
//!                                                        └─▶ graphs, MemPool: private pools (PyTorch's own allocator)
//! ```
//!
//! Private pools are served by PyTorch's own allocator, next to us: graphs, their checkpoints and pools with an
//! allocator of their own work there as ever. What it holds is reported to us
//! ([`GpuAllocator::set_elsewhere`]), so that peaks are those of the sum, and a limit holds for both.

use std::sync::atomic::Ordering;

use super::failure::Failure;
use super::gpu_allocator::GpuAllocator;
use super::journal::{Event, Observer};
use super::process::Process;
use super::sums::{Elsewhere, SUMS, Stat, Sum};
use gmlake_allocators::allocator::{BlockKind, BlockUse, BlockView};
use gmlake_allocators::device::DevicePtr;
use gmlake_core::units::Bytes;

/// A block that was handed out, or taken back; and the GPU's sums after that.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Its first byte.
    pub at: u64,
    /// Its size in bytes.
    pub size: Bytes,
    /// Bytes in the program's hands.
    pub allocated: i64,
    /// Bytes that the driver gave.
    pub reserved: i64,
    /// Index of the GPU.
    pub device: u32,
}

/// All numbers of one GPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    /// As [`Sum`] orders them: all, small, large.
    pub sums: [[Stat; 3]; SUMS],
    /// Times that everything was given back to try again.
    pub retries: i64,
    /// Requests for which there was no memory.
    pub ooms: i64,
    /// Waits for the GPU.
    pub waits: i64,
    /// Calls that obtained memory from the driver.
    pub obtained: i64,
    /// Calls that gave it back.
    pub returned: i64,
}

/// A block as a snapshot shows it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// First byte of its segment.
    pub segment: u64,
    /// Its first byte.
    pub at: u64,
    /// Its size in bytes.
    pub size: Bytes,
    /// Bytes asked for; 0 if it is free.
    pub requested: Bytes,
    /// Handle of its stream.
    pub stream: u64,
    /// 0: free; 1: freed, and in use by a stream; 2: in the program's hands.
    pub state: u32,
    /// Whether it is part of a pool for small requests.
    pub is_small: u32,
}

impl GpuAllocator {
    /// Tells of everything from now on, or of nothing.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.observer = observer;
        self.segment_watch().story = observer.map(|_| Vec::new());
    }

    /// Accounts for segments that came and went, and tells of them.
    #[inline]
    pub(super) fn account(&mut self) {
        for change in self.segment_watch().take_changes() {
            self.sums.segment(change.unsigned_abs(), change.signum());
        }
        let (device, observer) = (self.gpu.index, self.observer);
        let (Some(observe), Some(story)) = (observer, &mut self.segment_watch().story) else {
            return;
        };
        for (action, DevicePtr(at), size) in story.drain(..) {
            observe(&Event { device, action, at, size, stream: 0 });
        }
    }

    /// From now on something is captured, or served from a pool elsewhere: the GPU must not be waited for, and no event
    /// may be asked for or recorded. Ends as often as it began.
    pub fn hold(&mut self, begins: bool) {
        if begins {
            self.holds += 1;
            return;
        }
        self.holds = self.holds.saturating_sub(1);
        if !self.is_held()
            && let Ok(_here) = self.enter()
        {
            self.pending.release_held_back(&mut self.device);
        }
    }

    /// Whether something is captured.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.holds > 0 || self.pools.is_any_begun()
    }

    /// What PyTorch's own allocator holds on this GPU.
    pub fn set_elsewhere(&mut self, elsewhere: Elsewhere) {
        self.sums.set_elsewhere(elsewhere);
        self.share_limit();
    }

    /// What was allocated and freed is counted anew.
    pub fn reset_accumulated(&mut self) {
        self.sums.reset_accumulated();
        self.counted_before = self.counts();
    }

    /// The numbers, with the free blocks counted anew.
    pub fn numbers(&mut self) -> Numbers {
        let mut free = [0; 2];
        for (_, allocator) in self.served_by() {
            let blocks = allocator.blocks();
            for view in blocks.iter().filter(|view| view.state == BlockUse::Free) {
                free[usize::from(view.kind != BlockKind::Small)] += 1;
            }
        }
        self.sums.set_inactive(free[0], free[1]);
        let (now, before) = (self.counts(), self.counted_before);
        let [retries, ooms, waits, obtained, returned] =
            std::array::from_fn(|place| now[place] - before[place]);
        Numbers { sums: *self.sums.rows(), retries, ooms, waits, obtained, returned }
    }

    /// Retries, requests without memory, waits, and calls that obtained memory and gave it back.
    fn counts(&mut self) -> [i64; 5] {
        let (obtained, returned) = self.segment_watch().calls;
        [
            self.main.retries(),
            self.tallied.num_ooms,
            self.synchronizations.load(Ordering::Relaxed),
            obtained,
            returned,
        ]
        .map(|count| count as i64)
    }

    /// Shows every block, segment by segment, in address order within each.
    pub fn show(&self, visit: &mut dyn FnMut(&Shown)) {
        for run in self.served_by().flat_map(|(_, it)| super::snapshot::runs(it)) {
            run.iter().for_each(|view| visit(&self.shown(run[0].at.0, view)));
        }
    }

    fn shown(&self, segment: u64, view: &BlockView) -> Shown {
        Shown {
            segment,
            at: view.at.0,
            size: view.size,
            requested: view.requested,
            stream: self.streams.handle_or_default(view.stream),
            state: match view.state {
                BlockUse::Free | BlockUse::Alias => 0,
                BlockUse::Pending => 1,
                BlockUse::Allocated => 2,
            },
            is_small: u32::from(view.kind == BlockKind::Small),
        }
    }

    fn served(&self, at: u64, size: Bytes) -> Served {
        let (allocated, reserved) =
            (self.sums.now(Sum::AllocatedBytes), self.sums.now(Sum::ReservedBytes));
        Served { at, size, allocated, reserved, device: self.gpu.index }
    }
}

impl Process {
    /// Memory on a GPU, for `size` bytes, which are not none. A refusal is not counted: the mount may ask again.
    ///
    /// # Errors
    /// Out of memory, or no such GPU, or what the driver says.
    pub fn serve(&self, size: Bytes, device: i32, stream: u64) -> Result<Served, Failure> {
        let mut allocator = self.allocator(device)?;
        let allocation = allocator.attempt(size, stream)?;
        Ok(allocator.served(allocation.at.0, allocation.size))
    }

    /// Takes memory back, on whichever GPU it is; `None`: it is not ours. In a forked process nothing is: memory there
    /// means nothing.
    pub fn take_back(&self, at: u64) -> Option<Served> {
        if self.is_forked() {
            return Some(Served::default());
        }
        self.opened().find_map(|mut allocator| {
            let size = allocator.free(at)?;
            Some(allocator.served(at, size))
        })
    }
}
