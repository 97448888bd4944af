//! One suite over every allocator in the list: the contract of the port, in plain cases.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{ROOMY, Tape, build, checked, defaults, run, run_checked};
use gmlake::allocator::{ALL, AllocError, Allocator, BlockId, Request, Spec, Usage};
use gmlake::device::{AddressPolicy, SimDevice};
use gmlake::trace::synthetic::Program;
use gmlake::trace::{PoolId, StreamId};
use gmlake::units::{Bytes, GIB, KIB, MIB};

const SIZES: [Bytes; 14] = [
    1,
    511,
    512,
    513,
    100 * KIB,
    MIB - 1,
    MIB,
    MIB + 1,
    2 * MIB,
    10 * MIB - 1,
    10 * MIB,
    20 * MIB,
    20 * MIB + 1,
    777 * MIB + 7,
];

fn request(size: Bytes) -> Request {
    Request { size, stream: StreamId(0), pool: PoolId::DEFAULT }
}

#[test]
fn allocations_are_distinct_aligned_and_large_enough() {
    for spec in ALL {
        let (mut allocator, mut gpu) = (build(spec, &defaults(ROOMY)), SimDevice::new(ROOMY));
        let mut given: Vec<_> = SIZES
            .iter()
            .cycle()
            .take(3 * SIZES.len())
            .map(|&size| (size, allocator.malloc(&mut gpu, request(size)).unwrap()))
            .collect();
        for &(size, allocation) in &given {
            assert!(allocation.size >= size, "{}: {allocation:?} for {size}", spec.name);
            let is_aligned = allocation.at.0.is_multiple_of(spec.alignment);
            assert!(is_aligned, "{}: {allocation:?}", spec.name);
        }
        given.sort_by_key(|&(_, allocation)| allocation.at);
        let apart = given.is_sorted_by(|(_, a), (_, b)| a.at.offset(a.size) <= b.at);
        assert!(apart, "{}: {given:?}", spec.name);
    }
}

#[test]
fn programs_keep_every_promise_and_leave_nothing_behind() {
    for spec in ALL {
        for program in Program::ALL {
            let allocator = checked(spec, &defaults(ROOMY)).audit_every(16);
            let outcome = run_checked(allocator, &program.generate(11, 6000), ROOMY);
            assert_eq!(outcome.ooms, [], "{}: {program:?}", spec.name);
        }
    }
}

#[test]
fn programs_keep_every_promise_when_memory_is_short() {
    for spec in ALL {
        for program in Program::ALL {
            let mut roomy = SimDevice::new(ROOMY);
            let trace = program.generate(12, 4000);
            let mut allocator = build(spec, &defaults(ROOMY));
            run(&trace, &mut *allocator, &mut roomy, &mut ());
            for share in [50, 80, 95, 100] {
                let capacity = allocator.peak().active / 100 * share;
                let supervised = checked(spec, &defaults(capacity)).audit_every(16);
                run_checked(supervised, &trace, capacity);
            }
        }
    }
}

#[test]
fn the_same_run_twice_gives_the_same_bytes() {
    for spec in ALL {
        for program in Program::ALL {
            let trace = program.generate(13, 5000);
            let tape = || {
                let mut tape = Tape::default();
                let mut gpu = SimDevice::new(2 * GIB);
                let mut allocator = build(spec, &defaults(2 * GIB));
                run(&trace, &mut *allocator, &mut gpu, &mut tape);
                (tape, allocator.peak(), allocator.retries(), allocator.counters())
            };
            assert_eq!(tape(), tape(), "{}: {program:?}", spec.name);
        }
    }
}

#[test]
fn addresses_may_come_in_any_order() {
    for policy in [AddressPolicy::Descending, AddressPolicy::Driver] {
        for (spec, program) in ALL.iter().flat_map(|spec| Program::ALL.map(|of| (spec, of))) {
            let mut gpu = SimDevice::with_policy(ROOMY, policy.clone());
            let mut allocator = checked(spec, &defaults(ROOMY)).audit_every(16);
            let trace = program.generate(14, 4000);
            let (outcome, errors) = run(&trace, &mut allocator, &mut gpu, &mut ());
            assert!(outcome.ooms.is_empty() && errors.is_empty(), "{}", spec.name);
            crate::common::assert_empty(&allocator, &gpu);
        }
    }
}

