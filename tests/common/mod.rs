//! Helpers of the suites over all allocators: building, running under supervision, and the final reckoning.

// Each test binary uses its own part of this.
#![allow(dead_code)]

pub(crate) mod cli;
pub(crate) mod cpp;
pub(crate) mod recordings;
pub(crate) mod stacks;

use gmlake::alloc_conf::{AllocConf, TorchVersion};
use gmlake::allocator::{Allocator, BlockView, Checked, Environment, Options, Spec, Usage};
use gmlake::device::{Device, DeviceError, SimDevice};
use gmlake::drive::{Observer, OnOom, Outcome, Replay, Step};
use gmlake::trace::Trace;
use gmlake::units::{Bytes, GIB};

/// Memory enough for every script here.
pub(crate) const ROOMY: Bytes = 512 * GIB;

/// PyTorch's defaults on a device of this size.
pub(crate) fn defaults(total_memory: Bytes) -> Environment {
    let (conf, version) = (AllocConf::default(), TorchVersion::V2_11);
    Environment {
        conf,
        version,
        total_memory,
        memory_fraction: None,
        limit: None,
        no_split: Vec::new(),
    }
}

/// The allocator with its default options.
pub(crate) fn build(spec: &Spec, environment: &Environment) -> Box<dyn Allocator> {
    spec.build(&Options::default(), environment).expect("defaults are valid")
}

/// The same under supervision, all checks after each call.
pub(crate) fn checked(spec: &Spec, environment: &Environment) -> Checked {
    Checked::new(build(spec, environment), spec)
}

/// A run to its end, whatever the driver does: a request that a driver error hit is skipped, and the error kept.
pub(crate) fn run<D: Device>(
    trace: &Trace,
    allocator: &mut dyn Allocator,
    device: &mut D,
    observer: &mut impl Observer<D>,
) -> (Outcome, Vec<DeviceError>) {
    let mut replay = Replay::new(trace, OnOom::Skip);
    let (mut next, mut errors) = (0, Vec::new());
    while next < trace.events.len() {
        let result = replay.advance(next..trace.events.len(), allocator, device, observer);
        next = match result {
            Ok(_) => trace.events.len(),
            Err(error) => {
                errors.push(error);
                next.max(replay.outcome.events) + 1
            }
        };
    }
    (replay.outcome, errors)
}

/// Runs a closed trace under supervision; in the end nothing may be left.
pub(crate) fn run_checked(mut allocator: Checked, trace: &Trace, capacity: Bytes) -> Outcome {
    let mut gpu = SimDevice::new(capacity);
    let (outcome, errors) = run(trace, &mut allocator, &mut gpu, &mut ());
    assert_eq!(errors, [], "the simulated driver does not fail");
    assert_empty(&allocator, &gpu);
    outcome
}

/// Everything was freed and trimmed: nothing is counted, nothing is held.
pub(crate) fn assert_empty(allocator: &Checked, gpu: &SimDevice) {
    allocator.audit();
    assert_eq!(allocator.usage(), Usage::default(), "after everything was freed and trimmed");
    assert!(allocator.record().is_empty() && gpu.is_pristine(), "left behind: {gpu:?}");
}

/// Usage after every event, and all blocks every so often: what two runs must have in common.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tape {
    usages: Vec<Usage>,
    blocks: Vec<BlockView>,
}

impl<D> Observer<D> for Tape {
    fn after(&mut self, step: &mut Step<'_, D>) {
        self.usages.push(step.allocator.usage());
        if step.index.is_multiple_of(64) {
            self.blocks.extend(step.allocator.blocks());
        }
    }
}
