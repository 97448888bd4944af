//! The state at any moment of a recording, worked out backwards from its end.
//!
//! PyTorch's snapshot says what is held at the end, and its entries say what happened before. Undoing them one by one
//! gives the state at an earlier moment: what users have is mostly a ring buffer that lost its beginning, or a
//! recording that was switched on late.
//!
//! ```text
//!   end:     [ A ][ free      ][ C ]        undo free_completed B  ──▶   [ A ][ B ][ free ][ C ]
//! ```
//!
//! One thing is not recorded: how large a block was that is gone at the end. In the small pool and in expandable
//! segments it is the request, rounded. A large block may own up to 1 MiB more (its *slack*), because PyTorch does not
//! split off less. If the gap behind it is larger than that, the future tells: the first block that is later cut from
//! the gap begins where the old one ended. What even the future does not tell stays *uncertain*, and is counted.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::alloc_conf::AllocConf;
use crate::allocator::round_request;
use crate::trace::{
    Action, BlockState, Entry, Layout, PoolId, Records, Segment, SegmentBlock, StreamId,
};
use crate::units::{Bytes, MIB, TIB};

/// PyTorch reserves nine eighths of the device's memory, and no device has as much as this.
const LONGEST_RESERVATION: Bytes = TIB;

/// The state at one moment, and how sure it is.
#[derive(Debug, Clone, Default)]
pub struct StartState {
    /// What was held.
    pub layout: Layout,
    /// Blocks whose size the entries before the moment and the final state leave open.
    pub uncertain: usize,
    /// Of these, blocks whose size followed from later entries.
    pub decided: usize,
}

/// A contiguous piece of memory held from the device.
#[derive(Debug, Clone, Copy)]
struct Range {
    size: Bytes,
    stream: StreamId,
    pool: PoolId,
    is_small: bool,
    is_expandable: bool,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    requested: Bytes,
    /// The block's real size, if this lifetime is still there at the end.
    size: Option<Bytes>,
    is_pending: bool,
}

/// The state just before entry number `moment`.
pub fn state_at(records: &Records, moment: usize, conf: &AllocConf) -> StartState {
    let mut undo = Undo::new(records, conf);
    for entry in records.entries[moment..].iter().rev() {
        undo.entry(entry);
    }
    if undo.ranges.is_empty() {
        return StartState::default();
    }
    undo.part();
    let mut live: Vec<(u64, Live)> = undo.live.drain().collect();
    live.sort_unstable_by_key(|&(at, _)| at);
    Assembly { records, conf, ranges: &undo.ranges, live, moment }.assemble()
}

struct Undo<'a> {
    conf: &'a AllocConf,
    ranges: BTreeMap<u64, Range>,
    live: FxHashMap<u64, Live>,
}

impl<'a> Undo<'a> {
    fn new(records: &Records, conf: &'a AllocConf) -> Self {
        let mut ranges = BTreeMap::new();
        let mut live = FxHashMap::default();
        for segment in &records.segments {
            let Segment { size, stream, pool, is_small, is_expandable, .. } = *segment;
            ranges.insert(segment.address, Range { size, stream, pool, is_small, is_expandable });
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Inactive) {
                let is_pending = block.state == BlockState::PendingFree;
                let (requested, size) = (block.requested, Some(block.size));
                live.insert(block.address, Live { requested, size, is_pending });
            }
        }
        Self { conf, ranges, live }
    }

    fn entry(&mut self, entry: &Entry) {
        match entry.action {
            Action::Alloc => {
                self.live.remove(&entry.addr);
            }
            Action::FreeCompleted => {
                let live = Live { requested: entry.size, size: None, is_pending: true };
                self.live.insert(entry.addr, live);
            }
            Action::FreeRequested => {
                if let Some(live) = self.live.get_mut(&entry.addr) {
                    live.is_pending = false;
                }
            }
            Action::SegmentAlloc => {
                self.ranges.remove(&entry.addr);
            }
            Action::SegmentFree => self.add(entry, false),
            Action::SegmentMap => self.cut(entry.addr, entry.size),
            Action::SegmentUnmap => self.add(entry, true),
            Action::Snapshot | Action::Oom => {}
        }
    }

    /// Brings back a range that was given up. Its pool is that of the pages next to it, or inferred from its size:
    /// large segments are never as small as 2 MiB, and pages of the large pool are those of a large segment.
    fn add(&mut self, entry: &Entry, is_expandable: bool) {
        let is_small = match is_expandable {
            true => !entry.size.is_multiple_of(self.conf.large_segment_size),
            false => entry.size == 2 * MIB,
        };
        let pool = entry.pool;
        let mut range =
            Range { size: entry.size, stream: entry.stream, pool, is_small, is_expandable };
        let mut at = entry.addr;
        if is_expandable {
            let touching = |range: &Range| range.is_expandable && range.stream == entry.stream;
            let before = self.ranges.range(..at).next_back().map(|(&at, &range)| (at, range));
            if let Some((left, found)) =
                before.filter(|(left, range)| left + range.size == at && touching(range))
            {
                range = Range { size: found.size + range.size, ..found };
                self.ranges.remove(&left);
                at = left;
            }
            let end = at + range.size;
            if let Some(found) = self.ranges.get(&end).copied().filter(touching) {
                range = Range { size: range.size + found.size, ..found };
                self.ranges.remove(&end);
            }
        }
        self.ranges.insert(at, range);
    }

    /// Takes out ranges that begin inside another one: so it is where entries are missing.
    fn part(&mut self) {
        let mut end = 0;
        self.ranges.retain(|&at, range| {
            let is_apart = at >= end;
            end = if is_apart { at + range.size } else { end };
            is_apart
        });
    }

    /// Takes pages out of a range, which may be cut in two.
    fn cut(&mut self, at: u64, size: Bytes) {
        let Some((&base, &range)) = self.ranges.range(..=at).next_back() else { return };
        let (end, cut_end) = (base + range.size, at + size);
        if at >= end {
            return;
        }
        self.ranges.remove(&base);
        if base < at {
            self.ranges.insert(base, Range { size: at - base, ..range });
        }
        if cut_end < end {
            self.ranges.insert(cut_end, Range { size: end - cut_end, ..range });
        }
    }
}

