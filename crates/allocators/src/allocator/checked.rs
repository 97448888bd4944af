//! A checker outside every allocator: it trusts nothing, and checks each promise again from the driver calls.
//!
//! [`Checked`] stands between a client and an allocator, and between that allocator and its device. On the one side it
//! knows what was handed out, on the other what memory is behind each address ([`Record`]); the allocator's own account
//! must agree with both.
//!
//! ```text
//!   client ──malloc/free──▶ Checked ──malloc/free──▶ allocator ──driver calls──▶ Watched ──▶ device
//!                              │ live blocks             │ usage, peak, walk        │ Record
//!                              └──────────── must agree ─┴──────────────────────────┘
//! ```
//!
//! Checked after each call: what was handed out is backed and accessible, large enough, aligned, and shares no physical
//! byte with anything in use, aliases included; no memory goes away from under a block before its free is completed;
//! the [`Usage`] follows from the live blocks and from the memory that the device gave out; the peaks are those that
//! were seen; `blocks` shows the same ones. A violation panics, with values, as a test wants it. Under
//! [`Checked::supervised`] nothing that an allocator does ends the program: the first panic becomes its
//! [`fault`](Allocator::fault), in one line, and whatever comes later is refused.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::afterlife::Afterlife;
use super::quietly::quietly;
use super::{
    AllocError, AllocResult, Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView,
    Counter, Request, Role, Spec, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr, Extent, Record, Result};
use gmlake_core::program::{BlockState, Layout, Lifetime, PoolId, SegmentBlock, StreamId};
use gmlake_core::units::{Bytes, Size};

#[derive(Debug, Clone)]
struct Live {
    given: Allocation,
    requested: Bytes,
    stream: StreamId,
    state: BlockUse,
    /// When the client let go of it, in moments of the device's order.
    let_go: Option<u64>,
    /// Other streams that may still be using it then.
    users: Vec<StreamId>,
    /// The memory behind it.
    extents: Vec<Extent>,
}

/// Calls after which the checker forgets who used memory that is gone: nobody can be handed that again.
const FORGET_EVERY: u64 = 1 << 10;

/// Calls of a supervised allocator between two looks at every block: a tenth of the time of a run.
const AUDIT_EVERY: u64 = 5000;

/// An allocator under supervision.
pub struct Checked {
    inner: Box<dyn Allocator>,
    alignment: Bytes,
    audit_every: u64,
    calls: u64,
    record: Record,
    live: FxHashMap<BlockId, Live>,
    /// Those of them that only streams use.
    pending: BTreeSet<BlockId>,
    /// Physical extents in use by live and pending blocks: start to end and block.
    in_use: BTreeMap<u64, (u64, BlockId)>,
    afterlife: Afterlife,
    synchronisations: u64,
    requested: Bytes,
    /// Highest usage seen, and the peak last reported.
    seen: Usage,
    peak: Usage,
    /// Whether a violation is a fault, in place of a panic.
    is_supervised: bool,
    fault: Option<String>,
}

impl Checked {
    /// Supervises a new allocator that was made from this entry of the list. Each call is followed by all checks.
    pub fn new(inner: Box<dyn Allocator>, spec: &Spec) -> Self {
        Self {
            inner,
            alignment: spec.alignment,
            audit_every: 1,
            calls: 0,
            record: Record::default(),
            live: FxHashMap::default(),
            pending: BTreeSet::new(),
            in_use: BTreeMap::new(),
            afterlife: Afterlife::default(),
            synchronisations: 0,
            requested: 0,
            seen: Usage::default(),
            peak: Usage::default(),
            is_supervised: false,
            fault: None,
        }
    }

    /// The same for a new allocator whose every failure is to be a result.
    pub fn supervised(inner: Box<dyn Allocator>, spec: &Spec) -> Self {
        // What a plug-in holds without an address has no block.
        let every = if spec.role == Role::PlugIn { u64::MAX } else { AUDIT_EVERY };
        Self { is_supervised: true, ..Self::new(inner, spec).audit_every(every) }
    }

