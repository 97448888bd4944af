//! The arena next to its obvious twin, and stories of stitching, growth and streams.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::arena::Span;
use super::views::View;
use super::*;
use crate::allocator::Allocation;
use crate::device::{Counted, SimDevice, Watched};
use gmlake_core::program::PoolId;
use gmlake_core::units::{GIB, MIB};

fn lake(options: LakeOptions) -> Lake {
    Lake::new(options, Bytes::MAX)
}

fn malloc(lake: &mut Lake, gpu: &mut dyn Device, size: Bytes, stream: u16) -> Allocation {
    let request = Request { size, stream: StreamId(stream), pool: PoolId::DEFAULT };
    lake.malloc(gpu, request).expect("there is room")
}

/// The obvious twin: what tensors use is cut out of each handle, and what is left side by side is joined.
fn plain_free(lake: &Lake) -> Vec<Span> {
    let mut used: Vec<_> = Vec::new();
    let large = lake.live.iter().filter_map(|(_, live)| match live.place {
        Place::Large(room) => Some(room),
        Place::Small(_) => None,
    });
    for room in large.chain(lake.slabs.values().copied()) {
        let mut block = room.block;
        while block != NIL {
            used.push(lake.arena.blocks[block].span.clone());
            block = lake.arena.blocks[block].link;
        }
    }
    used.sort_by_key(|span| span.start);
    let mut handles: Vec<_> = lake.arena.held();
    handles.sort_by_key(|&handle| lake.arena.handles[handle].span.start);
    let mut free: Vec<Span> = Vec::new();
    for handle in handles {
        let entry = &lake.arena.handles[handle];
        let mut at = entry.span.start;
        let inside = used.iter().filter(|u| u.start < entry.span.end && u.end > entry.span.start);
        let ends = inside.map(|u| (u.start, u.end)).chain([(entry.span.end, entry.span.end)]);
        for (start, end) in ends {
            if at < start {
                match free.last_mut() {
                    Some(last) if last.end == at => last.end = start,
                    _ => free.push(at..start),
                }
            }
            at = at.max(end);
        }
    }
    free
}

fn listed_free(lake: &Lake) -> Vec<Span> {
    let mut free: Vec<Span> = lake.arena.largest_first().cloned().collect();
    free.sort_by_key(|span| span.start);
    free
}

/// No free part of a view is longer than the bound that a search left there.
fn check_bounds(lake: &Lake, free: &[Span]) {
    for (view, View { slots, .. }) in lake.views.all.iter().filter(|(_, view)| !view.is_broken) {
        let Some(bound) = lake.views.bound(view) else { continue };
        let (mut run, mut longest) = (0, 0);
        for slot in slots {
            let Span { start, end } = lake.arena.handles[slot.handle].span;
            let inside = free.iter().map(|part| part.start.max(start)..part.end.min(end));
            let mut at = start;
            // A part that begins behind a tensor counts with what follows it; by itself it is the arena's to find.
            let at_ends =
                |part: &Span| part.start < part.end && (part.start == start || part.end == end);
            for part in inside.filter(at_ends) {
                run = if part.start == at { run } else { 0 } + part.end - part.start;
                longest = if part.start == start { longest.max(run) } else { longest };
                at = part.end;
            }
            run = if at == end { run } else { 0 };
        }
        assert!(longest <= bound, "{longest} bytes are free above {bound}");
    }
}

/// Every address finds the handle and the block that it lies in.
fn check_pages(lake: &Lake) {
    let mut mapped: BTreeMap<u64, SlabIndex> = BTreeMap::new();
    for handle in lake.arena.held() {
        mapped.insert(lake.arena.handles[handle].span.start, handle);
    }
    for (_, handle) in mapped {
        let span = lake.arena.handles[handle].span.clone();
        let mut at = span.start;
        while at < span.end {
            assert_eq!(lake.arena.handle_at(at), handle);
            let block = &lake.arena.blocks[lake.arena.block_at(at)].span;
            assert!(block.start <= at && at < block.end, "{at:#x} is not in {block:?}");
            at = block.end.min(at / GRANULE * GRANULE + GRANULE);
        }
    }
}

