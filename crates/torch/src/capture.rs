//! Captures of CUDA graphs, as PyTorch announces them.

use super::block::Owner;
use super::failure::Failure;
use super::gpu_allocator::GpuAllocator;
use gmlake_cuda::is_capturing;

impl GpuAllocator {
    /// Memory for a capture comes from the pool of this number from now on.
    pub fn begin_pool(&mut self, id: (u64, u64)) {
        if self.pools.begin(id) {
            self.tallied.graph_pools += 1;
        }
    }

    /// The capture is over.
    pub fn end_pool(&mut self, id: (u64, u64)) {
        if let Some(pool) = self.pools.find(id) {
            pool.is_begun = false;
        }
        let Ok(_here) = self.enter() else { return };
        if !self.is_held() {
            self.pending.release_held_back(&mut self.device);
        }
        self.dissolve_pools();
    }

    /// A graph that was captured with this pool is gone.
    pub fn release_pool(&mut self, id: (u64, u64)) {
        if let Some(pool) = self.pools.find(id) {
            pool.users = pool.users.saturating_sub(1);
        }
        let Ok(_here) = self.enter() else { return };
        self.dissolve_pools();
    }

    /// Who serves a request on the stream with this handle.
    pub(super) fn owner(&mut self, stream: u64) -> Result<Owner, Failure> {
        if !self.is_held() || !is_capturing(stream)? {
            return self.home();
        }
        let begun = {
            let mut begun = self.pools.begun();
            (begun.next(), begun.next())
        };
        match begun {
            (Some(owner), None) => Ok(owner),
            (None, _) => self.home(),
            _ => Err(Failure::Other(
                "gmlake: two CUDA graphs are being captured on one GPU at the same time, and it \
                 cannot be known which one this memory is for; capture them one after the other"
                    .to_owned(),
            )),
        }
    }

    /// One block less of its owner.
    #[inline]
    pub(super) fn gone(&mut self, owner: Owner) {
        let Owner::Graph(place) = owner else { return };
        let pool = self.pools.at_mut(place);
        pool.live -= 1;
        if pool.is_over() {
            self.dissolve_pools();
        }
    }

    /// Gives back the memory of pools that no graph will use any more.
    fn dissolve_pools(&mut self) {
        if self.is_held() {
            return;
        }
        for owner in self.pools.unused() {
            self.on(owner, |allocator, device| allocator.trim(device));
        }
        self.pools.drop_over();
        self.complete_if_synchronized();
    }
}
