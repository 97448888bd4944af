//! The promises of the pool, checked from scratch and chunk by chunk after every step of random scripts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::pblock::BlockState;
use super::sblock::SBlock;
use super::size_order::SizeKey;
use super::watch::Watch;
use super::{Extent, Front, Place, Stitcher, VmPool, Wanted};
use crate::allocator::{
    AllocError, Allocator, BlockId, BlockUse, Gmlake, GmlakeOptions, Released, ReleasedOptions,
    Request, SlabIndex,
};
use crate::device::{
    Device, DeviceError, DevicePtr, Faulty, GRANULE, HandleId, Result, SimDevice, forward,
};
use gmlake_core::program::{PoolId, StreamId};
use gmlake_core::units::{Bytes, MIB};

/// A device that remembers which chunk is mapped where.
struct Mirror<D> {
    device: D,
    mapped: BTreeMap<DevicePtr, HandleId>,
}

impl<D: Device> Device for Mirror<D> {
    forward!(memory_info, malloc, free, reserve, unreserve, create, release, set_access, streams);

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<()> {
        self.device.map(at, handles)?;
        let places = handles.iter().zip(0..).map(|(&id, number)| (at.offset(number * GRANULE), id));
        self.mapped.extend(places);
        Ok(())
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) {
        self.device.unmap(at, size);
        self.mapped.retain(|&place, _| place < at || place >= at.offset(size));
    }
}

/// Every chunk of an extent, as (segment, chunk).
fn chunks(extents: &[Extent]) -> Vec<(SlabIndex, u32)> {
    let chunks = |extent: &Extent| {
        let segment = extent.segment;
        (extent.start..extent.end()).map(move |chunk| (segment, chunk))
    };
    extents.iter().flat_map(chunks).collect()
}

/// The chunks that live tensors use. No chunk is used twice, or in a block that is not marked as in use.
fn used_chunks(front: &Front, live: &[BlockId]) -> BTreeMap<(SlabIndex, u32), BlockState> {
    let mut used = BTreeMap::new();
    for &block in live {
        let (extents, state, len) = match front.place(block) {
            Place::Small(_) => continue,
            Place::Primitive(index) => {
                let block = front.pool.block(index);
                (vec![block.extent()], BlockState::Used, block.len)
            }
            Place::Stitched(index) => {
                let sblock = front.pool.sblock(index);
                (sblock.extents.clone(), BlockState::Held, sblock.used)
            }
        };
        for chunk in chunks(&extents).into_iter().take(len as usize) {
            assert_eq!(used.insert(chunk, state), None, "{chunk:?} is used by two tensors");
        }
    }
    used
}

/// pBlocks divide their segments without a gap, and are in use exactly where a tensor is.
fn check_blocks(pool: &VmPool, used: &BTreeMap<(SlabIndex, u32), BlockState>) {
    let mut seen = 0;
    let mut next = (u32::MAX, 0);
    for index in pool.blocks() {
        let block = pool.block(index);
        if next.0 != block.segment {
            next = (block.segment, 0);
        }
        assert_eq!((block.segment, block.start), next);
        next.1 = block.extent().end();
        for chunk in chunks(&[block.extent()]) {
            let state = used.get(&chunk).copied();
            seen += usize::from(state.is_some());
            match block.state {
                BlockState::Used | BlockState::Held => assert_eq!(state, Some(block.state)),
                BlockState::Free | BlockState::Gone => assert_eq!(state, None),
            }
        }
        let is_found = pool.free_blocks().any(|found| found == index);
        assert_eq!(is_found, block.state == BlockState::Free);
    }
    assert_eq!(seen, used.len(), "every used chunk lies in a pBlock");
}

