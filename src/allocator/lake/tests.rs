//! The fast indexes beside obvious twins, and stories of streams and views.

use proptest::prelude::*;

use super::handle_size::SMALL;
use super::*;
use crate::device::{Counted, SimDevice};
use crate::trace::PoolId;
use crate::units::{GIB, KIB, MIB};

fn lake(options: LakeOptions) -> Lake {
    Lake::new(options, Bytes::MAX)
}

fn malloc(lake: &mut Lake, gpu: &mut dyn Device, size: Bytes, stream: u16) -> Allocation {
    let request = Request { size, stream: StreamId(stream), pool: PoolId::DEFAULT };
    lake.malloc(gpu, request).expect("there is room")
}

/// Where a run begins, its size, its owner, and whether it is a pair.
type PlainRun = (u64, Bytes, StreamId, bool);

/// The obvious twin: goes through all pieces in the order of their addresses.
fn plain_runs(pool: &Pool) -> Vec<PlainRun> {
    let mut handles: Vec<_> = pool.held().collect();
    handles.sort_by_key(|&handle| pool.handles[handle].at);
    let mut runs: Vec<(PlainRun, usize, u64)> = Vec::new();
    let mut current: Option<(PlainRun, usize, u64)> = None;
    let mut last_owner = None;
    for handle in handles {
        let entry = &pool.handles[handle];
        let mut piece = entry.first;
        while piece != NIL {
            let part = pool.pieces[piece];
            let whole = part.size == entry.size;
            let joins = piece == entry.first && last_owner == Some(entry.owner);
            match &mut current {
                Some((run, parts, end)) if part.is_free && joins && *end == part.at.0 => {
                    run.1 += part.size;
                    run.3 &= !whole;
                    *parts += 1;
                    *end += part.size;
                }
                _ => {
                    runs.extend(current.take());
                    let run = (part.at.0, part.size, entry.owner, !whole);
                    current = part.is_free.then_some((run, 1, part.at.0 + part.size));
                }
            }
            piece = part.next;
        }
        last_owner = Some(entry.owner);
    }
    runs.extend(current);
    let kept = runs.into_iter().filter(|&((.., is_partial), parts, _)| parts > 1 || !is_partial);
    kept.map(|(run, ..)| run).collect()
}

fn indexed_runs(pool: &Pool) -> Vec<PlainRun> {
    let all = pool.runs_by_size.iter().chain(pool.pairs.iter());
    let shown = |run: SlabIndex| {
        let run = pool.runs[run];
        (run.at, run.size, run.owner, run.is_pair)
    };
    let mut runs: Vec<_> = all.map(shown).collect();
    runs.sort_unstable();
    runs
}

fn plain_partials(pool: &Pool) -> Vec<(u64, Bytes)> {
    let mut partials = Vec::new();
    for handle in pool.held() {
        let mut piece = pool.handles[handle].first;
        while piece != NIL {
            let part = pool.pieces[piece];
            if part.is_free && part.size < pool.handles[handle].size {
                partials.push((part.at.0, part.size));
            }
            piece = part.next;
        }
    }
    partials.sort_unstable();
    partials
}

/// Whether it is a request, for how many bytes, on which stream, and otherwise which block is freed.
fn step() -> impl Strategy<Value = (bool, Bytes, u16, prop::sample::Index)> {
    let size = prop_oneof![1..3 * MIB, 1..40 * MIB, 16 * MIB..300 * MIB];
    (any::<bool>(), size, 0..3_u16, any::<prop::sample::Index>())
}

proptest! {
    #[test]
    fn runs_and_partial_pieces_are_those_that_the_obvious_twins_find(
        script in prop::collection::vec(step(), 1..120),
        handle in prop::sample::select(vec![2 * MIB, 6 * MIB, 32 * MIB, 128 * MIB]),
    ) {
        let mut gpu = SimDevice::new(64 * GIB);
        let mut lake = lake(LakeOptions { handle, ..LakeOptions::default() });
        let mut live = Vec::new();
        for (is_malloc, size, stream, pick) in script {
            if is_malloc || live.is_empty() {
                live.push(malloc(&mut lake, &mut gpu, size, stream).block);
            } else {
                let block = live.swap_remove(pick.index(live.len()));
                lake.free(&mut gpu, block);
            }
            prop_assert_eq!(indexed_runs(&lake.pool), plain_runs(&lake.pool));
            let indexed = lake.pool.partial.iter().map(|piece| lake.pool.pieces[piece]);
            let mut indexed: Vec<_> = indexed.map(|piece| (piece.at.0, piece.size)).collect();
            indexed.sort_unstable();
            prop_assert_eq!(indexed, plain_partials(&lake.pool));
        }
    }
}

