//! Segments: where the pool's memory comes from and goes back to. Every driver call of the pool is made here.

use std::collections::BTreeSet;

use super::cuts::Cuts;
use super::pblock::{BlockState, PBlock};
use super::watch::Occupancy;
use super::{Extent, VmPool, Wanted};
use crate::allocator::SlabIndex;
use crate::device::{Device, DevicePtr, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) at: DevicePtr,
    pub(super) stream: StreamId,
    pub(super) len: u32,
    /// Chunks whose memory has not been given back; the segment goes with the last of them.
    pub(super) backed: u32,
    /// One for each chunk; none if the segment came from `cuMemAlloc`.
    pub(super) handles: Vec<HandleId>,
    pub(super) blocks: Cuts,
    pub(super) occupancy: Occupancy,
    /// The sBlocks that map chunks of it.
    pub(super) over: BTreeSet<SlabIndex>,
}

impl VmPool {
    /// Asks the device for a segment of the wanted chunks, which becomes one free pBlock: reserve, create, map. Errors:
    /// out of memory or a driver error; all that was obtained has been given back.
    pub(crate) fn grow(&mut self, device: &mut dyn Device, wanted: Wanted) -> Result<SlabIndex> {
        let mut handles = Vec::with_capacity(wanted.chunks as usize);
        let made = device.create_each(self.chunk, wanted.chunks as usize, &mut handles);
        let at = made.and_then(|()| self.place(device, &[&handles]));
        let at = at.inspect_err(|_| device.release_each(&handles))?;
        Ok(self.add_segment(at, wanted, handles))
    }

    /// Asks the device for a segment of the wanted chunks by `cuMemAlloc`. It cannot be stitched. Errors: out of memory
    /// or a driver error.
    pub(crate) fn grow_plain(
        &mut self,
        device: &mut dyn Device,
        wanted: Wanted,
    ) -> Result<SlabIndex> {
        let at = device.malloc(self.bytes(wanted.chunks))?;
        Ok(self.add_segment(at, wanted, Vec::new()))
    }

    /// Gives the memory of a free pBlock back, and destroys the sBlocks over it; the segment's addresses go with the
    /// last of its pBlocks. An sBlock in use may lend out chunks that it does not use: it loses all of those.
    ///
    /// Nothing on the GPU may use the block any more: see [`Device::synchronize`].
    pub(crate) fn release(&mut self, device: &mut dyn Device, block: SlabIndex) {
        self.unlist(block);
        let extent = self.blocks[block].extent();
        self.uncover(device, extent);
        let (at, bytes) = (self.blocks[block].at, self.bytes(extent.len));
        let segment = &mut self.segments[extent.segment];
        segment.backed -= extent.len;
        if segment.handles.is_empty() {
            device.free(at);
        } else {
            device.unmap(at, bytes);
            device.release_each(&segment.handles[extent.start as usize..extent.end() as usize]);
        }
        self.blocks[block].state = BlockState::Gone;
        if self.segments[extent.segment].backed == 0 {
            self.remove_segment(device, extent.segment);
        }
    }

    /// Maps the chunks of `extents` side by side into a range of their own.
    pub(super) fn map_alias(
        &mut self,
        device: &mut dyn Device,
        extents: &[Extent],
    ) -> Result<DevicePtr> {
        let segments = std::mem::take(&mut self.segments);
        let handles = |extent: &Extent| {
            &segments[extent.segment].handles[extent.start as usize..extent.end() as usize]
        };
        let runs: Vec<_> = extents.iter().map(handles).collect();
        let placed = self.place(device, &runs);
        self.segments = segments;
        placed
    }

    /// The handles of some chunks, in address order.
    #[cfg(test)]
    pub(crate) fn handles(&self, extent: Extent) -> impl Iterator<Item = HandleId> {
        let handles = &self.segments[extent.segment].handles;
        handles[extent.start as usize..extent.end() as usize].iter().copied()
    }

    #[inline]
    pub(crate) fn bytes(&self, chunks: u32) -> Bytes {
        Bytes::from(chunks) * self.chunk
    }

    /// `size` in chunks, rounded up.
    #[inline]
    pub(crate) fn chunks(&self, size: Bytes) -> u32 {
        u32::try_from(size.div_ceil(self.chunk)).unwrap_or(u32::MAX)
    }

    /// Reserves a range and maps the runs of handles into it, one after the other.
    fn place(&mut self, device: &mut dyn Device, runs: &[&[HandleId]]) -> Result<DevicePtr> {
        let chunks: usize = runs.iter().map(|run| run.len()).sum();
        let size = chunks as Bytes * self.chunk;
        let base = device.reserve(size)?;
        let mut mapped = 0;
        let outcome = self.map_runs(device, base, runs, &mut mapped);
        if let Err(error) = outcome {
            if mapped > 0 {
                device.unmap(base, mapped);
            }
            device.unreserve(base, size);
            return Err(error);
        }
        self.tally.mapped += chunks as u64;
        Ok(base)
    }

    /// Maps the runs, and makes every chunk accessible with a call of its own, as the paper and the released code do.
    fn map_runs(
        &self,
        device: &mut dyn Device,
        base: DevicePtr,
        runs: &[&[HandleId]],
        mapped: &mut Bytes,
    ) -> Result<()> {
        for run in runs {
            let at = base.offset(*mapped);
            device.map(at, run)?;
            *mapped += run.len() as Bytes * self.chunk;
            device.set_access_each(at, self.chunk, run.len())?;
        }
        Ok(())
    }

    fn add_segment(
        &mut self,
        at: DevicePtr,
        Wanted { stream, chunks: len }: Wanted,
        handles: Vec<HandleId>,
    ) -> SlabIndex {
        let segment = self.segments.insert(Segment {
            at,
            stream,
            len,
            backed: len,
            handles,
            blocks: Cuts::default(),
            occupancy: Occupancy::new(len),
            over: BTreeSet::new(),
        });
        let extent = Extent { segment, start: 0, len };
        let block = self.blocks.insert(PBlock::free(extent, at, stream));
        self.segments[segment].blocks = Cuts::new(len, block);
        self.list(block);
        block
    }

    fn remove_segment(&mut self, device: &mut dyn Device, index: SlabIndex) {
        let segment = &self.segments[index];
        if !segment.handles.is_empty() {
            device.unreserve(segment.at, self.bytes(segment.len));
        }
        let end = segment.len;
        let mut at = 0;
        while at < end {
            let block = self.segments[index].blocks.find(at);
            at += self.blocks[block].len;
            self.blocks.remove(block);
        }
        self.segments.remove(index);
    }
}

impl Segment {
    #[inline]
    pub(super) fn address(&self, chunk: u32, chunk_size: Bytes) -> DevicePtr {
        self.at.offset(Bytes::from(chunk) * chunk_size)
    }
}
