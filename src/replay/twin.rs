//! The simulated twin of a replay: the same events, the same allocator, a simulated device.

use std::ops::ControlFlow;

use crate::allocator::Allocator;
use crate::device::{Bill, CallLog, Device, DeviceError, Logged, Priced, Profile, SimDevice};
use crate::drive::{OnOom, Replay};
use crate::trace::Trace;

/// What the twin did.
#[derive(Debug, Clone)]
pub(super) struct Twin {
    pub(super) log: CallLog,
    pub(super) bill: Bill,
    /// Price of each training step that was reached, in nanoseconds.
    pub(super) step_ns: Vec<u64>,
    pub(super) peak_used: u64,
}

/// Runs the first `events` events.
pub(super) fn simulate(
    trace: &Trace,
    events: usize,
    allocator: &mut dyn Allocator,
    device: SimDevice,
    profile: &Profile,
) -> Result<Twin, DeviceError> {
    let mut device = Logged::new(Priced::new(device, Some(profile.clone())));
    let mut replay = Replay::new(trace, OnOom::Skip).hurried();
    let mut step_ns = Vec::new();
    let mut at = 0;
    for step in trace.steps.iter().filter(|step| step.start < events) {
        advance(&mut replay, at..step.start, allocator, &mut device)?;
        let before = device.device.bill.nanos.total();
        at = step.end.min(events);
        advance(&mut replay, step.start..at, allocator, &mut device)?;
        step_ns.push(device.device.bill.nanos.total() - before);
    }
    advance(&mut replay, at..events, allocator, &mut device)?;
    let Priced { device: simulated, bill, .. } = device.device;
    Ok(Twin { log: device.log, bill, step_ns, peak_used: simulated.peak_used() })
}

fn advance(
    replay: &mut Replay<'_>,
    range: std::ops::Range<usize>,
    allocator: &mut dyn Allocator,
    device: &mut dyn Device,
) -> Result<(), DeviceError> {
    let flow = replay.advance(range, allocator, device, &mut ())?;
    debug_assert_eq!(flow, ControlFlow::Continue(()), "out of memory is skipped");
    Ok(())
}