/// Whether it is a request, for how many bytes, on which stream, and otherwise which block is freed.
fn step() -> impl Strategy<Value = (u8, Bytes, u16, prop::sample::Index)> {
    let size = prop_oneof![1..3 * MIB, 1..40 * MIB, 16 * MIB..300 * MIB];
    (0..20_u8, size, 0..3_u16, any::<prop::sample::Index>())
}

proptest! {
    #[test]
    fn free_blocks_are_those_that_the_obvious_twin_finds(
        script in prop::collection::vec(step(), 1..120),
        handle in prop::sample::select(vec![2 * MIB, 6 * MIB, 32 * MIB]),
    ) {
        let mut gpu = SimDevice::new(64 * GIB);
        let mut lake = lake(LakeOptions { handle, ..LakeOptions::default() });
        let mut live = Vec::new();
        for (action, size, stream, pick) in script {
            match action {
                0 => lake.trim(&mut gpu),
                1..12 => live.push(malloc(&mut lake, &mut gpu, size, stream).block),
                _ if live.is_empty() => {}
                _ => {
                    let block = live.swap_remove(pick.index(live.len()));
                    lake.free(&mut gpu, block);
                }
            }
            let free = plain_free(&lake);
            check_bounds(&lake, &free);
            prop_assert_eq!(listed_free(&lake), free);
            check_pages(&lake);
        }
    }
}

#[test]
fn neighbours_in_the_arena_join_without_a_driver_call() {
    let mut gpu = Watched::new(SimDevice::new(64 * GIB), Counted::default());
    let mut lake = lake(LakeOptions::default());
    let blocks = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
    blocks.iter().for_each(|block| lake.free(&mut gpu, block.block));
    let before = gpu.watch.calls.total();
    let all = malloc(&mut lake, &mut gpu, 256 * MIB, 0);
    assert_eq!((all.at, gpu.watch.calls.total()), (blocks[0].at, before));
}

/// Free memory in two places serves one request, and the view serves the next one like it for nothing.
#[test]
fn what_is_free_is_stitched_and_the_view_is_used_again() {
    let mut gpu = Watched::new(SimDevice::new(64 * GIB), Counted::default());
    let mut lake = lake(LakeOptions::default());
    let blocks = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
    let reserved = lake.usage().reserved;
    for block in [blocks[0], blocks[2]] {
        lake.free(&mut gpu, block.block);
    }
    let stitched = malloc(&mut lake, &mut gpu, 128 * MIB, 0);
    assert_eq!((lake.usage().reserved, lake.views.made), (reserved, 1));
    lake.free(&mut gpu, stitched.block);
    let before = gpu.watch.calls.total();
    let again = malloc(&mut lake, &mut gpu, 128 * MIB, 0);
    assert_eq!((again.at, gpu.watch.calls.total()), (stitched.at, before));
}

/// The free end of one handle, whole ones, and the free beginning of another one make room for one request.
#[test]
fn both_ends_of_a_view_may_be_parts_of_handles() {
    let mut gpu = SimDevice::new(64 * GIB);
    let mut lake = lake(LakeOptions::default());
    let blocks = [4, 4, 8, 8, 8, 4, 4].map(|size| malloc(&mut lake, &mut gpu, size * MIB, 0));
    let reserved = lake.usage().reserved;
    for place in [1, 3, 5] {
        lake.free(&mut gpu, blocks[place].block);
    }
    malloc(&mut lake, &mut gpu, 16 * MIB, 0);
    assert_eq!((lake.usage().reserved, lake.views.handles_stitched), (reserved, 3));
}

/// A stream takes over what another one freed with one fence and one wait, and needs none for the rest of it.
#[test]
fn another_streams_memory_costs_one_wait_and_no_growth() {
    let mut gpu = Watched::new(SimDevice::new(64 * GIB).lagging(1_000_000), Counted::default());
    let mut lake = lake(LakeOptions::default());
    let blocks = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
    blocks.iter().for_each(|block| lake.free(&mut gpu, block.block));
    let (reserved, calls) = (lake.usage().reserved, gpu.watch.calls.total());
    let taken = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 1));
    assert_eq!((lake.usage().reserved, gpu.watch.calls.total()), (reserved, calls));
    assert_eq!((gpu.watch.fences.event_record, gpu.watch.fences.stream_wait), (1, 1));
    assert_eq!(lake.tally.host_waits, 0);
    taken.iter().for_each(|block| lake.free(&mut gpu, block.block));
    lake.trim(&mut gpu);
    assert!(gpu.device.is_pristine());
}