#[test]
fn neighbours_in_the_arena_join_without_a_driver_call() {
    let mut gpu = Counted::new(SimDevice::new(GIB));
    let mut lake = lake(LakeOptions::default());
    let blocks = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
    blocks.iter().for_each(|block| lake.free(&mut gpu, block.block));
    let before = gpu.calls.total();
    let all = malloc(&mut lake, &mut gpu, 256 * MIB, 0);
    assert_eq!((all.at, gpu.calls.total()), (blocks[0].at, before));
}

/// Free memory in two places serves one request, and the view serves the next one like it for nothing.
#[test]
fn what_is_free_is_composed_and_the_view_is_used_again() {
    let mut gpu = Counted::new(SimDevice::new(GIB));
    let mut lake = lake(LakeOptions::default());
    let blocks = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
    let reserved = lake.usage().reserved;
    for block in [blocks[0], blocks[2]] {
        lake.free(&mut gpu, block.block);
    }
    let stitched = malloc(&mut lake, &mut gpu, 128 * MIB, 0);
    assert_eq!((lake.usage().reserved, lake.tally.composed), (reserved, 1));
    lake.free(&mut gpu, stitched.block);
    let before = gpu.calls.total();
    let again = malloc(&mut lake, &mut gpu, 128 * MIB, 0);
    assert_eq!((again.at, gpu.calls.total()), (stitched.at, before));
}

/// A stream takes over what another one freed with one fence and one wait, and needs none for the rest of it.
#[test]
fn another_streams_memory_costs_one_wait_and_no_growth() {
    let mut gpu = Counted::new(SimDevice::new(GIB).lagging(1_000_000));
    let mut lake = lake(LakeOptions::default());
    let blocks = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
    blocks.iter().for_each(|block| lake.free(&mut gpu, block.block));
    let (reserved, calls) = (lake.usage().reserved, gpu.calls.total());
    let taken = [0; 4].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 1));
    assert_eq!((lake.usage().reserved, gpu.calls.total()), (reserved, calls));
    assert_eq!((gpu.fences.event_record, gpu.fences.stream_wait), (1, 1));
    assert_eq!(lake.tally.host_waits, 0);
    taken.iter().for_each(|block| lake.free(&mut gpu, block.block));
    lake.trim(&mut gpu);
    assert!(gpu.device.is_pristine());
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
        assert!(lake.views.count <= 8 + 2, "{} views after round {round}", lake.views.count);
    }
    assert!(lake.tally.views_dropped > 0, "no view was ever dropped");
}

#[test]
fn nothing_is_stitched_before_the_headstart_is_used_up() {
    let stitched = |headstart| {
        let mut gpu = SimDevice::new(GIB);
        let mut lake = lake(LakeOptions { headstart, ..LakeOptions::default() });
        let blocks = [0; 3].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
        for end in [0, 2] {
            lake.free(&mut gpu, blocks[end].block);
        }
        malloc(&mut lake, &mut gpu, 128 * MIB, 0);
        (lake.tally.composed, lake.usage().reserved)
    };
    assert_eq!(stitched(0), (1, 192 * MIB));
    assert_eq!(stitched(256 * MIB), (0, 256 * MIB));
    assert_eq!(stitched(255 * MIB), (1, 192 * MIB), "what is missing would pass it");
}

#[test]
fn at_a_record_cheap_growth_saves_a_view() {
    // Three of the last blocks are free, and one at the beginning: growing by one block saves six mappings.
    let composed = |price, others_freed: &[usize]| {
        let mut gpu = SimDevice::new(141 * GIB);
        let grain = 8;
        let handle = 128 * MIB;
        let options = LakeOptions { price, handle, grain, rate: 0.0, ..LakeOptions::default() };
        let mut lake = lake(options);
        let blocks = [0; 100].map(|_| malloc(&mut lake, &mut gpu, 64 * MIB, 0));
        for &place in [0, 97, 98, 99].iter().chain(others_freed) {
            lake.free(&mut gpu, blocks[place].block);
        }
        malloc(&mut lake, &mut gpu, 256 * MIB, 0);
        (lake.tally.composed, lake.usage().reserved / MIB)
    };
    assert_eq!(composed(0.2, &[]), (0, 6464));
    assert_eq!(composed(0.08, &[]), (1, 6400), "64 MiB are more than six times 0.08 of 128 MiB");
    assert_eq!(composed(0.0, &[]), (1, 6400));
    assert_eq!(composed(0.2, &[10, 20]), (1, 6400), "live memory is below its record");
}

