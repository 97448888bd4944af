//! Pieces: runs of chunks over which the same sBlocks lie, and how they tell which sBlocks are usable.

use super::pblock::BlockState;
use super::{Extent, VmPool};
use crate::allocator::SlabIndex;

/// A run of chunks over which the same sBlocks lie.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) start: u32,
    pub(super) len: u32,
    /// Chunks that a tensor uses.
    pub(super) busy: u32,
    /// The sBlocks.
    pub(super) over: Vec<SlabIndex>,
}

impl Piece {
    pub(super) fn bare(extent: Extent) -> Self {
        Self { start: extent.start, len: extent.len, busy: 0, over: Vec::new() }
    }
}

impl VmPool {
    /// A tensor begins to use the chunks of `extent`.
    #[inline]
    pub(super) fn occupy(&mut self, extent: Extent) {
        let cuts = &self.segments[extent.segment].pieces;
        let mut at = extent.start;
        while at < extent.end() {
            let piece = &mut self.pieces[cuts.find(at)];
            let stop = extent.end().min(piece.start + piece.len);
            if piece.busy == 0 {
                for &over in &piece.over {
                    self.busy[over as usize] += 1;
                }
            }
            piece.busy += stop - at;
            at = stop;
        }
    }

    /// A tensor no longer uses the chunks of `extent`.
    #[inline]
    pub(super) fn vacate(&mut self, extent: Extent) {
        let cuts = &self.segments[extent.segment].pieces;
        let mut at = extent.start;
        while at < extent.end() {
            let piece = &mut self.pieces[cuts.find(at)];
            let stop = extent.end().min(piece.start + piece.len);
            piece.busy -= stop - at;
            at = stop;
            if piece.busy > 0 {
                continue;
            }
            for &over in &piece.over {
                let busy = &mut self.busy[over as usize];
                *busy -= 1;
                if *busy > 0 {
                    continue;
                }
                if self.sblocks[over].is_idle() {
                    Self::list_sblock(&mut self.sblocks, &mut self.usable, over);
                }
            }
        }
    }

    /// Puts an sBlock over the pieces of `extent`, which are cut so that they begin and end with it.
    pub(super) fn cover(&mut self, index: SlabIndex, extent: Extent) {
        self.cut_piece(extent.segment, extent.start);
        self.cut_piece(extent.segment, extent.end());
        let mut busy = 0;
        self.for_pieces(extent, |piece| {
            piece.over.push(index);
            busy += u32::from(piece.busy > 0);
        });
        self.busy[index as usize] += busy;
    }

    /// Takes an sBlock off the pieces of `extent`, and joins pieces that no sBlock tells apart any more.
    pub(super) fn strip(&mut self, index: SlabIndex, extent: Extent) {
        let mut busy = 0;
        self.for_pieces(extent, |piece| {
            let place = piece.over.iter().position(|&over| over == index);
            piece.over.swap_remove(place.expect("an sBlock is known to each piece under it"));
            busy += u32::from(piece.busy > 0);
        });
        self.busy[index as usize] -= busy;
        let segment = extent.segment;
        let end = self.segments[segment].len.min(extent.end() + 1);
        let mut at = extent.start.max(1);
        while at < end {
            let piece = self.segments[segment].pieces.find(at);
            let Piece { start, len, .. } = self.pieces[piece];
            if start > 0 {
                self.join_bare(segment, piece);
            }
            at = start + len;
        }
    }

    /// Joins a piece with the one before it, if no sBlock lies over either.
    fn join_bare(&mut self, segment: SlabIndex, right: SlabIndex) {
        let start = self.pieces[right].start;
        let left = self.segments[segment].pieces.find(start - 1);
        if !self.pieces[left].over.is_empty() || !self.pieces[right].over.is_empty() {
            return;
        }
        let Piece { len, busy, .. } = self.pieces[right];
        self.pieces[left].len += len;
        self.pieces[left].busy += busy;
        self.segments[segment].pieces.join(start);
        self.pieces.remove(right);
    }

    /// Lets a piece begin at chunk `at`.
    pub(super) fn cut_piece(&mut self, segment: SlabIndex, at: u32) {
        if at == self.segments[segment].len {
            return;
        }
        let left = self.segments[segment].pieces.find(at);
        let Piece { start, len, busy, .. } = self.pieces[left];
        if start == at {
            return;
        }
        let left_busy = self.busy_chunks(Extent { segment, start, len: at - start });
        let over = self.pieces[left].over.clone();
        if left_busy > 0 && busy > left_busy {
            for &index in &over {
                self.busy[index as usize] += 1;
            }
        }
        let cut = &mut self.pieces[left];
        (cut.len, cut.busy) = (at - start, left_busy);
        let len = start + len - at;
        let right = self.pieces.insert(Piece { start: at, len, busy: busy - left_busy, over });
        self.segments[segment].pieces.cut(at, right);
    }

    /// Chunks of `extent` that a tensor uses, counted from the pBlocks.
    pub(in crate::allocator) fn busy_chunks(&self, extent: Extent) -> u32 {
        let mut busy = 0;
        let mut at = extent.start;
        while at < extent.end() {
            let block = &self.blocks[self.segments[extent.segment].blocks.find(at)];
            let stop = block.extent().end().min(extent.end());
            if matches!(block.state, BlockState::Used | BlockState::Held) {
                busy += stop - at;
            }
            at = stop;
        }
        busy
    }

    /// Visits the pieces of `extent`, which begin and end with it.
    pub(super) fn for_pieces(&mut self, extent: Extent, mut visit: impl FnMut(&mut Piece)) {
        let mut at = extent.start;
        while at < extent.end() {
            let piece = &mut self.pieces[self.segments[extent.segment].pieces.find(at)];
            at = piece.start + piece.len;
            visit(piece);
        }
    }
}