/// What was never live is no reason to hold more.
#[test]
fn a_refused_request_leaves_the_budget_alone() {
    let mut gpu = SimDevice::new(GIB);
    let mut lake = lake(LakeOptions::default());
    let blocks = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
    let request = Request { size: 2 * GIB, stream: StreamId(0), pool: PoolId::DEFAULT };
    assert!(lake.malloc(&mut gpu, request).is_err());
    lake.free(&mut gpu, blocks[0].block);
    lake.free(&mut gpu, blocks[2].block);
    malloc(&mut lake, &mut gpu, 128 * MIB, 0);
    assert_eq!((lake.usage().reserved, lake.views.made), (256 * MIB, 1));
}

#[test]
fn views_are_bounded() {
    let mut gpu = SimDevice::new(64 * GIB);
    let mut lake = lake(LakeOptions { views: 8, ..LakeOptions::default() });
    for round in 0..100_u64 {
        let sizes = [48, 80 + round % 7, 112, 64 + round % 11, 96];
        let blocks = sizes.map(|size| malloc(&mut lake, &mut gpu, size * MIB, 0).block);
        lake.free(&mut gpu, blocks[0]);
        lake.free(&mut gpu, blocks[2]);
        lake.free(&mut gpu, blocks[4]);
        let large = malloc(&mut lake, &mut gpu, (200 + round) * MIB + 3 * KIB, 0).block;
        for block in [blocks[1], blocks[3], large] {
            lake.free(&mut gpu, block);
        }
        let count = lake.views.all.iter().count();
        assert_eq!(count, lake.views.count);
        assert!(count <= 8 + 2, "{count} views after round {round}");
    }
    assert!(lake.views.dropped > 0, "no view was ever dropped");
}

#[test]
fn handles_are_sized_by_the_request_and_by_what_the_device_has_left() {
    let handles = |memory, size| {
        let mut gpu = SimDevice::new(memory);
        let mut lake = lake(LakeOptions::default());
        malloc(&mut lake, &mut gpu, size, 0);
        size / lake.arena.count / MIB
    };
    let sizes = [8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 4 * GIB];
    assert_eq!(sizes.map(|size| handles(141 * GIB, size)), [8, 8, 16, 32, 32]);
    let devices = [80, 32, 16, 8, 4].map(|gib| gib * GIB);
    assert_eq!(devices.map(|memory| handles(memory, 512 * MIB)), [19, 8, 4, 2, 2]);
}

/// Steps of one program on two streams.
fn calls_of_steps(options: LakeOptions, steps: usize) -> Vec<u64> {
    let mut gpu = Watched::new(SimDevice::new(141 * GIB).lagging(100), Counted::default());
    let mut lake = lake(options);
    let step = |lake: &mut Lake, gpu: &mut Watched<SimDevice, Counted>| {
        let before = gpu.watch.calls.total();
        let mut kept = Vec::new();
        for n in 0..60_u64 {
            let size = (3 + n * n % 41) * MIB;
            kept.push(malloc(lake, gpu, size, (n % 7 == 0).into()).block);
            if n % 3 == 2 {
                let block = kept.remove((n as usize * 5) % kept.len());
                lake.free(gpu, block);
            }
            gpu.elapse(1, 0);
        }
        kept.into_iter().for_each(|block| lake.free(gpu, block));
        gpu.watch.calls.total() - before
    };
    (0..steps).map(|_| step(&mut lake, &mut gpu)).collect()
}

#[test]
fn a_program_that_repeats_itself_settles() {
    let calls = calls_of_steps(LakeOptions::default(), 12);
    assert!(calls[0] > 0 && calls[4..].iter().all(|&calls| calls == 0), "{calls:?}");
}