/// Stream 0 leaves two idle handles of 60 MiB, and stream 1 takes 33 MiB out of them three times.
#[test]
fn a_stream_goes_on_from_what_is_left_into_the_handle_beside_it() {
    let reserved = |beside| {
        let mut gpu = SimDevice::new(141 * GIB);
        let mut lake = lake(LakeOptions { beside, grain: 1, ..LakeOptions::default() });
        let idle = [0; 2].map(|_| malloc(&mut lake, &mut gpu, 60 * MIB, 0));
        malloc(&mut lake, &mut gpu, 60 * MIB, 0);
        for idle in idle {
            lake.free(&mut gpu, idle.block);
        }
        let tensors = [0; 3].map(|_| malloc(&mut lake, &mut gpu, 33 * MIB, 1));
        (tensors.map(|tensor| tensor.at), lake.usage().reserved / MIB)
    };
    let (at, used) = reserved(true);
    assert_eq!(used, 180);
    assert_eq!(at[1], at[0].offset(33 * MIB), "it lies across the border");
    assert_eq!(at[2], at[1].offset(33 * MIB));
    let (_, used) = reserved(false);
    assert!(used > 180, "two handles of 60 MiB hold no three tensors of 33");
}

#[test]
fn handles_are_larger_where_many_are_mapped_for_few_requests() {
    let handles = |rate, requests: usize| {
        let mut gpu = SimDevice::new(141 * GIB);
        let mut lake = lake(LakeOptions { rate, ..LakeOptions::default() });
        for _ in 0..requests {
            malloc(&mut lake, &mut gpu, GIB, 0);
        }
        lake.pool.count
    };
    assert_eq!(handles(0.01, 1), handles(0.0, 1), "nothing was mapped before the first request");
    assert!(handles(0.01, 64) * 2 < handles(0.0, 64));
    assert!(handles(1e-9, 64) * 4 >= handles(0.0, 64), "never more than four times as large");
}

#[test]
fn handles_are_in_proportion_to_the_device() {
    let handles = |memory| {
        let mut gpu = SimDevice::new(memory);
        let mut lake = lake(LakeOptions { handle: 128 * MIB, ..LakeOptions::default() });
        malloc(&mut lake, &mut gpu, 2 * GIB, 0);
        lake.pool.count
    };
    assert_eq!([141, 96, 80, 40, 24, 10].map(|gib| handles(gib * GIB)), [16, 16, 32, 64, 64, 256]);
    assert_eq!(handles(5 * GIB / 2), 512, "never smaller than when memory is short");
}

#[test]
fn handles_are_small_once_memory_is_short() {
    let share_held = |memory| {
        let mut gpu = SimDevice::new(memory);
        let mut lake = lake(LakeOptions { rate: 0.0, ..LakeOptions::default() });
        let mut held = 0;
        while lake.largest != SMALL {
            held = lake.usage().reserved;
            malloc(&mut lake, &mut gpu, memory / 100, 0);
        }
        100 * held / memory
    };
    assert_eq!([141, 80, 48, 47, 24].map(|gib| share_held(gib * GIB)), [48, 48, 48, 12, 12]);
}

/// A program of steps on stream 0, which lends a block to stream 1 and asks for as much again. In the first two steps
/// stream 1 is done by then, in the third it is not.
fn lend_and_ask_again(options: LakeOptions, users: &[StreamId]) -> (Lake, Counted<SimDevice>) {
    let mut gpu = Counted::new(SimDevice::new(GIB).lagging(1_000_000));
    let mut lake = lake(options);
    for step in 0..3 {
        for size in 0..20 {
            let other = malloc(&mut lake, &mut gpu, (2 + size) * MIB, 0);
            lake.free(&mut gpu, other.block);
        }
        let lent = malloc(&mut lake, &mut gpu, 64 * MIB, 0);
        lake.free_requested(lent.block, users);
        if step < 2 {
            lake.free_completed(&mut gpu, lent.block);
        }
        let next = malloc(&mut lake, &mut gpu, 64 * MIB, 0);
        let was_recalled = step == 2 && next.at == lent.at;
        let recalled = if was_recalled { vec![lent.block] } else { Vec::new() };
        assert_eq!(lake.take_recalled(), recalled);
        // When the GPU gets there, the allocator is told all the same.
        lake.free_completed(&mut gpu, lent.block);
        lake.free(&mut gpu, next.block);
    }
    assert_eq!((lake.usage().active, lake.pending, lake.tally.host_waits), (0, 0, 0));
    (lake, gpu)
}

