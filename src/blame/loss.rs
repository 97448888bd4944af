//! Loss: what an allocator holds at its peak beyond what was asked for, by cause and by the line that it is due to.
//!
//! ```text
//!   a hole        [ block of line 84 ][ hole ][ block of line 30 ]   half of it to each: both keep it from growing
//!   a free segment [    free, last used by line 84                ]   line 84 left it behind
//!   rounding      [ asked for by line 30 ▒▒ ]                          line 30 asked for it
//! ```
//!
//! The rows of a cause add up to the bytes of that cause ([`Causes`](super::Causes)), to the byte.
//!
//! A hole in a segment that is partly in use is due to its two neighbours in use, half of it to each: they keep it from
//! becoming larger, and the segment from going back. A segment that is wholly free is due to the request that had it
//! last. What a block in use is too large is due to whoever asked for it.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::BlameError;
use super::names::Namer;
use super::rows::By;
use crate::allocator::{BlockKind, BlockUse, BlockView, Options, find};
use crate::run::{Cause, Causes, Peak};
use crate::sim::{Choice, Opened, Scenario, Setup, Stage};
use crate::trace::{Coverage, lifetimes};
use crate::units::Bytes;

/// Lost bytes of one cause and one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LossRow {
    /// The cause, by its short name.
    pub cause: &'static str,
    /// The line (or the like) that the bytes are due to.
    pub name: String,
    /// The bytes.
    pub bytes: Bytes,
    /// Pieces of memory that they lie in; a hole counts for each of its neighbours.
    pub pieces: u64,
    /// The largest of these, in bytes, whole.
    pub largest_bytes: Bytes,
}

/// The request that made the allocator hold more than ever before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LossGrowth {
    /// The line (or the like) that asked.
    pub name: String,
    /// Bytes asked for.
    pub requested_bytes: Bytes,
    /// Bytes of the largest free block then, of any pool and stream; 0 if there was none.
    pub largest_free_bytes: Bytes,
}

/// What one call of `torch.cuda.empty_cache()` would have changed, as simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Emptied {
    /// Index of the event behind which it is called: the last of the cached memory was then freed.
    pub event: u64,
    /// Training step of that event, from 1.
    pub step: Option<u64>,
    /// Most bytes that are then held at any moment of the run.
    pub reserved_bytes: Bytes,
}

/// What an allocator lost at its peak.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// The allocator.
    pub allocator: String,
    /// Its options that differ from the defaults, as `name=value`.
    pub options: Vec<String>,
    /// Index of the event at which it held most; `None`: before the first.
    pub event: Option<u64>,
    /// Training step of that event, from 1.
    pub step: Option<u64>,
    /// Bytes held from the device.
    pub reserved_bytes: Bytes,
    /// Bytes asked for by the program.
    pub live_bytes: Bytes,
    /// Most bytes asked for at any moment of the run, be it another one.
    pub live_peak_bytes: Bytes,
    /// The difference: the sum of all rows.
    pub lost_bytes: Bytes,
    /// The kind of name.
    pub by: By,
    /// The request that forced the growth.
    pub growth: Option<LossGrowth>,
    /// The rows, by cause in the order of the report, the largest first.
    pub rows: Vec<LossRow>,
    /// Most bytes that PyTorch would hold with expandable segments, which is a setting; `None` if it has that already,
    /// or if that is unknown.
    pub expandable_bytes: Option<Bytes>,
    /// What that compares with: most bytes that the allocator would hold if it began as that run does, without a cache
    /// from before the recording.
    pub anew_bytes: Bytes,
    /// Why it is unknown what a setting would save; `None`: it is not.
    pub unknown: Option<String>,
    /// What emptying the cache would change, where a small request cannot use what is cached; `None`: not tried, or it
    /// leaves requests unserved.
    pub emptied: Option<Emptied>,
}

impl Loss {
    /// Bytes that no allocator could save, since they were live at another moment.
    pub fn needed_later_bytes(&self) -> Bytes {
        self.live_peak_bytes.saturating_sub(self.live_bytes).min(self.lost_bytes)
    }

    /// Bytes that an allocator could save at most.
    pub fn savable_bytes(&self) -> Bytes {
        self.lost_bytes - self.needed_later_bytes()
    }

    /// Whether saving so many bytes is worth a change: 5 % of what is held.
    pub fn is_worth_it(&self, bytes: Bytes) -> bool {
        bytes.saturating_mul(20) >= self.reserved_bytes
    }

    /// The cause of most lost bytes, if it is worth a change.
    pub fn cause_worth_a_change(&self) -> Option<Cause> {
        let worst = Cause::ALL.into_iter().max_by_key(|&cause| self.bytes(cause));
        let is_worth_it = |bytes| self.is_worth_it(bytes);
        worst.filter(|&cause| is_worth_it(self.savable_bytes()) && is_worth_it(self.bytes(cause)))
    }

    /// Bytes with this cause.
    pub fn bytes(&self, cause: Cause) -> Bytes {
        self.rows_of(cause).map(|row| row.bytes).sum()
    }

