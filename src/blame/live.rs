//! Live blocks: what the program holds at a moment, each block with the event of its request.

use super::{BlameError, Question};
use crate::allocator::BlockUse;
use crate::run::{Moment, Peak};
use crate::sim::Opened;
use crate::trace::{Lifetime, Trace, lifetimes};
use crate::units::Bytes;

/// A block that is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Live {
    /// Index of the event that asked for it.
    pub(super) event: usize,
    /// Bytes that were asked for.
    pub(super) bytes: Bytes,
}

/// What is live at a moment.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) blocks: Vec<Live>,
    pub(super) moment: Option<Moment>,
    pub(super) words: String,
    /// Memory held from the device, if an allocator was simulated.
    pub(super) reserved: Option<Bytes>,
}

/// What is live at the moment that is asked about.
pub(super) fn find(opened: &Opened, question: &Question<'_>) -> Result<Found, BlameError> {
    let Some(scenario) = &question.scenario else {
        let (event, words) = question.at.resolve(opened, None)?;
        let blocks = event.map_or_else(Vec::new, |event| after(&opened.trace, event));
        let moment = event.map(|event| Moment::of(&opened.trace, event));
        return Ok(Found { blocks, moment, words, reserved: None });
    };
    let (event, words) = question.at.resolve(opened, Some(scenario.run()?))?;
    let held = scenario.state_at(event)?;
    let reserved = Some(held.usage.reserved);
    Ok(Found { blocks: in_use(&held), moment: held.moment, words, reserved })
}

/// The blocks in use in an allocator's state.
pub(super) fn in_use(held: &Peak) -> Vec<Live> {
    let is_live = |state| matches!(state, BlockUse::Allocated | BlockUse::Pending);
    let blocks = held.blocks.iter().filter(|block| is_live(block.view.state));
    let live = blocks.map(|block| {
        let event = block.since.map_or(0, |since| since.event as usize);
        Live { event, bytes: block.view.requested }
    });
    live.collect()
}

/// What is live after event number `last`, in order of the requests.
pub(super) fn after(trace: &Trace, last: usize) -> Vec<Live> {
    let is_live = |life: &Lifetime| life.lower <= last && last < life.upper;
    let live = lifetimes(trace).into_iter().filter(is_live);
    live.map(|life| Live { event: life.lower, bytes: life.size }).collect()
}
