//! sBlocks: how they are made, used, and destroyed.

use super::pblock::BlockState;
use super::size_order::SizeKey;
use super::watch::Watch;
use super::{Extent, VmPool, Wanted};
use crate::allocator::SlabIndex;
use crate::device::{Device, DevicePtr, Result};
use gmlake_core::program::StreamId;

#[derive(Debug, Clone)]
pub(crate) struct SBlock {
    pub(crate) at: DevicePtr,
    pub(crate) stream: StreamId,
    pub(crate) len: u32,
    /// How many of them, from the first on, a tensor uses; 0 if it is idle.
    pub(crate) used: u32,
    /// When it was last freed; when its members were, if it never was.
    pub(crate) stamp: u64,
    /// Its chunks, in the order of its addresses.
    pub(crate) extents: Vec<Extent>,
    /// Chunks in the address range that it reserved; 0 if it lives on its segment's.
    reserved: u32,
    pub(super) watch: Watch,
}

impl SBlock {
    /// Whether no tensor lives in it.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.used == 0
    }

    /// Whether it has an address range of its own.
    pub(crate) fn has_range(&self) -> bool {
        self.reserved > 0
    }

    pub(super) fn key(&self, index: SlabIndex) -> SizeKey {
        SizeKey::new(self.stream, self.len, self.at, index)
    }
}

impl VmPool {
    /// Whether an sBlock could serve a request: it is idle and all of its chunks are free.
    #[inline]
    pub(crate) fn is_usable(&self, index: SlabIndex) -> bool {
        self.sblocks[index].is_idle() && self.busy_chunk(index).is_none()
    }

    #[inline]
    pub(crate) fn sblock(&self, index: SlabIndex) -> &SBlock {
        &self.sblocks[index]
    }

    /// Address of the segment that the first chunk of an sBlock is part of.
    pub(crate) fn home_of(&self, sblock: &SBlock) -> DevicePtr {
        sblock.extents.first().map_or(sblock.at, |extent| self.segments[extent.segment].at)
    }

    /// All sBlocks with their numbers.
    pub(crate) fn sblocks(&self) -> impl Iterator<Item = (SlabIndex, &SBlock)> {
        self.sblocks.iter()
    }

    /// The smallest usable sBlock with the wanted chunks to `most`, the lowest address among equals.
    #[inline]
    pub(crate) fn usable_fit(&mut self, wanted: Wanted, most: u32) -> Option<SlabIndex> {
        let Wanted { stream, chunks } = wanted;
        loop {
            let key = self.usable.best_fit(stream, chunks).filter(|key| key.units() <= most)?;
            let index = key.index();
            if self.is_usable(index) {
                return Some(index);
            }
            self.unwatch(index);
            if self.sblocks[index].is_idle() {
                self.watch(index);
            }
        }
    }

    /// Stitches free pBlocks of one stream into an sBlock of `chunks` chunks, which a tensor uses from now on. The
    /// last member is cut if that is more than enough. Errors: what the device says. Nothing has changed then: the
    /// members are taken only when the range is mapped.
    pub(crate) fn stitch(
        &mut self,
        device: &mut dyn Device,
        members: &[SlabIndex],
        chunks: u32,
    ) -> Result<SlabIndex> {
        let extents = self.extents_of(members, chunks);
        let at = self.map_alias(device, &extents)?;
        let stamp = members.iter().map(|&member| self.blocks[member].stamp).max().unwrap_or(0);
        let stream = self.blocks[members[0]].stream;
        self.tally.stitched += self.bytes(chunks);
        self.tally.stitched_peak = self.tally.stitched_peak.max(self.tally.stitched);
        for &extent in &extents {
            self.hold(extent);
        }
        Ok(self.add_sblock(SBlock {
            at,
            stream,
            len: chunks,
            used: chunks,
            stamp,
            extents,
            reserved: chunks,
            watch: Watch::Off,
        }))
    }

    /// Makes an sBlock over adjacent pBlocks of one segment, on the segment's own addresses: no driver call.
    pub(crate) fn remember(&mut self, extent: Extent, stamp: u64) -> SlabIndex {
        let segment = &self.segments[extent.segment];
        let index = self.add_sblock(SBlock {
            at: segment.address(extent.start, self.chunk),
            stream: segment.stream,
            len: extent.len,
            used: 0,
            stamp,
            extents: vec![extent],
            reserved: 0,
            watch: Watch::Off,
        });
        self.watch(index);
        index
    }