/// An allocator with one live block.
fn with_block(spec: &Spec) -> (Box<dyn Allocator>, SimDevice, BlockId) {
    let (mut allocator, mut gpu) = (build(spec, &defaults(ROOMY)), SimDevice::new(ROOMY));
    let block = allocator.malloc(&mut gpu, request(5 * MIB)).expect("there is room").block;
    (allocator, gpu, block)
}

#[test]
fn a_second_free_panics_whatever_came_between() {
    type Free = fn(&mut dyn Allocator, &mut SimDevice, BlockId);
    let free: Free = |allocator, gpu, block| allocator.free(gpu, block);
    let requested: Free = |allocator, _, block| allocator.free_requested(block, &[]);
    let completed: Free = |allocator, gpu, block| {
        allocator.free_requested(block, &[]);
        allocator.free_completed(gpu, block);
    };
    let reused: Free = |allocator, gpu, block| {
        allocator.free(gpu, block);
        allocator.malloc(gpu, request(5 * MIB)).expect("there is room");
    };
    for spec in ALL {
        for (first, then) in [free, requested, completed, reused]
            .into_iter()
            .flat_map(|first| [(first, free), (first, requested)])
        {
            let (mut allocator, mut gpu, block) = with_block(spec);
            first(&mut *allocator, &mut gpu, block);
            let second = AssertUnwindSafe(|| then(&mut *allocator, &mut gpu, block));
            assert!(catch_unwind(second).is_err(), "{}: a second free passed", spec.name);
        }
    }
}

#[test]
fn completing_a_free_that_is_over_does_nothing() {
    for spec in ALL {
        let (mut allocator, mut gpu, block) = with_block(spec);
        allocator.free(&mut gpu, block);
        let again = allocator.malloc(&mut gpu, request(5 * MIB)).expect("there is room");
        let before = allocator.usage();
        allocator.free_completed(&mut gpu, block);
        assert_eq!(allocator.usage(), before, "{}", spec.name);
        allocator.free(&mut gpu, again.block);
    }
}

#[test]
fn out_of_memory_is_an_error_that_changes_nothing_for_the_living() {
    let capacity = 256 * MIB;
    for spec in ALL {
        let (mut allocator, mut gpu) =
            (checked(spec, &defaults(capacity)), SimDevice::new(capacity));
        let block = allocator.malloc(&mut gpu, request(24 * MIB)).unwrap().block;
        let before = allocator.usage();
        for size in [GIB, 250 * MIB, 1 << 46] {
            let refused = allocator.malloc(&mut gpu, request(size));
            let is_oom = matches!(refused, Err(AllocError::OutOfMemory { .. }));
            assert!(is_oom, "{}: {size} of {capacity}: {refused:?}", spec.name);
            let after = allocator.usage();
            assert_eq!((after.requested, after.active), (before.requested, before.active));
        }
        let served = allocator.malloc(&mut gpu, request(64 * MIB)).unwrap().block;
        allocator.free(&mut gpu, block);
        allocator.free(&mut gpu, served);
        allocator.trim(&mut gpu);
        assert_eq!(allocator.usage(), Usage::default(), "{}", spec.name);
        assert!(gpu.is_pristine(), "{}", spec.name);
    }
}

#[test]
fn what_only_waits_for_a_stream_is_waited_for_before_a_request_fails() {
    let capacity = 256 * MIB;
    for spec in ALL {
        let (mut allocator, mut gpu) =
            (checked(spec, &defaults(capacity)), SimDevice::new(capacity));
        let pending = allocator.malloc(&mut gpu, request(200 * MIB)).unwrap().block;
        allocator.free_requested(pending, &[]);
        let usage = allocator.usage();
        assert!(usage.allocated == 0 && usage.active >= 200 * MIB, "{}: {usage:?}", spec.name);
        let block = allocator.malloc(&mut gpu, request(200 * MIB)).unwrap().block;
        allocator.free_completed(&mut gpu, pending);
        allocator.free(&mut gpu, block);
        allocator.trim(&mut gpu);
        assert!(gpu.is_pristine(), "{}", spec.name);
    }
}

#[test]
fn names_are_distinct_and_documented() {
    for (index, spec) in ALL.iter().enumerate() {
        assert!(ALL[..index].iter().all(|other| other.name != spec.name), "{}", spec.name);
        assert!(!spec.summary.is_empty(), "{}", spec.name);
        for option in spec.options {
            let is_documented = !option.help.is_empty() && !option.default.is_empty();
            assert!(is_documented, "{}.{}", spec.name, option.name);
        }
    }
}
