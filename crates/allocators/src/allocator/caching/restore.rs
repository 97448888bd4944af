//! Starting in the middle: taking over the memory that a recording held when it began, and showing what is held.

use super::block::BlockState;
use super::pool::pool_index;
use super::sizes::SMALL_SEGMENT;
use super::{Caching, expandable};
use crate::allocator::{Allocator, BlockId, BlockKind, BlockView, NIL, SlabIndex};
use crate::device::{Device, Result};
use gmlake_core::program::{BlockState as RecordedState, Layout, Segment, SegmentBlock};
use gmlake_core::units::Bytes;

/// A piece of a chain to be built.
#[derive(Clone, Copy)]
struct Piece {
    at: u64,
    size: Bytes,
    requested: Bytes,
    state: BlockState,
}

impl Piece {
    fn of(block: &SegmentBlock) -> Self {
        let (state, requested) = match block.state {
            RecordedState::Allocated => (BlockState::Allocated, block.requested),
            RecordedState::PendingFree => (BlockState::Pending, block.requested),
            RecordedState::Inactive => (BlockState::Free, 0),
        };
        Self { at: block.address, size: block.size, requested, state }
    }

    fn unmapped(from: u64, to: u64) -> Option<Self> {
        let state = BlockState::Unmapped;
        (from < to).then(|| Self { at: from, size: to - from, requested: 0, state })
    }
}

impl Caching {
    /// Obtains the memory of `layout` from the device and cuts it as it was. Returns the active blocks in the layout's
    /// order of addresses, whatever addresses the device hands out.
    pub(super) fn restore_layout(
        &mut self,
        device: &mut dyn Device,
        layout: &Layout,
    ) -> Result<Vec<BlockId>> {
        let mut active = Vec::new();
        for segment in layout.segments.iter().filter(|segment| !segment.is_expandable) {
            let base = device.malloc(segment.size)?;
            self.ledger.grow(segment.size);
            let shift = base.0.wrapping_sub(segment.address);
            let pieces = segment.blocks.iter().map(Piece::of);
            active.extend(self.add_chain(pieces, shift, segment, NIL));
        }
        for (number, &base) in layout.reservations.iter().enumerate() {
            let next = layout.reservations.get(number + 1).copied().unwrap_or(u64::MAX);
            let inside = |segment: &&Segment| {
                segment.is_expandable && (base..next).contains(&segment.address)
            };
            let ranges: Vec<_> = layout.segments.iter().filter(inside).collect();
            active.extend(self.restore_reservation(device, base, &ranges)?);
        }
        active.sort_unstable_by_key(|&(at, _)| at);
        Ok(active.into_iter().map(|(_, block)| block).collect())
    }

    fn restore_reservation(
        &mut self,
        device: &mut dyn Device,
        recorded_base: u64,
        ranges: &[&Segment],
    ) -> Result<Vec<(u64, BlockId)>> {
        let Some(first) = ranges.first() else { return Ok(Vec::new()) };
        let page = if first.is_small { SMALL_SEGMENT } else { self.conf.large_segment_size };
        let length = self.reservation_length(page);
        let base = device.reserve(length)?;
        let shift = base.0.wrapping_sub(recorded_base);
        let mut reservation =
            expandable::Reservation { base: base.0, page, length, handles: vec![] };
        let mut pieces = Vec::new();
        let mut end = recorded_base;
        for range in ranges {
            reservation.map(device, range.address.wrapping_add(shift), range.size)?;
            self.ledger.grow(range.size);
            pieces.extend(Piece::unmapped(end, range.address));
            pieces.extend(range.blocks.iter().map(Piece::of));
            end = range.address + range.size;
        }
        pieces.extend(Piece::unmapped(end, recorded_base + length));
        let reservation = self.reservations.insert(reservation);
        Ok(self.add_chain(pieces.into_iter(), shift, first, reservation))
    }

    /// Links pieces to a chain; each goes where its state says. Returns the active ones with their recorded address.
    fn add_chain(
        &mut self,
        pieces: impl Iterator<Item = Piece>,
        shift: u64,
        segment: &Segment,
        reservation: SlabIndex,
    ) -> Vec<(u64, BlockId)> {
        let mut active = Vec::new();
        let pool = pool_index(segment.pool, segment.is_small);
        self.pool_entry(pool);
        let mut prev = NIL;
        for piece in pieces {
            let at = piece.at.wrapping_add(shift);
            let index = self.add_segment(at, piece.size, pool, segment.stream);
            let block = &mut self.blocks[index];
            block.prev = prev;
            block.reservation = reservation;
            block.requested = piece.requested;
            block.state = piece.state;
            if prev != NIL {
                self.blocks[prev].next = index;
            }
            prev = index;
            match piece.state {
                BlockState::Free => self.put_back(index),
                BlockState::Unmapped => self.put_unmapped(index),
                _ => {
                    self.ledger.malloc(piece.requested, piece.size);
                    active.push((piece.at, self.blocks.id(index)));
                }
            }
            if piece.state == BlockState::Pending {
                self.ledger.free_requested(piece.size);
                self.pending += 1;
            }
        }
        active
    }

    /// All memory held, as PyTorch's snapshot would list it under `segments`.
    pub fn segments(&self) -> Vec<Segment> {
        let views = self.blocks();
        let segment = |blocks: &[BlockView]| Segment {
            address: blocks[0].at.0,
            size: blocks.iter().map(|view| view.size).sum(),
            stream: blocks[0].stream,
            pool: blocks[0].pool,
            is_small: blocks[0].kind == BlockKind::Small,
            is_expandable: self.is_reserved(blocks[0].at.0),
            blocks: blocks.iter().map(BlockView::recorded).collect(),
        };
        views.chunk_by(|a, b| a.segment == b.segment).map(segment).collect()
    }

    fn is_reserved(&self, at: u64) -> bool {
        self.reservations.iter().any(|(_, held)| (held.base..held.base + held.length).contains(&at))
    }
}
