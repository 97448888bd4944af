//! A second look: the same run once more, up to the event at which most memory was reserved.
//!
//! Which event that is, is known only when a run is over, and to keep every block of every new peak on the way would
//! cost more than the run. So the first pass notes the event and the second one stops there, at twice the price at
//! most; it needs no prices, no timeline and no steps. A run does the same each time, so this is the same peak.

use super::opened::Opened;
use super::run::{RunError, Simulated, Stage};
use super::setup::Setup;
use crate::allocator::{BlockId, BlockKind, BlockView, Choice};
use crate::drive::Observer;
use crate::run::{Causes, Growth, Moment, Peak, PeakBlock, RunSummary};
use crate::trace::{Event, EventKind, Trace};
use crate::units::MIB;
use rustc_hash::FxHashMap;

/// Requests above this are large in PyTorch's terms, in bytes.
const SMALL_MAX: u64 = MIB;

/// The state of an allocator at the peak of `run`, which is of the same allocator in the same setup.
///
/// # Errors
/// If the run comes to no result, although it did before.
pub fn at_peak(
    opened: &Opened,
    choice: &Choice,
    setup: &Setup,
    run: &RunSummary,
) -> Result<Peak, RunError> {
    at_event(opened, choice, setup, run.peak_event.map(|event| event as usize))
}

/// The state of an allocator after event number `event`, or before the first one. Where that is a request that is not
/// served, the state is what the allocator was left with.
///
/// # Errors
/// If the run comes to no result.
pub fn at_event(
    opened: &Opened,
    choice: &Choice,
    setup: &Setup,
    event: Option<usize>,
) -> Result<Peak, RunError> {
    at_stage(opened, &mut prepare(opened, choice, setup)?, event, &mut ())
}

/// A run that has not begun, and that nothing is measured of.
pub(crate) fn prepare<'o>(
    opened: &'o Opened,
    choice: &Choice,
    setup: &Setup,
) -> Result<Stage<'o>, RunError> {
    Stage::prepare(opened, choice, &Setup { profile: None, ..setup.clone() })
}

/// The same as [`at_event`] of a run that is ready, and that somebody watches.
pub(crate) fn at_stage(
    opened: &Opened,
    stage: &mut Stage<'_>,
    event: Option<usize>,
    observer: &mut impl Observer<Simulated>,
) -> Result<Peak, RunError> {
    let got = event.map(|event| stage.run_through(event, observer)).transpose()?.flatten();
    let blocks = blocks(&opened.trace, stage, event);
    let views: Vec<BlockView> = blocks.iter().map(|block| block.view).collect();
    let growth = event.map(|event| growth(&opened.trace.events[event], got, &views));
    let causes = Causes::of(&views, growth.as_ref());
    let moment = event.map(|event| Moment::of(&opened.trace, event));
    Ok(Peak { moment, usage: stage.allocator.usage(), growth, causes, blocks })
}

/// Every block, with the moment of the request that it serves; that of the last event, if no other is known.
fn blocks(trace: &Trace, stage: &Stage<'_>, last: Option<usize>) -> Vec<PeakBlock> {
    let mut requests = vec![0; trace.allocs as usize];
    for (index, event) in trace.events[..stage.replay.outcome.events].iter().enumerate() {
        if event.kind == EventKind::Malloc {
            requests[event.alloc.0 as usize] = index;
        }
    }
    let live = stage.replay.live();
    let since: FxHashMap<BlockId, usize> =
        live.map(|(alloc, block)| (block, requests[alloc.0 as usize])).collect();
    let mut blocks = Vec::new();
    stage.allocator.walk(&mut |view| {
        let request = view.block.and_then(|block| since.get(&block).copied().or(last));
        let since = request.map(|event| Moment::of(trace, event));
        blocks.push(PeakBlock { view, since });
    });
    blocks
}

/// The request of `event`, and what it got.
fn growth(event: &Event, got: Option<BlockId>, views: &[BlockView]) -> Growth {
    let got = views.iter().find(|view| got.is_some() && view.block == got);
    Growth {
        requested: event.size,
        taken: got.map_or(event.size, |view| view.size),
        stream: event.stream,
        pool: event.pool,
        is_small: got.map_or(event.size <= SMALL_MAX, |view| view.kind == BlockKind::Small),
    }
}