    /// The rows with this cause, the largest first.
    pub fn rows_of(&self, cause: Cause) -> impl Iterator<Item = &LossRow> {
        self.rows.iter().filter(move |row| row.cause == cause.name())
    }
}

/// Memory that a tensor uses through stitched addresses: whose it is does not show.
pub(super) const STITCHED: &str = "in use through stitched addresses";
/// A free block that was not used since the run began.
pub(super) const NEVER_USED: &str = "held since the recording began";

/// What an allocator lost at its peak, by cause and by name.
///
/// # Errors
/// If the simulation comes to no result.
pub fn loss(scenario: &Scenario<'_>, by: By, innermost: bool) -> Result<Loss, BlameError> {
    let (opened, summary) = (scenario.opened, scenario.run()?);
    let event = scenario.peak_event()?;
    let left = scenario.left_behind()?;
    let peak = scenario.peak()?;
    let mut namer = Namer::new(opened, by, innermost);
    let rows = rows(opened, &peak, left, &mut namer);
    let unknown = opened.too_little_to_tune();
    let growth = peak.growth.as_ref().zip(event).map(|(growth, event)| LossGrowth {
        name: namer.name(event, growth.requested),
        requested_bytes: growth.requested,
        largest_free_bytes: largest_free(&peak),
    });
    let mut loss = Loss {
        file: opened.file.clone(),
        device: opened.trace.device,
        coverage: opened.coverage.clone(),
        allocator: scenario.choice.spec.name.to_owned(),
        options: scenario.choice.options.rows(),
        event: event.map(|event| event as u64),
        step: event.and_then(|event| opened.step_of(event)),
        reserved_bytes: peak.usage.reserved,
        live_bytes: peak.usage.requested,
        live_peak_bytes: summary.requested_peak_bytes,
        lost_bytes: peak.causes.total(),
        by,
        growth,
        rows,
        expandable_bytes: expandable(scenario)?.filter(|_| unknown.is_none()),
        anew_bytes: anew(scenario)?,
        unknown,
        emptied: None,
    };
    // One more run, for nothing if the advice is another one.
    if loss.cause_worth_a_change() == Some(Cause::WrongPool) {
        loss.emptied = emptied(scenario, &peak, left)?;
    }
    Ok(loss)
}

fn largest_free(peak: &Peak) -> Bytes {
    let free = peak.blocks.iter().filter(|block| block.view.state == BlockUse::Free);
    free.map(|block| block.view.size).max().unwrap_or(0)
}

/// What PyTorch would hold with expandable segments.
pub(super) fn expandable(scenario: &Scenario<'_>) -> Result<Option<Bytes>, BlameError> {
    let Some(spec) = find("expandable").filter(|spec| spec.name != scenario.choice.spec.name)
    else {
        return Ok(None);
    };
    let other = Choice { spec, options: Options::default() };
    let other = scenario.beside(other, scenario.setup.clone());
    let summary = other.run()?;
    Ok(Some(summary.reserved_peak_bytes).filter(|_| summary.oom_count == 0))
}

/// What the allocator would hold if it began as one with other settings begins: with what was live when the recording
/// started, and no cache that its own settings left behind.
fn anew(scenario: &Scenario<'_>) -> Result<Bytes, BlameError> {
    let setup = Setup { is_fresh: true, ..scenario.setup.clone() };
    let scenario = match scenario.opened.coverage.sees_beginning() {
        true => scenario.clone(),
        false => scenario.beside(scenario.choice.clone(), setup),
    };
    Ok(scenario.run()?.reserved_peak_bytes)
}

/// The run once more, with the cache emptied as soon as all was free that a small request then could not use.
fn emptied(
    scenario: &Scenario<'_>,
    peak: &Peak,
    left: &FxHashMap<u64, usize>,
) -> Result<Option<Emptied>, BlameError> {
    let (opened, summary) = (scenario.opened, scenario.run()?);
    let Some(freed) = freed_at(opened, peak, left) else { return Ok(None) };
    // It is another run than that of the scenario, and not counted as one of its replays.
    let setup = Setup { profile: None, runs: Arc::default(), ..scenario.setup.clone() };
    let mut stage = Stage::prepare(opened, &scenario.choice, &setup)?;
    let _ = stage.advance(freed + 1, &mut ())?;
    stage.allocator.trim(&mut stage.device);
    let _ = stage.advance(opened.trace.events.len(), &mut ())?;
    let serves_as_many = stage.replay.outcome.ooms.len() as u64 <= summary.oom_count;
    Ok(serves_as_many.then(|| Emptied {
        event: freed as u64,
        step: opened.step_of(freed),
        reserved_bytes: stage.allocator.peak().reserved,
    }))
}