    /// Carries out a call. `None` if there is a fault.
    fn call<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if !self.is_supervised {
            return Some(work(self));
        }
        if self.fault.is_some() {
            return None;
        }
        let result = quietly(|| work(self));
        self.fault = self.inner.fault().map(str::to_owned).or(result.as_ref().err().cloned());
        result.ok().filter(|_| self.fault.is_none())
    }

    fn refusal(&self) -> DeviceError {
        let reason = self.fault.clone().unwrap_or_default();
        DeviceError::Driver { call: "the allocator", reason }
    }

    /// Makes the checks that look at every block (`blocks`, sums from scratch) only once in this many calls; for long
    /// traces. The others cost little, and are always made.
    #[must_use]
    pub fn audit_every(mut self, calls: u64) -> Self {
        self.audit_every = calls.max(1);
        self
    }

    /// What the allocator holds of the device.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// All checks that look at every block. Made every so often, and good to make at the end.
    ///
    /// # Panics
    /// If one fails.
    pub fn audit(&self) {
        assert_eq!(self.record.physical(), self.record.recount_physical(), "the checker is wrong");
        let views = self.inner.blocks();
        self.audit_blocks(&views);
        self.audit_sums(&views);
        views.iter().for_each(|view| self.audit_memory(view));
    }

    /// The blocks in use that `blocks` shows are exactly those that were handed out.
    fn audit_blocks(&self, views: &[BlockView]) {
        let mut found = 0;
        for view in views {
            let id = match (view.state, view.block) {
                (BlockUse::Allocated | BlockUse::Pending, Some(id)) => id,
                (BlockUse::Free | BlockUse::Alias, None) => continue,
                _ => panic!("walk shows {view:?}: state and block number do not go together"),
            };
            let live = self.live.get(&id);
            let live = live.unwrap_or_else(|| panic!("walk shows {view:?}, which is not in use"));
            let shown = (view.at, view.size, view.requested, view.stream, view.state);
            let expected =
                (live.given.at, live.given.size, live.requested, live.stream, live.state);
            assert_eq!(shown, expected, "walk shows {id:?} other than it was handed out");
            found += 1;
        }
        assert_eq!(found, self.live.len(), "walk does not show every block in use just once");
        let sorted = views.is_sorted_by(|a, b| a.at.offset(a.size) <= b.at);
        assert!(sorted, "walk is not in address order, or blocks overlap: {views:?}");
    }

    fn audit_sums(&self, views: &[BlockView]) {
        let sum = |states: &[BlockUse]| -> Bytes {
            views.iter().filter(|v| states.contains(&v.state)).map(|v| v.size).sum()
        };
        let usage = self.inner.usage();
        let active = sum(&[BlockUse::Allocated, BlockUse::Pending]);
        assert_eq!(usage.allocated, sum(&[BlockUse::Allocated]), "allocated is not the sum");
        assert_eq!(usage.active, active, "active is not the sum over the blocks in use");
        let requested: Bytes = self.live.values().map(|live| live.requested).sum();
        assert_eq!(self.requested, requested, "the checker is wrong");
        let reserved = active + sum(&[BlockUse::Free]);
        assert_eq!(usage.reserved, reserved, "reserved is not the sum over all blocks");
        let physical = views.iter().filter(|view| view.kind != BlockKind::Stitched);
        let physical: Bytes = physical.map(|view| view.size).sum();
        assert_eq!(usage.reserved, physical, "reserved is not the sum over what is not stitched");
    }

    /// Every block is backed, and memory that is free for the taking is not in use.
    fn audit_memory(&self, view: &BlockView) {
        let extents = self.extents(view.at, view.size);
        for extent in extents {
            match (self.user_of(extent), view.state) {
                (Some(user), BlockUse::Allocated | BlockUse::Pending) => {
                    assert_eq!(Some(user), view.block, "{extent:?} of {view:?} has another user");
                }
                (None, BlockUse::Allocated | BlockUse::Pending) => panic!("the checker is wrong"),
                (Some(user), BlockUse::Free) => panic!("{user:?} uses {extent:?} of {view:?}"),
                (_, BlockUse::Free | BlockUse::Alias) => {}
            }
        }
    }

    fn extents(&self, at: DevicePtr, size: Bytes) -> Vec<Extent> {
        let extents = self.record.translate(at, size);
        extents.unwrap_or_else(|why| panic!("{at} + {size} is not backed: {why}"))
    }

    fn user_of(&self, extent: Extent) -> Option<BlockId> {
        let (_, &(end, user)) = self.in_use.range(..extent.end()).next_back()?;
        (end > extent.start).then_some(user)
    }

    fn note_malloc(&mut self, request: Request, given: Allocation) {
        let Allocation { at, size, block } = given;
        assert!(size >= request.size, "{size} bytes for {request:?}");
        assert!(at.0.is_multiple_of(self.alignment), "{at} for {request:?}: alignment");
        assert!(!self.live.contains_key(&block), "{block:?} is in use, and was handed out again");
        let extents = self.take(given, request.stream);
        self.requested += request.size;
        let Request { size: requested, stream, .. } = request;
        let (state, let_go) = (BlockUse::Allocated, None);
        let users = Vec::new();
        let live = Live { given, requested, stream, state, let_go, users, extents };
        self.live.insert(block, live);
    }

    /// Marks the memory behind an allocation as in use, and says where it is.
    fn take(&mut self, given: Allocation, stream: StreamId) -> Vec<Extent> {
        let extents = self.extents(given.at, given.size);
        for &extent in &extents {
            if let Some(user) = self.user_of(extent) {
                let other = self.live.get(&user).map(|live| live.given.at.to_string());
                let other = other.map_or("itself".to_owned(), |at| format!("the block at {at}"));
                let size = Size(extent.size);
                panic!("the block at {} shares {size} of memory with {other}", given.at);
            }
            self.afterlife.take(extent, stream, self.record.order());
            self.in_use.insert(extent.start, (extent.end(), given.block));
        }
        self.record.note_reused(given.at, given.size);
        self.record.guard(given.at, given.size);
        extents
    }

    fn note_free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        let live = self.live.get_mut(&block);
        let live = live.unwrap_or_else(|| panic!("the free of {block:?}, which is stale, passed"));
        assert_eq!(live.state, BlockUse::Allocated, "the second free of {block:?} passed");
        live.state = BlockUse::Pending;
        self.pending.insert(block);
        live.let_go = Some(self.record.order().now());
        live.users = users.to_vec();
        let moment = self.record.order().now();
        let all = users.iter().chain((!users.is_empty()).then_some(&live.stream));
        let uses = all.map(|&stream| (stream, moment)).collect();
        self.record.guard_pending(live.given.at, uses);
    }

    /// Notes the blocks that a recording began with. What `blocks` shows of them is checked by the audit.
    fn note_restored(&mut self, layout: &Layout, blocks: &[BlockId]) {
        assert_eq!(layout.active().count(), blocks.len(), "not every active block was restored");
        for ((segment, block), &id) in layout.active().zip(blocks) {
            let SegmentBlock { address, size, requested, .. } = *block;
            let request = Request { size: requested, stream: segment.stream, pool: segment.pool };
            self.note_malloc(request, Allocation { at: DevicePtr(address), size, block: id });
            if block.state == BlockState::PendingFree {
                self.note_free_requested(id, &[]);
            }
        }
    }

    /// Lets go of a block whose streams are done with it, but for its own.
    fn forget(&mut self, block: BlockId) {
        if let Some(live) = self.live.get_mut(&block) {
            live.users.clear();
        }
        self.let_go(block);
    }

    /// A block is gone, and its streams may still be using its memory.
    fn let_go(&mut self, block: BlockId) {
        let Some(live) = self.live.remove(&block) else { return };
        self.pending.remove(&block);
        self.requested -= live.requested;
        for extent in &live.extents {
            self.in_use.remove(&extent.start);
        }
        let moment = live.let_go.unwrap_or(self.record.order().now());
        let streams = std::iter::once(live.stream).chain(live.users);
        let uses: Vec<_> = streams.map(|stream| (stream, moment)).collect();
        self.afterlife.free(&live.extents, &uses);
        self.record.unguard(live.given.at);
        self.record.note_freed(live.given.at, live.given.size, uses);
    }

    /// After the device was synchronised, blocks that only waited for a stream may be free: `blocks` tells which.
    fn forget_settled(&mut self) {
        if self.synchronisations == self.record.synchronisations() {
            return;
        }
        self.synchronisations = self.record.synchronisations();
        let is_settled = |id: &&BlockId| self.record.is_settled(self.live[id].given.at);
        let settled: Vec<BlockId> = self.pending.iter().filter(is_settled).copied().collect();
        if settled.is_empty() {
            return;
        }
        let pending = |view: &BlockView| view.block.filter(|_| view.state == BlockUse::Pending);
        let still: BTreeSet<BlockId> = self.inner.blocks().iter().filter_map(pending).collect();
        settled.into_iter().filter(|id| !still.contains(id)).for_each(|id| self.forget(id));
    }

    /// The checks after every call.
    fn settle(&mut self) {
        self.forget_settled();
        let (usage, peak) = (self.inner.usage(), self.inner.peak());
        self.check_usage(usage);
        self.seen = self.seen.max(usage);
        self.check_peak(peak);
        self.calls += 1;
        if self.calls.is_multiple_of(self.audit_every) {
            self.audit();
        }
        if self.calls.is_multiple_of(FORGET_EVERY) {
            self.afterlife.keep(&self.record.memory());
        }
    }

    fn check_usage(&self, usage: Usage) {
        let Usage { requested, allocated, active, reserved } = usage;
        assert_eq!(requested, self.requested, "requested is not the sum over the blocks in use");
        let ordered = reserved >= active && active >= allocated && active >= requested;
        assert!(ordered, "the numbers are not in order: {usage:?}");
        assert_eq!(reserved, self.record.physical(), "reserved is not what the device gave");
    }

    fn check_peak(&mut self, peak: Usage) {
        let seen = self.seen;
        let client = |usage: Usage| (usage.requested, usage.allocated, usage.active);
        assert_eq!(client(peak), client(seen), "the peaks are not those that were seen");
        // Within one call, memory may come and go.
        assert!(peak.reserved >= seen.reserved, "peak {peak:?} is below {seen:?}");
        assert!(peak.reserved >= self.peak.reserved, "peak fell from {:?} to {peak:?}", self.peak);
        self.peak = peak;
    }
}

