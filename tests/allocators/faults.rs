//! Every driver call that can fail, made to fail once: the error surfaces, and nothing is lost or shared afterwards.

use crate::common::{ROOMY, assert_empty, checked, defaults, run};
use gmlake::allocator::{ALL, Spec};
use gmlake::device::{Counted, DeviceError, Faulty, SimDevice, Watched};
use gmlake::trace::Trace;
use gmlake::trace::synthetic::Program;
use gmlake::units::Bytes;

/// A run in which call number `nth` fails; `false` if there was no such call.
fn fails_nth(spec: &Spec, trace: &Trace, capacity: Bytes, (nth, as_oom): (u64, bool)) -> bool {
    let mut gpu = Faulty::new(SimDevice::new(capacity), nth, as_oom);
    let mut allocator = checked(spec, &defaults(capacity)).audit_every(32);
    let (outcome, errors) = run(trace, &mut allocator, &mut gpu, &mut ());
    let name = spec.name;
    if !as_oom && gpu.has_failed() {
        let injected = |error: &DeviceError| error.to_string().ends_with("injected fault");
        let surfaced = errors.len() == 1 && errors.iter().all(injected);
        assert!(surfaced, "{name}: driver error at call {nth} came out as {errors:?}");
    } else {
        assert_eq!(errors, [], "{name}: call {nth}");
    }
    if capacity == ROOMY {
        let expected = usize::from(as_oom && gpu.has_failed());
        assert!(outcome.ooms.len() <= expected, "{name}: call {nth}: {:?}", outcome.ooms);
    }
    assert_empty(&allocator, &gpu.device);
    gpu.has_failed()
}

/// Fails every call in turn; with many calls, about sixty of them, evenly spread.
fn fail_all(spec: &Spec, trace: &Trace, capacity: Bytes) {
    let mut counted = Watched::new(SimDevice::new(capacity), Counted::default());
    let mut allocator = checked(spec, &defaults(capacity)).audit_every(1000);
    run(trace, &mut allocator, &mut counted, &mut ());
    let stride = (counted.watch.calls.total() / 60).max(1);
    for as_oom in [true, false] {
        let mut nth = 0;
        while fails_nth(spec, trace, capacity, (nth, as_oom)) {
            nth += stride;
        }
        assert!(nth > 0, "{}: no call failed", spec.name);
    }
}

#[test]
fn any_call_may_fail_with_room_to_spare() {
    for spec in ALL {
        for program in Program::ALL {
            fail_all(spec, &program.generate(21, 300), ROOMY);
        }
    }
}

#[test]
fn any_call_may_fail_when_memory_is_short() {
    for spec in ALL {
        for program in Program::ALL {
            let trace = program.generate(22, 300);
            let mut allocator = crate::common::build(spec, &defaults(ROOMY));
            run(&trace, &mut *allocator, &mut SimDevice::new(ROOMY), &mut ());
            fail_all(spec, &trace, allocator.peak().active / 100 * 90);
        }
    }
}