/// Puts live blocks into their ranges, and free blocks between them.
struct Assembly<'a> {
    records: &'a Records,
    conf: &'a AllocConf,
    ranges: &'a BTreeMap<u64, Range>,
    live: Vec<(u64, Live)>,
    moment: usize,
}

impl Assembly<'_> {
    fn assemble(self) -> StartState {
        let mut state = StartState::default();
        let mut open = BTreeMap::new();
        let mut rest = &self.live[..];
        for (&base, range) in self.ranges {
            let from = rest.partition_point(|&(at, _)| at < base);
            let to = rest.partition_point(|&(at, _)| at < base + range.size);
            let segment = self.segment(base, *range, &rest[from..to], &mut open);
            state.layout.segments.push(segment);
            rest = &rest[to..];
        }
        state.uncertain = open.len();
        let sizes = look_ahead(&self.records.entries[self.moment..], &mut open);
        state.decided = sizes.len();
        apply_sizes(&mut state.layout, &sizes);
        state.layout.reservations = self.reservations(&state.layout);
        self.check_pages(&mut state.layout);
        state
    }

    /// One range with its blocks. Where a block's size is open, the block goes into `open`, with the end of its gap.
    fn segment(
        &self,
        base: u64,
        range: Range,
        live: &[(u64, Live)],
        open: &mut BTreeMap<u64, u64>,
    ) -> Segment {
        let Range { size, stream, pool, is_expandable, .. } = range;
        let rounded = |block: &Live| round_request(block.requested, self.conf);
        let is_small = match live.first() {
            Some((_, block)) => rounded(block) <= MIB,
            None => range.is_small,
        };
        let is_exact = is_small || is_expandable;
        let mut blocks = Vec::with_capacity(2 * live.len() + 1);
        let mut end = base;
        for (number, &(at, block)) in live.iter().enumerate() {
            let next = live.get(number + 1).map_or(base + size, |&(next, _)| next);
            let (least, gap_end) = (rounded(&block), next);
            let gap = gap_end.saturating_sub(at + least);
            let owns_all = live.len() == 1
                && at == base
                && self.conf.max_split_size.is_some_and(|max| least >= max);
            let block_size = match block.size {
                Some(size) => size,
                None if owns_all => size,
                None if is_exact => least,
                None if gap <= MIB => least + gap,
                None => {
                    open.insert(at, gap_end);
                    least
                }
            };
            // Entries that contradict each other may claim more than there is.
            let block_size = block_size.min(next.saturating_sub(at));
            push_gap(&mut blocks, end, at);
            let state =
                if block.is_pending { BlockState::PendingFree } else { BlockState::Allocated };
            let requested = block.requested;
            blocks.push(SegmentBlock { address: at, size: block_size, requested, state });
            end = at + block_size;
        }
        push_gap(&mut blocks, end, base + size);
        Segment { address: base, size, stream, pool, is_small, is_expandable, blocks }
    }

    /// Ranges of addresses that do not consist of pages, or lie too far apart for one reservation, are not PyTorch's,
    /// as where another allocator was recorded: those around such a one are taken as segments, as they are.
    fn check_pages(&self, layout: &mut Layout) {
        let Layout { segments, reservations } = layout;
        for number in (0..reservations.len()).rev() {
            let base = reservations[number];
            let next = reservations.get(number + 1).copied().unwrap_or(u64::MAX);
            let mut inside: Vec<&mut Segment> = segments.iter_mut().collect();
            inside.retain(|own| own.is_expandable && (base..next).contains(&own.address));
            let is_small = inside.first().is_some_and(|first| first.is_small);
            let page = if is_small { 2 * MIB } else { self.conf.large_segment_size };
            let is_whole = |own: &&mut Segment| {
                (own.address - base).is_multiple_of(page) && own.size.is_multiple_of(page)
            };
            let end = inside.iter().map(|own| own.address + own.size).max().unwrap_or(base);
            if !inside.iter().all(is_whole) || end - base > LONGEST_RESERVATION {
                inside.into_iter().for_each(|own| own.is_expandable = false);
                reservations.remove(number);
            }
        }
    }

    /// Lowest address ever seen of each expandable reservation: one for each stream, pool and kind of page.
    fn reservations(&self, layout: &Layout) -> Vec<u64> {
        let mut bases: BTreeMap<(StreamId, PoolId, bool), u64> = BTreeMap::new();
        let expandable = layout.segments.iter().filter(|segment| segment.is_expandable);
        for segment in expandable
            .clone()
            .chain(self.records.segments.iter().filter(|segment| segment.is_expandable))
        {
            let key = (segment.stream, segment.pool, segment.is_small);
            let base = bases.entry(key).or_insert(segment.address);
            *base = segment.address.min(*base);
        }
        let mut served = 0;
        for entry in self.records.entries[self.moment..].iter().rev() {
            match entry.action {
                Action::Alloc | Action::Oom => served = round_request(entry.size, self.conf),
                Action::SegmentMap => {
                    let key = (entry.stream, entry.pool, served <= MIB);
                    if let Some(base) = bases.get_mut(&key) {
                        *base = entry.addr.min(*base);
                    }
                }
                _ => {}
            }
        }
        let mut bases: Vec<u64> = bases.into_values().collect();
        bases.sort_unstable();
        bases.dedup();
        bases
    }
}