    /// Gives the first `chunks` chunks of a usable sBlock to a tensor.
    pub(crate) fn take_stitched(&mut self, index: SlabIndex, chunks: u32) {
        self.tally.reused += 1;
        let extents = std::mem::take(&mut self.sblocks[index].extents);
        for extent in prefix(&extents, chunks) {
            self.hold(extent);
        }
        let sblock = &mut self.sblocks[index];
        sblock.extents = extents;
        sblock.used = chunks;
    }

    /// The tensor in an sBlock is gone.
    pub(crate) fn give_stitched(&mut self, index: SlabIndex, stamp: u64) {
        let sblock = &mut self.sblocks[index];
        let extents = std::mem::take(&mut sblock.extents);
        let chunks = std::mem::take(&mut sblock.used);
        sblock.stamp = sblock.stamp.max(stamp);
        for extent in prefix(&extents, chunks) {
            self.vacate(extent);
        }
        for extent in prefix(&extents, chunks) {
            self.wake(extent);
            let mut at = extent.start;
            while at < extent.end() {
                let block = self.segments[extent.segment].blocks.find(at);
                debug_assert_eq!(self.blocks[block].state, BlockState::Held);
                at += self.blocks[block].len;
                self.settle(block, stamp);
            }
        }
        self.sblocks[index].extents = extents;
        if self.sblocks[index].watch == Watch::Off {
            self.watch(index);
        }
    }

    /// Destroys an idle sBlock, which nothing on the GPU may use any more.
    pub(crate) fn unstitch(&mut self, device: &mut dyn Device, index: SlabIndex) {
        debug_assert!(self.sblocks[index].is_idle(), "an sBlock in use was destroyed");
        let extents = std::mem::take(&mut self.sblocks[index].extents);
        for &extent in &extents {
            self.segments[extent.segment].over.remove(&index);
        }
        self.unwatch(index);
        let sblock = &self.sblocks[index];
        let (at, mapped, reserved) = (sblock.at, sblock.len, sblock.reserved);
        self.sblocks.remove(index);
        self.tally.destroyed += 1;
        if reserved > 0 {
            self.tally.stitched -= self.bytes(mapped);
            device.unmap(at, self.bytes(mapped));
            device.unreserve(at, self.bytes(reserved));
        }
    }

    /// Destroys every idle sBlock over the chunks of `extent`, and takes their unused chunks from those in use.
    pub(super) fn uncover(&mut self, device: &mut dyn Device, extent: Extent) {
        let mut over: Vec<_> = self.segments[extent.segment].over.iter().copied().collect();
        over.retain(|&index| self.sblocks[index].extents.iter().any(|own| own.meets(extent)));
        for index in over {
            if self.sblocks[index].is_idle() {
                self.unstitch(device, index);
            } else {
                self.shed(device, index);
            }
        }
    }

    /// The first `chunks` chunks of the members.
    fn extents_of(&self, members: &[SlabIndex], chunks: u32) -> Vec<Extent> {
        let all: Vec<_> = members.iter().map(|&member| self.blocks[member].extent()).collect();
        prefix(&all, chunks).collect()
    }

    fn add_sblock(&mut self, sblock: SBlock) -> SlabIndex {
        self.tally.created += 1;
        let index = self.sblocks.insert(sblock);
        for extent in &self.sblocks[index].extents {
            self.segments[extent.segment].over.insert(index);
        }
        index
    }

    /// Gives up the unused chunks of an sBlock that a tensor uses.
    fn shed(&mut self, device: &mut dyn Device, index: SlabIndex) {
        let SBlock { at, len, used, .. } = self.sblocks[index];
        if used == len {
            return;
        }
        let all = std::mem::take(&mut self.sblocks[index].extents);
        let kept: Vec<_> = prefix(&all, used).collect();
        for extent in &all {
            self.segments[extent.segment].over.remove(&index);
        }
        for extent in &kept {
            self.segments[extent.segment].over.insert(index);
        }
        self.unwatch(index);
        let sblock = &mut self.sblocks[index];
        sblock.extents = kept;
        sblock.len = used;
        device.unmap(at.offset(self.bytes(used)), self.bytes(len - used));
        self.tally.stitched -= self.bytes(len - used);
    }
}

/// The first `chunks` chunks of a list of extents.
fn prefix(extents: &[Extent], chunks: u32) -> impl Iterator<Item = Extent> {
    let mut left = chunks;
    extents.iter().map_while(move |&extent| {
        let len = extent.len.min(left);
        left -= len;
        (len > 0).then_some(Extent { len, ..extent })
    })
}
