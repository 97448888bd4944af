//! Completion of frees that wait for other streams, and what is given back to the device.

use std::sync::atomic::Ordering;

use super::block::Freed;
use super::gpu_allocator::GpuAllocator;
use gmlake_allocators::device::Device;
use gmlake_core::program::StreamId;

impl GpuAllocator {
    /// A free that other streams hold up.
    pub(super) fn wait_for(&mut self, freed: Freed, uses: Vec<StreamId>) {
        self.tallied.deferred_frees += 1;
        // What is used by a capture cannot be waited for.
        let users = if self.is_held() { &[][..] } else { &uses };
        self.on(freed.owner, |allocator, _| allocator.free_requested(freed.block, users));
        if self.is_held() {
            self.pending.hold_back(freed, uses);
        } else {
            self.pending.push(&mut self.device, freed, &uses);
        }
    }

    /// Completes the frees whose streams have got there. A capture must not be disturbed by asking.
    #[inline]
    pub(super) fn complete_reached(&mut self) {
        if self.pending.is_empty() || self.is_held() {
            return;
        }
        let done = self.pending.reached(&mut self.device);
        self.complete(done);
    }

    /// After an allocator waited for the GPU, all frees are complete, and it may have found out itself.
    #[inline]
    pub(super) fn complete_if_synchronized(&mut self) {
        let now = self.synchronizations.load(Ordering::Relaxed);
        if now != std::mem::replace(&mut self.seen, now) && !self.pending.is_empty() {
            let done = self.pending.drain(&mut self.device);
            self.complete(done);
        }
    }

    fn complete(&mut self, done: Vec<Freed>) {
        for freed in done {
            self.on(freed.owner, |allocator, device| {
                allocator.free_completed(device, freed.block);
            });
            self.completed(&freed);
        }
    }

    /// Waits for the GPU, and gives back what the graphs' pools and the allocator do not need. Says whether there is
    /// any use in asking again: an allocator alone has done all this before it gave up.
    #[cold]
    pub(super) fn reclaim(&mut self) -> bool {
        let is_alone = self.pools.iter().next().is_none()
            && self.arenas.iter().next().is_none()
            && self.pending.is_empty();
        if is_alone || self.is_held() {
            return false;
        }
        self.trim_all();
        true
    }

    pub(super) fn trim_all(&mut self) {
        self.device.synchronize();
        self.complete_if_synchronized();
        for owner in self.pools.unused() {
            self.on(owner, |allocator, device| allocator.trim(device));
        }
        let served: Vec<_> = self.served_by().map(|(owner, _)| owner).collect();
        for owner in served {
            self.on(owner, |allocator, device| allocator.trim(device));
        }
        self.complete_if_synchronized();
        if let Some(debug) = &mut self.debug {
            debug.forget();
        }
    }
}