impl Allocator for Checked {
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let given = self.call(|checked| {
            let given = checked.inner.malloc(&mut checked.record.watch(device), request);
            checked.forget_settled();
            match &given {
                Ok(given) => checked.note_malloc(request, *given),
                Err(AllocError::OutOfMemory { requested, usage }) => {
                    assert!(*requested >= request.size, "{request:?} failed as one of {requested}");
                    assert_eq!(*usage, checked.inner.usage(), "the error tells another usage");
                }
                Err(AllocError::Device(_)) => {}
            }
            checked.settle();
            given
        });
        given.unwrap_or_else(|| Err(self.refusal().into()))
    }

    fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
        self.call(|checked| {
            checked.inner.free_requested(block, users);
            checked.note_free_requested(block, users);
            checked.settle();
        });
    }

    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        self.call(|checked| {
            let live = checked.live.get(&block);
            let was_pending = live.is_none_or(|live| live.state == BlockUse::Pending);
            // The streams are done with it: from here on the memory may go.
            checked.forget(block);
            checked.inner.free_completed(&mut checked.record.watch(device), block);
            assert!(was_pending, "{block:?} was completed, but its free was not requested");
            checked.settle();
        });
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        self.call(|checked| {
            let is_live = checked.live.contains_key(&block);
            if is_live {
                checked.note_free_requested(block, &[]);
                checked.forget(block);
            }
            checked.inner.free(&mut checked.record.watch(device), block);
            assert!(is_live, "the free of {block:?}, which is stale, passed");
            checked.settle();
        });
    }

    fn trim(&mut self, device: &mut dyn Device) {
        self.call(|checked| {
            checked.inner.trim(&mut checked.record.watch(device));
            checked.settle();
        });
    }

    fn release_pool(&mut self, device: &mut dyn Device, pool: PoolId) {
        self.call(|checked| {
            checked.inner.release_pool(&mut checked.record.watch(device), pool);
            checked.settle();
        });
    }

    fn restore(
        &mut self,
        device: &mut dyn Device,
        layout: &Layout,
    ) -> Result<Option<Vec<BlockId>>> {
        let restored = self.call(|checked| {
            let restored = checked.inner.restore(&mut checked.record.watch(device), layout)?;
            if let Some(blocks) = &restored {
                checked.note_restored(layout, blocks);
            }
            checked.settle();
            Ok(restored)
        });
        restored.unwrap_or_else(|| Err(self.refusal()))
    }

    fn foresee(&mut self, lifetimes: &dyn Fn() -> Vec<Lifetime>) {
        self.call(|checked| checked.inner.foresee(lifetimes));
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn peak(&self) -> Usage {
        self.inner.peak()
    }

    fn retries(&self) -> u64 {
        self.inner.retries()
    }

    fn fault(&self) -> Option<&str> {
        self.fault.as_deref().or(self.inner.fault())
    }

    fn counters(&self) -> Vec<Counter> {
        self.inner.counters()
    }

    fn blocks(&self) -> Vec<BlockView> {
        self.inner.blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Native, find};
    use super::*;
    use crate::device::{GRANULE, SimDevice};
    use gmlake_core::units::MIB;

    /// One way to break the contract.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Flaw {
        None,
        TooSmall,
        Misaligned,
        NotBacked,
        SameTwice,
        Alias,
        NoAccess,
        Leak,
        FreesEarly,
        CompletesEarly,
        HidesBlocks,
    }

    /// `native` with a flaw.
    struct Flawed {
        native: Native,
        flaw: Flaw,
        first: Option<Allocation>,
        handle: Option<crate::device::HandleId>,
    }

    impl Flawed {
        /// Each allocation is another address of the same memory.
        fn alias(&mut self, device: &mut dyn Device, given: &mut Allocation) {
            let handle = *self.handle.get_or_insert_with(|| device.create(GRANULE).unwrap());
            given.at = device.reserve(GRANULE).unwrap();
            device.map(given.at, &[handle]).unwrap();
            if self.flaw == Flaw::Alias {
                device.set_access(given.at, GRANULE).unwrap();
            }
        }
    }

    impl Allocator for Flawed {
        fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
            let mut given = self.native.malloc(device, request)?;
            match self.flaw {
                Flaw::TooSmall => given.size = request.size - 1,
                Flaw::Misaligned => given.at = given.at.offset(8),
                Flaw::NotBacked => given.size += MIB,
                Flaw::SameTwice => given.at = self.first.get_or_insert(given).at,
                Flaw::Alias | Flaw::NoAccess => self.alias(device, &mut given),
                Flaw::Leak => drop(device.create(GRANULE)?),
                _ => {}
            }
            self.first.get_or_insert(given);
            Ok(given)
        }

        fn free_requested(&mut self, block: BlockId, users: &[StreamId]) {
            self.native.free_requested(block, users);
        }

        fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
            self.native.free_completed(device, block);
        }

        fn free(&mut self, device: &mut dyn Device, block: BlockId) {
            self.native.free(device, block);
        }

        fn trim(&mut self, device: &mut dyn Device) {
            let first = self.first.expect("something was handed out");
            match self.flaw {
                Flaw::FreesEarly => device.free(first.at),
                Flaw::CompletesEarly => self.native.free_completed(device, first.block),
                _ => {}
            }
        }

        fn usage(&self) -> Usage {
            self.native.usage()
        }

        fn peak(&self) -> Usage {
            self.native.peak()
        }

        fn blocks(&self) -> Vec<BlockView> {
            if self.flaw == Flaw::HidesBlocks { Vec::new() } else { self.native.blocks() }
        }
    }

    fn provoke(flaw: Flaw) -> Result<(), String> {
        let inner = Flawed { native: Native::new(), flaw, first: None, handle: None };
        quietly(|| {
            let mut checked = Checked::new(Box::new(inner), find("native").unwrap());
            let mut gpu = SimDevice::new(64 * MIB);
            let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
            let request = Request { size: MIB, stream, pool };
            let blocks = [(); 2].map(|()| checked.malloc(&mut gpu, request).unwrap().block);
            checked.free_requested(blocks[0], &[]);
            checked.trim(&mut gpu);
            checked.free_completed(&mut gpu, blocks[0]);
            checked.free(&mut gpu, blocks[1]);
        })
    }

    #[test]
    fn an_allocator_that_keeps_its_promises_passes() {
        provoke(Flaw::None).unwrap();
    }

    #[test]
    fn every_flaw_is_noticed() {
        for (flaw, what) in [
            (Flaw::TooSmall, "bytes for"),
            (Flaw::Misaligned, "alignment"),
            (Flaw::NotBacked, "is not backed"),
            (Flaw::SameTwice, "shares"),
            (Flaw::Alias, "reserved is not"),
            (Flaw::NoAccess, "no access"),
            (Flaw::Leak, "reserved is not"),
            (Flaw::FreesEarly, "from under"),
            (Flaw::CompletesEarly, "from under"),
            (Flaw::HidesBlocks, "walk does not show"),
        ] {
            let noticed = provoke(flaw).expect_err("passed");
            assert!(noticed.contains(what), "{flaw:?}: {noticed}");
        }
    }

    #[test]
    fn two_addresses_of_one_memory_are_in_use_once() {
        let mut checked = Checked::new(Box::new(Native::new()), find("native").unwrap());
        let mut gpu = SimDevice::new(64 * MIB);
        let mut watched = checked.record.watch(&mut gpu);
        let handle = watched.create(GRANULE).unwrap();
        let at = watched.reserve(2 * GRANULE).unwrap();
        watched.map(at, &[handle]).unwrap();
        watched.map(at.offset(GRANULE), &[handle]).unwrap();
        watched.set_access(at, 2 * GRANULE).unwrap();
        let id = |index| BlockId { index, generation: 0 };
        let half = |n: u64| at.offset(GRANULE * n + MIB);
        checked.take(Allocation { at, size: MIB, block: id(0) }, StreamId(0));
        checked.take(Allocation { at: half(1), size: MIB, block: id(1) }, StreamId(0));
        let again = Allocation { at: half(0), size: 512, block: id(2) };
        assert!(quietly(|| checked.take(again, StreamId(0))).is_err());
    }

    #[test]
    fn a_stale_free_is_a_fault_and_what_follows_is_refused() {
        let inner = Box::new(Native::new());
        let mut native = Checked::supervised(inner, find("native").unwrap());
        let mut gpu = SimDevice::new(64 * MIB);
        let request = Request { size: MIB, stream: StreamId(0), pool: PoolId::DEFAULT };
        let block = native.malloc(&mut gpu, request).unwrap().block;
        native.free(&mut gpu, block);
        assert_eq!(native.fault(), None);
        native.free(&mut gpu, block);
        assert!(native.fault().is_some_and(|fault| !fault.contains('\n')));
        assert!(matches!(native.malloc(&mut gpu, request), Err(AllocError::Device(_))));
    }
}