/// An sBlock is usable exactly when all of its chunks are free, and maps exactly the chunks that it claims.
fn check_sblocks<D>(
    pool: &VmPool,
    used: &BTreeMap<(SlabIndex, u32), BlockState>,
    mirror: &Mirror<D>,
) {
    for (index, sblock) in pool.sblocks() {
        let all = chunks(&sblock.extents);
        assert_eq!(all.len(), sblock.len as usize);
        let is_free = all.iter().all(|chunk| !used.contains_key(chunk));
        assert_eq!(pool.is_usable(index), is_free && sblock.used == 0);
        let handles = sblock.extents.iter().flat_map(|&extent| pool.handles(extent));
        for (number, handle) in handles.enumerate() {
            let at = sblock.at.offset(number as Bytes * GRANULE);
            assert_eq!(mirror.mapped.get(&at), Some(&handle), "{at} of sBlock {index}");
        }
    }
}

/// A search for sBlocks finds the one that a look at all of them does. It is made in a copy of the pool: searching
/// moves sBlocks from one list to another.
fn check_searches(pool: &VmPool) {
    let mut searched = pool.clone();
    for (_, &SBlock { stream, len, .. }) in pool.sblocks() {
        for (least, most) in [(len, len), (len, 2 * len), (len + 1, u32::MAX)] {
            let fits = |(_, other): &(SlabIndex, &SBlock)| {
                let is_wanted = other.stream == stream && (least..=most).contains(&other.len);
                is_wanted && other.used == 0 && is_unused(pool, other)
            };
            let order = |(_, other): &(SlabIndex, &SBlock)| (other.len, other.at);
            let best = pool.sblocks().filter(fits).min_by_key(order).map(|(index, _)| index);
            let wanted = Wanted { stream, chunks: least };
            assert_eq!(searched.usable_fit(wanted, most), best, "{least} to {most} chunks");
        }
        check_watches(&searched);
    }
}

fn is_unused(pool: &VmPool, sblock: &SBlock) -> bool {
    sblock.extents.iter().all(|&extent| pool.busy_chunks(extent) == 0)
}

/// Each sBlock is watched at one place, and that is a good one.
fn check_watches(pool: &VmPool) {
    let listed: Vec<_> = pool.usable.iter().map(SizeKey::index).collect();
    for (index, sblock) in pool.sblocks() {
        assert_eq!(listed.contains(&index), sblock.watch == Watch::Listed);
        match sblock.watch {
            Watch::Off => assert!(sblock.used > 0, "sBlock {index} waits for nothing"),
            Watch::Listed => {}
            Watch::Parked { segment, chunk, .. } => {
                assert_eq!(sblock.used, 0);
                let under = Extent { segment, start: chunk, len: 1 };
                assert_eq!(pool.busy_chunks(under), 1, "sBlock {index} waits for a free chunk");
                assert!(sblock.extents.iter().any(|own| own.meets(under)));
                assert!(pool.parked(segment, chunk).contains(&index), "{index} is not woken");
            }
        }
    }
}

/// Everything that must hold between two requests.
fn check<D>(front: &Front, live: &[BlockId], mirror: &Mirror<D>) {
    let used = used_chunks(front, live);
    check_blocks(&front.pool, &used);
    check_sblocks(&front.pool, &used, mirror);
    check_watches(&front.pool);
    check_searches(&front.pool);
    let shown = front.blocks().into_iter().filter(|view| view.state != BlockUse::Alias);
    assert_eq!(
        shown.map(|view| view.size).sum::<Bytes>(),
        front.live.ledger.now().reserved,
        "each byte held is shown once"
    );
}

#[derive(Debug, Clone)]
enum Step {
    Malloc { half_mib: u64, stream: u16 },
    Free { pick: prop::sample::Index },
    FreeLater { pick: prop::sample::Index },
    Complete,
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    let pick = any::<prop::sample::Index>();
    prop_oneof![
        10 => (1..80u64, 0..2u16).prop_map(|(half_mib, stream)| Step::Malloc { half_mib, stream }),
        8 => pick.clone().prop_map(|pick| Step::Free { pick }),
        1 => pick.prop_map(|pick| Step::FreeLater { pick }),
        1 => Just(Step::Complete),
        1 => Just(Step::Trim),
    ]
}