#[test]
fn what_is_lent_is_recalled_if_a_request_is_to_go_there_again() {
    let (lake, gpu) = lend_and_ask_again(LakeOptions::default(), &[StreamId(0), StreamId(1)]);
    assert_eq!((lake.usage().reserved, lake.tally.recalled), (64 * MIB, 1));
    assert_eq!((gpu.fences.event_record, gpu.fences.stream_wait), (3, 1), "for stream 1");
}

#[test]
fn it_is_not_if_nobody_says_who_uses_it_or_nobody_may_wait() {
    let others = [StreamId(1)];
    let (recall, waits, repeat) = (false, false, false);
    for (options, users) in [
        (LakeOptions::default(), &[][..]),
        (LakeOptions::default(), &[StreamId(0)]),
        (LakeOptions { recall, ..LakeOptions::default() }, &others),
        (LakeOptions { waits, ..LakeOptions::default() }, &others),
        (LakeOptions { repeat, ..LakeOptions::default() }, &others),
    ] {
        let (lake, gpu) = lend_and_ask_again(options, users);
        assert_eq!((lake.usage().reserved, lake.tally.recalled), (128 * MIB, 0));
        assert_eq!((gpu.fences.event_record, gpu.fences.stream_wait), (0, 0));
    }
}

/// A wait is for the kernels that used what was lent, and not for what their stream has queued since.
#[test]
fn the_fence_behind_what_is_lent_is_made_at_once() {
    let mut gpu = Counted::new(SimDevice::new(GIB).lagging(100));
    let mut lake = lake(LakeOptions::default());
    for _ in 0..10 {
        let lent = malloc(&mut lake, &mut gpu, 64 * MIB, 0);
        lake.free_requested(lent.block, &[StreamId(1)]);
        let next = malloc(&mut lake, &mut gpu, 2 * MIB, 0);
        gpu.elapse(100, 0);
        lake.free_completed(&mut gpu, lent.block);
        lake.free(&mut gpu, next.block);
    }
    assert_eq!(gpu.fences.event_record, 10);
    lake.trim(&mut gpu);
    assert!(gpu.device.is_pristine(), "all fences were dropped");
}

/// Steps of one program on two streams. When the second stream is done with what is lent to it, only the dice know.
fn calls_of_steps(options: LakeOptions, steps: usize) -> Vec<u64> {
    let mut gpu = Counted::new(SimDevice::new(141 * GIB).lagging(100));
    let mut lake = lake(options);
    let mut dice = 3_u64;
    let users = [StreamId(0), StreamId(1)];
    let mut step = |lake: &mut Lake, gpu: &mut Counted<SimDevice>| {
        let before = gpu.calls.total();
        let (mut kept, mut lent) = (Vec::new(), Vec::new());
        for n in 0..60_u64 {
            let size = (3 + n * n % 41) * MIB;
            kept.push(malloc(lake, gpu, size, (n % 7 == 0).into()).block);
            if n % 3 == 2 {
                let block = kept.remove((n as usize * 5) % kept.len());
                lake.free_requested(block, &users);
                lent.push(block);
            }
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if !lent.is_empty() && dice >> 62 == 0 {
                lake.free_completed(gpu, lent.remove(0));
            }
            gpu.elapse(1, 0);
        }
        lent.into_iter().for_each(|block| lake.free_completed(gpu, block));
        kept.into_iter().for_each(|block| lake.free(gpu, block));
        gpu.calls.total() - before
    };
    (0..steps).map(|_| step(&mut lake, &mut gpu)).collect()
}

#[test]
fn a_program_that_repeats_itself_comes_to_rest_whenever_the_gpu_is_done() {
    let at_rest = |options| {
        let calls = calls_of_steps(options, 24);
        calls.iter().rev().take_while(|&&calls| calls == 0).count()
    };
    let still = at_rest(LakeOptions::default());
    assert!(still >= 12, "only the last {still} of 24 steps made no call");
    let still = at_rest(LakeOptions { repeat: false, ..LakeOptions::default() });
    assert!(still < 12, "so did {still} steps without repeating: the test shows nothing");
}