/// When the last of the memory was freed that is cached at the peak and that a small request cannot use.
fn freed_at(opened: &Opened, peak: &Peak, left: &FxHashMap<u64, usize>) -> Option<usize> {
    let growth = peak.growth.as_ref().filter(|growth| growth.is_small)?;
    let views: Vec<BlockView> = peak.blocks.iter().map(|block| block.view).collect();
    let cached = Causes::each(&views, Some(growth)).filter(|row| row.1 == Cause::WrongPool);
    let tenants: FxHashSet<usize> =
        cached.filter_map(|(place, ..)| left.get(&views[place].at.0).copied()).collect();
    let own = lifetimes(&opened.trace).into_iter().filter(|life| tenants.contains(&life.lower));
    own.map(|life| life.upper).max().filter(|&upper| upper < opened.trace.events.len())
}

fn rows(
    opened: &Opened,
    peak: &Peak,
    left: &FxHashMap<u64, usize>,
    namer: &mut Namer,
) -> Vec<LossRow> {
    let views: Vec<BlockView> = peak.blocks.iter().map(|block| block.view).collect();
    let neighbours = neighbours(&views);
    let mut name = |place: usize| match peak.blocks[place].since {
        Some(since) => namer.name(since.event as usize, views[place].requested),
        None => STITCHED.to_owned(),
    };
    let mut sums: FxHashMap<(Cause, String), LossRow> = FxHashMap::default();
    // Of a piece of `whole` bytes, `bytes` are due to `name`.
    let mut add = |cause: Cause, name: String, bytes: Bytes, whole: Bytes| {
        let row = sums.entry((cause, name)).or_default();
        row.bytes += bytes;
        row.pieces += 1;
        row.largest_bytes = row.largest_bytes.max(whole);
    };
    let mut unpinned = Vec::new();
    for (place, cause, bytes) in Causes::each(&views, peak.growth.as_ref()) {
        match (views[place].state, neighbours[place]) {
            _ if bytes == 0 => {}
            (BlockUse::Free, [None, None]) => unpinned.push((place, cause, bytes)),
            (BlockUse::Free, [Some(one), None] | [None, Some(one)]) => {
                add(cause, name(one), bytes, bytes);
            }
            (BlockUse::Free, [Some(one), Some(other)]) => {
                add(cause, name(one), bytes.div_ceil(2), bytes);
                add(cause, name(other), bytes / 2, bytes);
            }
            _ => add(cause, name(place), bytes, bytes),
        }
    }
    for (place, cause, bytes) in unpinned {
        let tenant = left.get(&views[place].at.0).copied();
        let name = tenant.map(|event| namer.name(event, opened.trace.events[event].size));
        add(cause, name.unwrap_or_else(|| NEVER_USED.to_owned()), bytes, bytes);
    }
    let mut rows: Vec<((Cause, String), LossRow)> = sums.into_iter().collect();
    rows.sort_by(|((a, m), x), ((b, n), y)| (a, y.bytes, m).cmp(&(b, x.bytes, n)));
    let named = |((cause, name), row)| LossRow { cause: Cause::name(cause), name, ..row };
    rows.into_iter().map(named).collect()
}

/// Of each block, the nearest blocks before and behind it in its segment that are not free. The blocks are in address
/// order; stitched ranges, which have addresses of their own, have no neighbours.
fn neighbours(views: &[BlockView]) -> Vec<[Option<usize>; 2]> {
    let mut found = vec![[None, None]; views.len()];
    let own = |place: &usize| views[*place].kind != BlockKind::Stitched;
    let mut side = |which: usize, places: &mut dyn Iterator<Item = usize>| {
        let mut nearest: Option<usize> = None;
        for place in places {
            let view = &views[place];
            found[place][which] = nearest.filter(|&near| views[near].segment == view.segment);
            if view.state != BlockUse::Free {
                nearest = Some(place);
            }
        }
    };
    side(0, &mut (0..views.len()).filter(own));
    side(1, &mut (0..views.len()).rev().filter(own));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DevicePtr;
    use crate::trace::{PoolId, StreamId};

    fn view(at: u64, segment: u64, state: BlockUse) -> BlockView {
        BlockView {
            block: None,
            at: DevicePtr(at),
            size: 1,
            requested: 0,
            stream: StreamId(0),
            state,
            pool: PoolId::DEFAULT,
            kind: BlockKind::Large,
            segment: DevicePtr(segment),
        }
    }

    #[test]
    fn the_neighbours_of_a_hole_are_in_its_segment_and_in_use() {
        use BlockUse::{Allocated, Free, Pending};
        let states = [
            (0, Allocated),
            (0, Free),
            (0, Free),
            (0, Pending),
            (4, Free),
            (5, Free),
            (5, Allocated),
        ];
        let views: Vec<_> = states
            .iter()
            .zip(0..)
            .map(|(&(segment, state), at)| view(at, segment, state))
            .collect();
        let found = neighbours(&views);
        assert_eq!(found[1], [Some(0), Some(3)]);
        assert_eq!(found[2], [Some(0), Some(3)]);
        assert_eq!(found[4], [None, None]);
        assert_eq!(found[5], [None, Some(6)]);
    }
}