fn push_gap(blocks: &mut Vec<SegmentBlock>, from: u64, to: u64) {
    if from < to {
        let state = BlockState::Inactive;
        blocks.push(SegmentBlock { address: from, size: to - from, requested: 0, state });
    }
}

/// Sizes that the future tells: while an open block lives, the first block cut from the gap behind it begins at its
/// end. Returns (address, size), and leaves in `open` what was freed before.
fn look_ahead(entries: &[Entry], open: &mut BTreeMap<u64, u64>) -> Vec<(u64, Bytes)> {
    let mut sizes = Vec::new();
    for entry in entries {
        if open.is_empty() {
            break;
        }
        match entry.action {
            Action::Alloc => {
                let before = open.range(..entry.addr).next_back().map(|(&at, &end)| (at, end));
                if let Some((at, _)) = before.filter(|&(_, gap_end)| entry.addr < gap_end) {
                    sizes.push((at, entry.addr - at));
                    open.remove(&at);
                }
            }
            Action::FreeCompleted => drop(open.remove(&entry.addr)),
            _ => {}
        }
    }
    sizes.sort_unstable();
    sizes
}

/// Gives blocks the sizes that were found, at the cost of the free block behind them.
fn apply_sizes(layout: &mut Layout, sizes: &[(u64, Bytes)]) {
    for segment in &mut layout.segments {
        let end = segment.address + segment.size;
        let from = sizes.partition_point(|&(at, _)| at < segment.address);
        for &(at, size) in sizes[from..].iter().take_while(|&&(at, _)| at < end) {
            let Ok(index) = segment.blocks.binary_search_by_key(&at, |block| block.address) else {
                continue;
            };
            let slack = size.saturating_sub(segment.blocks[index].size);
            if slack == 0 {
                continue;
            }
            segment.blocks[index].size += slack;
            match segment.blocks.get_mut(index + 1) {
                Some(gap) if gap.state == BlockState::Inactive && gap.size > slack => {
                    gap.address += slack;
                    gap.size -= slack;
                }
                _ => segment.blocks[index].size -= slack,
            }
        }
    }
}
