//! Memory that the paper's allocator gives back: sBlocks by `StitchFree`, physical memory only when asked to or when
//! there is no more.

use super::Gmlake;
use crate::allocator::SlabIndex;
use crate::device::Device;

impl Gmlake {
    /// `StitchFree`: destroys idle sBlocks, least recently freed first, once their address space passes the limit.
    pub(super) fn stitch_free(&mut self, device: &mut dyn Device) {
        let limit = self.options.stitched_limit;
        if self.front.pool.tally.stitched <= limit {
            return;
        }
        device.synchronize();
        for index in self.idle_sblocks() {
            if self.front.pool.tally.stitched <= limit - limit / 8 {
                return;
            }
            if self.front.pool.sblock(index).has_range() {
                self.front.pool.unstitch(device, index);
            }
        }
    }

    /// Gives back all that no tensor needs. The device must have been synchronised.
    pub(super) fn give_back(&mut self, device: &mut dyn Device) {
        for index in self.idle_sblocks() {
            self.front.pool.unstitch(device, index);
        }
        let free: Vec<_> = self.front.pool.free_blocks().collect();
        for block in free {
            self.front.release(device, block);
        }
        self.front.trim_small(device);
    }

    /// sBlocks without a tensor, least recently freed first.
    fn idle_sblocks(&self) -> Vec<SlabIndex> {
        let idle = self.front.pool.sblocks().filter(|(_, sblock)| sblock.is_idle());
        let mut idle: Vec<_> =
            idle.map(|(index, sblock)| (sblock.stamp, sblock.at, index)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(.., index)| index).collect()
    }
}