/// Plays a script, checks everything after each step, and gives everything back in the end.
fn play<D: Device>(allocator: &mut impl Stitcher, device: D, script: &[Step]) -> D {
    let mut mirror = Mirror { device, mapped: BTreeMap::new() };
    let (mut live, mut pending) = (Vec::new(), Vec::new());
    for step in script {
        match *step {
            Step::Malloc { half_mib, stream } => {
                let size = half_mib * MIB / 2;
                let (stream, pool) = (StreamId(stream), PoolId::DEFAULT);
                match allocator.malloc(&mut mirror, Request { size, stream, pool }) {
                    Ok(given) => live.push(given.block),
                    Err(AllocError::OutOfMemory { requested, .. }) => assert_eq!(requested, size),
                    Err(AllocError::Device(DeviceError::Driver { reason, .. })) => {
                        assert_eq!(reason, "injected fault");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Free { pick } if !live.is_empty() => {
                let block = live.swap_remove(pick.index(live.len()));
                allocator.free(&mut mirror, block);
            }
            Step::FreeLater { pick } if !live.is_empty() => {
                let block = live.swap_remove(pick.index(live.len()));
                allocator.free_requested(block, &[]);
                pending.push(block);
            }
            Step::Complete => {
                pending.drain(..).for_each(|block| allocator.free_completed(&mut mirror, block));
            }
            Step::Trim => allocator.trim(&mut mirror),
            Step::Free { .. } | Step::FreeLater { .. } => {}
        }
        pending.retain(|&block| allocator.front().is_live(block));
        check(allocator.front(), &[live.as_slice(), pending.as_slice()].concat(), &mirror);
    }
    live.into_iter().for_each(|block| allocator.free(&mut mirror, block));
    pending.into_iter().for_each(|block| allocator.free_completed(&mut mirror, block));
    allocator.trim(&mut mirror);
    assert!(mirror.mapped.is_empty());
    mirror.device
}

fn paper(fragment: u64, stitched: u64, split_stitch: bool) -> Gmlake {
    let options = GmlakeOptions {
        fragment_limit: fragment * MIB,
        stitched_limit: stitched * MIB,
        split_stitch,
        ..GmlakeOptions::default()
    };
    Gmlake::new(options, Bytes::MAX)
}

fn released(frag: u64, auto_gc: u64, re_alloc: bool, is_on: bool) -> Released {
    let (frag_limit, auto_gc) = (frag * MIB, auto_gc * MIB);
    let options =
        ReleasedOptions { frag_limit, auto_gc, re_alloc, is_on, ..ReleasedOptions::default() };
    Released::new(options, Bytes::MAX)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_papers_allocator_keeps_every_promise(
        script in prop::collection::vec(step(), 1..80),
        fragment in prop::sample::select(vec![2u64, 10, 30]),
        stitched in prop::sample::select(vec![0u64, 60, 10_000]),
        memory in 60..400u64,
        split_stitch in any::<bool>(),
    ) {
        let mut allocator = paper(fragment, stitched, split_stitch);
        let device = play(&mut allocator, SimDevice::new(memory * MIB), &script);
        prop_assert!(device.is_pristine());
    }

    #[test]
    fn the_released_allocator_keeps_every_promise(
        script in prop::collection::vec(step(), 1..80),
        frag in prop::sample::select(vec![2u64, 20]),
        auto_gc in prop::sample::select(vec![60u64, 10_000]),
        memory in 60..400u64,
        (re_alloc, is_on) in (any::<bool>(), prop::bool::weighted(0.8)),
    ) {
        let mut allocator = released(frag, auto_gc, re_alloc, is_on);
        let device = play(&mut allocator, SimDevice::new(memory * MIB), &script);
        prop_assert!(device.is_pristine());
    }

    #[test]
    fn no_failing_call_leaks_or_corrupts(
        script in prop::collection::vec(step(), 1..60),
        nth in 0..200u64,
        (is_oom, re_alloc) in (any::<bool>(), any::<bool>()),
    ) {
        let faulty = || Faulty::new(SimDevice::new(300 * MIB), nth, is_oom);
        let device = play(&mut paper(2, 100, true), faulty(), &script);
        prop_assert!(device.device.is_pristine());
        let device = play(&mut released(2, 100, re_alloc, true), faulty(), &script);
        prop_assert!(device.device.is_pristine());
    }
}
