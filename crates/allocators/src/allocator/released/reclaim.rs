//! Reclaiming as in the released code: sBlocks by `gc`, segments by a flush or `empty_cache`.

use super::Released;
use crate::allocator::SlabIndex;
use crate::device::Device;
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

impl Released {
    /// Gives back every segment that is free as a whole, large ones first, and then every idle sBlock.
    pub(super) fn empty_cache(&mut self, device: &mut dyn Device) {
        self.flush(device);
        let destroyed = self.collect(device, 2, 0);
        self.stitched_total = self.stitched_total.saturating_sub(destroyed);
    }

    /// Waits for the GPU, and gives back every segment that is free as a whole.
    pub(super) fn flush(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.front.complete_all();
        let pool = &self.front.pool;
        let whole: Vec<_> = pool.free_blocks().filter(|&block| pool.is_whole(block)).collect();
        self.segments -= whole.len() as u64;
        for block in whole {
            self.front.release(device, block);
        }
        self.front.trim_small(device);
    }

    /// Destroys idle sBlocks, least recently freed first, and says how many bytes of address space they had: those
    /// that are blocked, until each stream has given enough; from level 1 on those that are usable too. The device
    /// must have been synchronised.
    ///
    /// The total that stops a stream is not its own but that of all streams so far, as released.
    pub(super) fn collect(&mut self, device: &mut dyn Device, level: u32, target: Bytes) -> Bytes {
        let enough = match level {
            0 | 1 if target > 0 => target << (2 * (level + 1)),
            _ => Bytes::MAX,
        };
        let mut freed = 0;
        let mut done = None;
        for index in self.idle(false) {
            let stream = self.front.pool.sblock(index).stream;
            if done == Some(stream) {
                continue;
            }
            freed += self.front.pool.bytes(self.front.pool.sblock(index).len);
            self.front.pool.unstitch(device, index);
            done = (freed >= enough).then_some(stream);
        }
        if level >= 1 {
            for index in self.idle(true) {
                freed += self.front.pool.bytes(self.front.pool.sblock(index).len);
                self.front.pool.unstitch(device, index);
            }
        }
        freed
    }

    /// Bytes of a stream's idle sBlocks.
    pub(super) fn idle_bytes(&self, stream: StreamId) -> Bytes {
        let pool = &self.front.pool;
        let idle = pool.sblocks().filter(|(_, block)| block.is_idle() && block.stream == stream);
        idle.map(|(_, sblock)| pool.bytes(sblock.len)).sum()
    }

    /// Idle sBlocks that are usable, or those that are blocked, by stream and then in the order in which they were
    /// freed.
    pub(super) fn idle(&self, usable: bool) -> Vec<SlabIndex> {
        let pool = &self.front.pool;
        let idle = pool
            .sblocks()
            .filter(|&(index, sblock)| sblock.is_idle() && pool.is_usable(index) == usable);
        let mut idle: Vec<_> = idle
            .map(|(index, block)| (block.stream, block.stamp, block.len, block.at, index))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(.., index)| index).collect()
    }
}
