//! Giving back: views nobody needs, idle handles, and what is done before a request fails.

use super::Lake;
use crate::allocator::{NIL, SlabIndex};
use crate::device::Device;

impl Lake {
    /// Unmaps closed views that no tensor lives in and that the GPU is done with.
    pub(super) fn sweep_views(&mut self, device: &mut dyn Device) {
        if self.views.closed == 0 {
            return;
        }
        let closed: Vec<_> =
            self.views.existing().filter(|&v| self.views.all[v].is_closed).collect();
        for view in closed {
            let entry = &self.views.all[view];
            let done = entry.users.iter().all(|&user| self.streams.is_done(user));
            if entry.tensors == 0 && done {
                self.unstitch(device, view);
            }
        }
    }

    fn unstitch(&mut self, device: &mut dyn Device, view: SlabIndex) {
        let entry = &self.views.all[view];
        let (at, size) = (entry.at, entry.size);
        let slots = entry.slots.clone();
        for slot in slots.iter().filter(|slot| slot.handle != NIL) {
            let handle = &mut self.pool.handles[slot.handle];
            handle.views.retain(|&other| other != view);
        }
        if slots.iter().all(|slot| slot.handle != NIL) {
            device.unmap(at, size);
        } else {
            for slot in slots.iter().filter(|slot| slot.handle != NIL) {
                device.unmap(at.offset(slot.offset), self.pool.handles[slot.handle].size);
            }
        }
        self.views.addresses.give(device, at, size);
        self.views.remove(view);
        self.tally.views_dropped += 1;
    }

    /// Closes the views that have been idle longest once there are too many, and lets go of those that are over.
    pub(super) fn bound_views(&mut self, device: &mut dyn Device) {
        let open = self.views.count - self.views.closed;
        if open > self.options.views {
            let mut idle: Vec<_> = self
                .views
                .existing()
                .filter(|&v| !self.views.all[v].is_closed && self.views.all[v].tensors == 0)
                .map(|v| (self.views.all[v].used, v))
                .collect();
            idle.sort_unstable();
            for &(_, view) in idle.iter().take(open - self.options.views * 7 / 8) {
                self.views.close(view);
            }
            self.streams.mark(device);
        }
        if self.views.closed > 0 {
            self.streams.poll(device);
            self.sweep_views(device);
        }
    }

    /// Releases an idle handle that the GPU is done with.
    pub(super) fn release(&mut self, device: &mut dyn Device, handle: SlabIndex) {
        let entry = &self.pool.handles[handle];
        let (id, at, size) = (entry.id, entry.at, entry.size);
        for view in std::mem::take(&mut self.pool.handles[handle].views) {
            self.views.close(view);
            let entry = &mut self.views.all[view];
            let base = entry.at;
            let slot = entry.slots.iter_mut().find(|slot| slot.handle == handle);
            let slot = slot.expect("a view that is listed at a handle maps it");
            slot.handle = NIL;
            device.unmap(base.offset(slot.offset), size);
        }
        device.unmap(at, size);
        device.release(id);
        self.pool.remove(handle);
        self.arena.clear(device, at, size);
        self.ledger.shrink(size);
        self.tally.handles_released += 1;
    }

    /// Gives back all memory that is idle. The device must have been synchronised.
    pub(super) fn give_back(&mut self, device: &mut dyn Device) {
        let open: Vec<_> =
            self.views.existing().filter(|&v| self.views.all[v].tensors == 0).collect();
        for view in open {
            self.views.close(view);
        }
        self.sweep_views(device);
        let idle: Vec<_> = self.pool.held().filter(|&handle| self.pool.is_idle(handle)).collect();
        for handle in idle {
            self.release(device, handle);
        }
        self.arena.addresses.drop_empty(device);
    }

    /// Waits for the GPU. What waited for a stream is free then.
    pub(super) fn wait_for_all(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.streams.finish(device);
        self.complete_all();
        self.tally.host_waits += 1;
    }
}
