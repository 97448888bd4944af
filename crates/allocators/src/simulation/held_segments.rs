//! Memory that an allocator holds, as the segments that PyTorch would list.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::allocator::BlockView;
use crate::device::{Call, DriverCall, Watch};
use gmlake_core::program::{Action, BlockState, Layout, PoolId, Segment, SegmentBlock, StreamId};
use gmlake_core::ranges::Ranges;
use gmlake_core::units::{Bytes, MIB};

/// Requests up to here, rounded, come from segments of their own.
const SMALL: Bytes = MIB;

/// Whom a range of addresses was obtained for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Owner {
    /// The stream of the request.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolId,
    is_small: bool,
    is_expandable: bool,
}

/// What was asked of the device since it was last looked at.
#[derive(Debug, Default)]
pub struct SegmentCalls {
    /// Whether the allocator waited for the GPU.
    pub has_waited: bool,
    /// What it obtained and gave back, in order.
    pub made: Vec<(Action, Range<u64>, Owner)>,
}

/// The ranges of addresses that the allocator holds.
#[derive(Debug, Default)]
pub struct HeldSegments {
    /// Ends and owners of allocations and reservations, by address.
    ranges: BTreeMap<u64, (u64, Owner)>,
    /// The parts that have memory under them, each with the beginning of its range.
    mapped: Ranges<u64>,
    asking: Owner,
    calls: SegmentCalls,
}

impl Owner {
    /// The owner of what was obtained for this stream and pool.
    pub fn new(stream: StreamId, pool: PoolId) -> Self {
        Self { stream, pool, ..Self::default() }
    }
}

impl HeldSegments {
    /// What was held when the recording began.
    pub fn adopt(&mut self, layout: &Layout) {
        for segment in &layout.segments {
            self.asking = Owner::new(segment.stream, segment.pool);
            self.obtain(segment.address, segment.size, segment.is_expandable);
            let end = segment.address + segment.size;
            self.mapped.set(segment.address..end, segment.address);
        }
    }

    /// A request of this stream and pool comes next.
    pub fn begin(&mut self, stream: StreamId, pool: PoolId) {
        self.asking = Owner::new(stream, pool);
    }

    /// A block of `size` bytes is at `at`: that tells whether its segment is one for small requests.
    pub fn hand_out(&mut self, at: u64, size: Bytes) {
        if let Some((_, (_, owner))) = self.ranges.range_mut(..=at).next_back() {
            owner.is_small = size <= SMALL;
        }
    }

    /// What was asked since the last time.
    pub fn take_calls(&mut self) -> SegmentCalls {
        std::mem::take(&mut self.calls)
    }

    /// The mapped parts as segments, with `views` (in address order) as their blocks and free blocks in between.
    pub fn segments(&self, views: &[BlockView]) -> Vec<Segment> {
        let segment = |(Range { start, end }, _)| {
            let owner = self.owner(start);
            let first = views.partition_point(|view| view.at.0 < start);
            let inside = views[first..].iter().take_while(|view| view.at.0 < end);
            Segment {
                address: start,
                size: end - start,
                stream: owner.stream,
                pool: owner.pool,
                is_small: owner.is_small,
                is_expandable: owner.is_expandable,
                blocks: blocks(start..end, inside),
            }
        };
        self.mapped.within(0..u64::MAX).map(segment).collect()
    }

    fn owner(&self, at: u64) -> Owner {
        let range = self.ranges.range(..=at).next_back();
        range.map_or(Owner::default(), |(_, &(_, owner))| owner)
    }

    fn obtain(&mut self, at: u64, size: Bytes, is_expandable: bool) {
        let owner = Owner { is_expandable, ..self.asking };
        self.ranges.insert(at, (at + size, owner));
    }

    /// Memory is under `range` from now on. It joins its neighbours in the same reservation.
    fn map(&mut self, action: Action, range: Range<u64>) {
        self.calls.made.push((action, range.clone(), self.owner(range.start)));
        let base = self.bounds(range.start).0;
        self.mapped.set(range, base);
    }

    fn unmap(&mut self, action: Action, range: Range<u64>) {
        // Pages of one range are given back one by one; PyTorch writes them down as one.
        let base = self.bounds(range.start).0;
        let owner = self.owner(range.start);
        match self.calls.made.last_mut() {
            Some((last, part, _))
                if (*last, part.end) == (action, range.start) && part.start >= base =>
            {
                part.end = range.end;
            }
            _ => self.calls.made.push((action, range.clone(), owner)),
        }
        self.mapped.take(range);
    }

    /// The allocation or reservation around an address.
    fn bounds(&self, at: u64) -> (u64, u64) {
        let range = self.ranges.range(..=at).next_back();
        range.map_or((at, at), |(&start, &(end, _))| (start, end))
    }
}

/// The blocks of one segment, without a gap.
fn blocks<'v>(range: Range<u64>, views: impl Iterator<Item = &'v BlockView>) -> Vec<SegmentBlock> {
    let free = |at: Range<u64>| SegmentBlock {
        address: at.start,
        size: at.end - at.start,
        requested: 0,
        state: BlockState::Inactive,
    };
    let (mut blocks, mut at) = (Vec::new(), range.start);
    for view in views {
        if at < view.at.0 {
            blocks.push(free(at..view.at.0));
        }
        blocks.push(view.recorded());
        at = view.at.0 + view.size;
    }
    if at < range.end {
        blocks.push(free(at..range.end));
    }
    blocks
}

impl Watch for HeldSegments {
    const ROWS: bool = true;

    fn wants_amounts(&self) -> bool {
        true
    }

    fn after(&mut self, done: &DriverCall<'_>) {
        let at = done.at.0;
        let range = at..at + done.amount.size;
        match done.call {
            _ if !done.is_done() => {}
            Call::MemAlloc => {
                self.obtain(at, done.amount.size, false);
                self.map(Action::SegmentAlloc, range);
            }
            Call::MemFree => {
                let (start, end) = self.bounds(at);
                self.unmap(Action::SegmentFree, start..end);
                self.ranges.remove(&start);
            }
            Call::AddressReserve => self.obtain(at, done.amount.size, true),
            Call::AddressFree => drop(self.ranges.remove(&at)),
            Call::Map => self.map(Action::SegmentMap, range),
            Call::Unmap => self.unmap(Action::SegmentUnmap, range),
            Call::Synchronize => self.calls.has_waited = true,
            _ => {}
        }
    }
}
