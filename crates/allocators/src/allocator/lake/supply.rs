//! Supply: memory that comes from the device, and goes back.
//!
//! *How much.* The budget is the most that was ever live, and a little slack. Within it a request that finds no room
//! gets new memory; beyond it, memory that is free must be put together first. So stitching happens only where it saves
//! memory.
//!
//! *In which sizes.* The driver charges for mapping by the handle, and what is free in a handle that is partly in use
//! cannot be stitched but at its two ends. Handles are half as large as the request that needs them, between `handle`
//! and four times that: small tensors, of which many outlive their neighbours, lie in small handles. The less memory
//! the device has left, the smaller all are.
//!
//! ```text
//!   handle   32 MiB ┤            ╭────────────────       request of 64 MiB and more
//!                   │         ╭──╯
//!             8 MiB ┤─────────╯                          up to 16 MiB
//!             2 MiB ┤   ╭─────                           on a device with less than 8 GiB left
//! ```
//!
//! *Back.* Nothing is given back before the device has no more memory, or the program asks for it (`empty_cache`).

use super::Lake;
use super::arena::Span;
use super::fit::{Placement, Reach};
use super::history::Asked;
use crate::allocator::{NIL, SlabIndex};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE};
use gmlake_core::units::{Bytes, MIB, round_up};

/// The least growth within the budget: requests of a few MiB come in numbers.
const STEP: Bytes = 32 * MIB;

/// Handles that a request is made of, at least, while they are not the smallest.
const PER_REQUEST: u64 = 2;

/// The largest handle, in smallest ones.
const LARGEST: u64 = 4;

/// Handles that the memory that the device has left makes, at least.
const PER_DEVICE: u64 = 4096;

impl Lake {
    /// Grows for a request, whose beginning may be free already, as long as reserved memory stays within the budget;
    /// `None` if it would not, or if the device has no more.
    pub(super) fn grow_within(
        &mut self,
        device: &mut dyn Device,
        Asked { stream, size }: Asked,
    ) -> Result<Option<Placement>, DeviceError> {
        let budget = (self.live_peak as f64 * (1.0 + self.options.slack)) as Bytes;
        let left = budget.min(self.limit).saturating_sub(self.live.usage().reserved);
        if left == 0 {
            return Ok(None);
        }
        let at = self.arena.addresses.place(device, round_up(size, GRANULE).max(STEP))?;
        let is_usable = |free: &&Span| {
            free.end - free.start < size && self.may_use(stream, free, Reach::Settled)
        };
        let begin = self.arena.tail(at).filter(is_usable).map_or(at.0, |free| free.start);
        let missing = round_up(begin + size - at.0, GRANULE);
        let Some(amount) = [missing.max(STEP), missing].into_iter().find(|&most| most <= left)
        else {
            return Ok(None);
        };
        match self.create(device, at, (amount, size)) {
            Err(DeviceError::OutOfMemory { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                self.tally.growths += 1;
                Ok(Some(Placement::in_arena(begin..begin + size)))
            }
        }
    }

    /// New handles of nearly equal sizes from `at` on, `amount` bytes for a request of `size` bytes.
    /// After an error nothing has changed.
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
        let made = device.create_for_use(at, amount, each)?;
        self.arena.addresses.take(at, amount);
        self.live.grow(amount);
        let begins = (0..amount).step_by(each as usize);
        for (id, begin) in made.into_iter().zip(begins) {
            self.arena.add(id, at.offset(begin), each.min(amount - begin));
        }
        Ok(())
    }

    /// How large the handles for a request should be, with `free` bytes left on the device.
    fn handle_size(&self, size: Bytes, free: Bytes) -> Bytes {
        let most = round_up((free / PER_DEVICE).max(1), GRANULE);
        let least = self.options.handle;
        round_up(size / PER_REQUEST, GRANULE).clamp(least, LARGEST * least).min(most)
    }

    /// Waits for the GPU, and gives back all memory that is idle.
    pub(super) fn give_back(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.tally.host_waits += 1;
        self.live.take_pending().into_iter().for_each(|block| self.take_back(&block));
        self.drop_idle_slabs();
        self.streams.finish(device);
        self.drop_idle_views(device, 0);
        for handle in self.arena.held() {
            if self.arena.is_free(&self.arena.handles[handle].span) {
                self.release(device, handle);
            }
        }
        self.arena.addresses.drop_empty(device);
    }

    /// Releases an idle handle. Views that map it, with tensors in other handles, are broken.
    fn release(&mut self, device: &mut dyn Device, handle: SlabIndex) {
        let entry = &mut self.arena.handles[handle];
        let (id, at, size) = (entry.id, DevicePtr(entry.span.start), entry.size());
        for view in std::mem::take(&mut entry.views) {
            let view = &mut self.views.all[view];
            view.is_broken = true;
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
