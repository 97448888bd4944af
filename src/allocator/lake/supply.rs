//! Supply: memory that comes from the device, and goes back.
//!
//! *How much.* The budget is the most that was ever live, and a little slack. Within it a request that finds no room
//! gets new memory; beyond it, memory that is free must be put together first. So stitching happens only where it saves
//! memory.
//!
//! *In which sizes.* The driver charges for mapping by the handle, and what is free in a handle that is partly in use
//! cannot be stitched but at its two ends. Handles are sized after the request that needs them, between the smallest
//! (`handle`) and four times that: so a request wastes, and a stitch costs, about the same share at every size. The
//! less memory the device has left, the smaller they are.
//!
//! ```text
//!   handle   32 MiB ┤            ╭────────────────       request of 512 MiB and more
//!                   │         ╭──╯
//!             8 MiB ┤─────────╯                          up to 128 MiB
//!             2 MiB ┤   ╭─────                           on a device with less than 8 GiB left
//! ```
//!
//! *Back.* Nothing is given back before the device has no more memory, or the program asks for it (`empty_cache`).

use super::Lake;
use super::arena::Span;
use super::fit::{Placement, Reach};
use crate::allocator::{NIL, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, HandleId};
use crate::trace::StreamId;
use crate::units::{Bytes, MIB, round_up};

/// The least growth within the budget: requests of a few MiB come in numbers.
const STEP: Bytes = 32 * MIB;

/// Handles that a request is made of, at least, while they are not the smallest.
const PER_REQUEST: u64 = 16;

/// The largest handle, in smallest ones.
const LARGEST: u64 = 4;

/// Handles that the memory that the device has left makes, at least.
const PER_DEVICE: u64 = 4096;

impl Lake {
    /// Grows for a request as long as reserved memory stays within the budget; `None` if it would not.
    ///
    /// # Errors
    /// A driver error. Out of memory is none: `None`.
    pub(super) fn grow_within(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<Option<Placement>, DeviceError> {
        let budget = (self.live_peak as f64 * (1.0 + self.options.slack)) as Bytes;
        let reserved = self.live.usage().reserved;
        if reserved >= budget {
            return Ok(None);
        }
        let at = self.arena.addresses.place(device, round_up(size, GRANULE).max(STEP))?;
        let begin = self.tail(at, stream, size);
        let missing = round_up(begin + size - at.0, GRANULE);
        for amount in [missing.max(STEP), missing] {
            if reserved + amount <= budget.min(self.limit) {
                self.tally.growths += 1;
                return match self.create(device, at, (amount, size)) {
                    Err(DeviceError::OutOfMemory { .. }) => Ok(None),
                    Err(error) => Err(error),
                    Ok(()) => Ok(Some(Placement::in_arena(begin..begin + size))),
                };
            }
        }
        Ok(None)
    }

    /// Where less than `size` bytes begin that are free in front of `at` and may be used at once; `at` if there are none.
    fn tail(&self, at: DevicePtr, stream: StreamId, size: Bytes) -> u64 {
        let is_usable = |free: &&Span| {
            free.end - free.start < size && self.may_use(stream, free, Reach::Settled)
        };
        self.arena.tail(at).filter(is_usable).map_or(at.0, |free| free.start)
    }

    /// New handles of nearly equal sizes from `at` on, `amount` bytes for a request of `size` bytes.
    ///
    /// # Errors
    /// Out of memory, or a driver error; nothing has changed.
    pub(super) fn create(
        &mut self,
        device: &mut dyn Device,
        at: DevicePtr,
        (amount, size): (Bytes, Bytes),
    ) -> Result<(), DeviceError> {
        let allowed = self.limit.saturating_sub(self.live.usage().reserved);
        let free = device.memory_info().free.min(allowed);
        if amount > free {
            return Err(DeviceError::OutOfMemory { requested: amount, free });
        }
        let count = amount.div_ceil(self.handle_size(size, free));
        let each = round_up(amount.div_ceil(count), GRANULE);
        let made = map_new(device, at, (amount, each))?;
        self.arena.addresses.take(at, amount);
        self.live.grow(amount);
        let mut begin = at;
        for (id, size) in made {
            self.arena.add(id, begin, size);
            begin = begin.offset(size);
        }
        Ok(())
    }

    /// How large the handles for a request should be, with `free` bytes left on the device.
    fn handle_size(&self, size: Bytes, free: Bytes) -> Bytes {
        let most = round_up((free / PER_DEVICE).max(1), GRANULE);
        let least = self.options.handle;
        let wanted = round_up(size / PER_REQUEST, GRANULE).clamp(least, LARGEST * least);
        if self.is_short { GRANULE.max(most.min(wanted) / LARGEST) } else { wanted.min(most) }
    }

    /// Waits for the GPU, and gives back all memory that is idle.
    pub(super) fn give_back(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.tally.host_waits += 1;
        self.live.take_pending().into_iter().for_each(|block| self.take_back(&block));
        self.drop_idle_slabs();
        self.streams.finish(device);
        let idle = |view: &SlabIndex| self.views.all[*view].tensors == 0;
        let idle: Vec<_> = self.views.existing().filter(idle).collect();
        idle.into_iter().for_each(|view| self.views.close(view));
        self.unmap_closed(device);
        for handle in self.arena.held() {
            if self.arena.is_idle(handle) {
                self.release(device, handle);
            }
        }
        self.arena.addresses.drop_empty(device);
    }

    /// Releases an idle handle. Views that map it, with tensors in other handles, serve no more requests.
    fn release(&mut self, device: &mut dyn Device, handle: SlabIndex) {
        let entry = &mut self.arena.handles[handle];
        let (id, at, size) = (entry.id, DevicePtr(entry.span.start), entry.size());
        for view in std::mem::take(&mut entry.views) {
            self.views.close(view);
            let view = &mut self.views.all[view];
            let slot = view.slots.iter_mut().find(|slot| slot.handle == handle);
            let slot = slot.expect("a view that is listed at a handle maps it");
            slot.handle = NIL;
            device.unmap(view.at.offset(slot.offset), size);
        }
        device.unmap(at, size);
        device.release(id);
        self.arena.remove(device, handle);
        self.live.shrink(size);
        self.tally.handles_released += 1;
    }
}

/// Handles of `each` bytes, the last one perhaps smaller, mapped side by side from `at` on.
///
/// # Errors
/// A driver error; nothing has changed.
fn map_new(
    device: &mut dyn Device,
    at: DevicePtr,
    (amount, each): (Bytes, Bytes),
) -> Result<Vec<(HandleId, Bytes)>, DeviceError> {
    let mut made: Vec<(HandleId, Bytes)> = Vec::new();
    let mut left = amount;
    let mut outcome = Ok(());
    while left > 0 && outcome.is_ok() {
        let size = each.min(left);
        outcome = device.create(size).map(|id| made.push((id, size)));
        left -= size;
    }
    let ids: Vec<_> = made.iter().map(|&(id, _)| id).collect();
    match outcome.and_then(|()| device.map_for_use(at, &ids, amount)) {
        Ok(()) => Ok(made),
        Err(error) => {
            device.release_each(&ids);
            Err(error)
        }
    }
}
