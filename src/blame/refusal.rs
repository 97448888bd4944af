//! Out of memory, explained: who requested it, who held the memory, what was wasted, and what would have served it.

use serde::Serialize;

use super::card::{OtherProcess, at_oom};
use super::live::in_use;
use super::moments::never_out;
use super::names::Namer;
use super::rows::{BlameRow, By};
use super::{BlameError, rows};
use crate::alloc_conf::TorchVersion;
use crate::allocator::{BlockKind, BlockUse, Options, Role, Spec, by_default, find};
use crate::devices::Devices;
use crate::run::{Cause, Causes, Peak, RunSummary};
use crate::sim::{Choice, Conf, Memory, Opened, RunError, Scenario, Setup, Stage};
use crate::trace::{Coverage, PoolId};
use crate::tune::single_settings;
use crate::units::Bytes;
use gmlake_core::cards::Target;

/// Free memory that was of no use, by cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusableFree {
    /// The cause, by its short name.
    pub cause: &'static str,
    /// What the bytes are, in words.
    pub meaning: &'static str,
    /// Bytes.
    pub bytes: Bytes,
    /// The largest free block among them.
    pub largest_bytes: Bytes,
}

/// Another allocator, or another setting of PyTorch's, under the same limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Served {
    /// The allocator.
    pub allocator: String,
    /// What `PYTORCH_CUDA_ALLOC_CONF` has to say for it beyond what it says now; `None`: nothing.
    pub setting: Option<String>,
    /// Whether it serves the whole job, or only this request and some after it.
    pub runs_job: bool,
}

/// A request that was not served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// The allocator.
    pub allocator: String,
    /// Index of the event.
    pub event: u64,
    /// Its training step, from 1.
    pub step: Option<u64>,
    /// The kind of name.
    pub by: By,
    /// Who requested it.
    pub name: String,
    /// Where the name is a line: the user's own line that called it, if that is another one.
    pub own: Option<String>,
    /// Bytes asked for.
    pub requested_bytes: Bytes,
    /// Bytes that the job may hold, if there is a limit that is known.
    pub memory_bytes: Option<Bytes>,
    /// Bytes between which that limit lies, if the recording shows no more: from the first, below the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_range_bytes: Option<(Bytes, Bytes)>,
    /// Bytes held from the device, after all that could be given back was.
    pub reserved_bytes: Bytes,
    /// Bytes asked for and live.
    pub live_bytes: Bytes,
    /// The largest free block of the pool and stream that the request asks.
    pub usable_bytes: Bytes,
    /// Free memory by the reason for which it was of no use; and rounding, which is not free.
    pub free: Vec<UnusableFree>,
    /// Who held, largest first: the rows add up to the live bytes.
    pub held: Vec<BlameRow>,
    /// Allocators and settings that serve it under the same limit.
    pub served_by: Vec<Served>,
    /// What else serves it, each tried: in words.
    pub also_served_by: Vec<&'static str>,
    /// Bytes that the driver had left where it was not the driver that refused.
    pub not_short_of: Option<Bytes>,
    /// What it had left where PyTorch's memory limit refused, in bytes.
    pub free_beyond_limit_bytes: Option<Bytes>,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// The smallest card of the catalogue on which the same allocator runs the whole job, and what it has for the job;
    /// `None` also where the recording is not the whole job.
    pub card: Option<(String, Bytes)>,
    /// The smallest card for PyTorch with expandable segments, if that is a smaller one, and nothing runs the whole job
    /// under the same limit.
    pub expandable_card: Option<(String, Bytes)>,
    /// Other processes on the card when memory ran out, where the card was recorded too (`gmlake.record(card=True)`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherProcess>,
}

/// Explains the first request that the allocator could not serve, in one of `ranks` ranks of a job.
///
/// # Errors
/// If memory never ran out, or the simulation fails.
pub fn refusal(
    scenario: &Scenario<'_>,
    by: By,
    innermost: bool,
    ranks: usize,
) -> Result<Refusal, BlameError> {
    let Scenario { opened, choice, setup, .. } = scenario;
    let found = refused_at(scenario)?;
    let (event, seen_at) = found.ok_or_else(|| never_out(opened))?;
    let held = scenario.state_at(seen_at)?;
    let mut namer = Namer::new(opened, by, innermost);
    let request = opened.trace.events[event];
    let name = namer.name(event, request.size);
    // Where only the recording ran out, and no limit is known, nothing shows what would have served it.
    let is_shown = setup.memory(opened).is_some() || seen_at == Some(event);
    let served_by = if is_shown { served_by(scenario, event)? } else { Vec::new() };
    let (card, expandable_card) = match opened.coverage.is_partial() {
        true => (None, None),
        false => cards(scenario, served_by.iter().any(|served| served.runs_job), ranks)?,
    };
    Ok(Refusal {
        file: opened.file.clone(),
        device: opened.trace.device,
        allocator: choice.spec.name.to_owned(),
        event: event as u64,
        step: opened.step_of(event),
        by,
        own: namer.own_of_event(event, &name),
        name,
        requested_bytes: request.size,
        memory_bytes: setup.memory(opened),
        memory_range_bytes: range(opened, setup),
        reserved_bytes: held.usage.reserved,
        live_bytes: held.usage.requested,
        usable_bytes: usable(&held),
        free: free(&held),
        held: rows(opened, &in_use(&held), &mut namer),
        served_by,
        also_served_by: around_pools(scenario, event)?,
        not_short_of: not_short_of(opened, setup),
        free_beyond_limit_bytes: free_beyond_limit(opened, setup),
        coverage: opened.coverage.clone(),
        card,
        expandable_card,
        others: at_oom(&opened.file),
    })
}

/// Where the memory lies that the run may hold, if that is all that is known of it.
fn range(opened: &Opened, setup: &Setup) -> Option<(Bytes, Bytes)> {
    let range = opened.memory_range.as_ref().filter(|_| setup.memory == Memory::AsRecorded)?;
    Some((range.start, range.end))
}

/// The event at which memory first ran out, and the one after which to look at what is held.
pub(super) fn refused_at(
    scenario: &Scenario<'_>,
) -> Result<Option<(usize, Option<usize>)>, RunError> {
    let failed = scenario.run()?.first_oom_event.map(|event| event as usize);
    Ok(match failed {
        Some(event) => Some((event, Some(event))),
        // Only the recording ran out, and its own allocator, simulated, would serve it: look at what was before.
        None if is_as_recorded(scenario) => {
            scenario.opened.first_failure().map(|event| (event, event.checked_sub(1)))
        }
        None => None,
    })
}

/// Whether a run is of the allocator, the settings and the memory of the recording.
fn is_as_recorded(scenario: &Scenario<'_>) -> bool {
    let Scenario { opened, choice, setup, .. } = scenario;
    setup.memory == Memory::AsRecorded
        && setup.conf.is_none()
        && choice.spec.name == opened.recorded_by()
        && choice.options == Options::default()
}

/// What the driver had left, if it had enough and no limit is known that refused.
fn not_short_of(opened: &Opened, setup: &Setup) -> Option<Bytes> {
    let refused = opened.refused.filter(|refused| refused.was_there());
    refused.filter(|_| setup.memory(opened).is_none())?.device_free
}

/// What the driver had left, if the recorded limit refused and the driver had enough.
fn free_beyond_limit(opened: &Opened, setup: &Setup) -> Option<Bytes> {
    opened.limit.filter(|_| setup.memory == Memory::AsRecorded)?;
    opened.refused.filter(|refused| refused.was_there())?.device_free
}

/// What serves a request of a private pool while PyTorch keeps the cache of all others.
fn around_pools(scenario: &Scenario<'_>, event: usize) -> Result<Vec<&'static str>, BlameError> {
    let Scenario { opened, choice, setup, .. } = scenario;
    let is_private = opened.trace.events[event].pool != PoolId::DEFAULT;
    if !is_private || choice.spec.role != Role::PyTorch || setup.memory(opened).is_none() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut stage = Stage::prepare(opened, choice, setup)?;
    if let Some(last) = event.checked_sub(1) {
        stage.run_through(last, &mut ())?;
    }
    stage.allocator.trim(&mut stage.device);
    if stage.run_through(event, &mut ())?.is_some() {
        found.push("if torch.cuda.empty_cache() runs before the pool is used");
    }
    let version = TorchVersion { minor: 13, ..TorchVersion::V2_11 };
    if setup.version(opened) < version {
        let later = Setup { version, follows_file: false, ..setup.clone() };
        let later = scenario.beside(choice.clone(), later);
        if served(later.run()?, event, None).is_some() {
            found.push("with PyTorch 2.13 or later, unless a CUDA graph is being captured");
        }
    }
    Ok(found)
}

/// The largest free block of the pool and stream that the request asks.
fn usable(held: &Peak) -> Bytes {
    let Some(growth) = &held.growth else { return 0 };
    let blocks = held.blocks.iter().map(|block| &block.view);
    let fits = blocks.filter(|view| {
        let is_small = view.kind == BlockKind::Small;
        view.state == BlockUse::Free
            && (view.pool, view.stream, is_small) == (growth.pool, growth.stream, growth.is_small)
    });
    fits.map(|view| view.size).max().unwrap_or(0)
}

fn free(held: &Peak) -> Vec<UnusableFree> {
    let views: Vec<_> = held.blocks.iter().map(|block| block.view).collect();
    let of = |cause: Cause| {
        let of_cause = Causes::each(&views, held.growth.as_ref()).filter(|row| row.1 == cause);
        let add = |(sum, most): (Bytes, Bytes), bytes| (sum + bytes, most.max(bytes));
        let (bytes, largest_bytes) = of_cause.map(|row| row.2).fold((0, 0), add);
        UnusableFree { cause: cause.name(), meaning: cause.phrase(), bytes, largest_bytes }
    };
    Cause::ALL.into_iter().map(of).filter(|row| row.bytes > 0).collect()
}

/// The allocators and settings that one could use and that serve the request under the same limit.
fn served_by(scenario: &Scenario<'_>, event: usize) -> Result<Vec<Served>, BlameError> {
    let Scenario { opened, choice, setup, .. } = scenario;
    // Inside a `MemPool` or a capture only PyTorch's own allocator is at work.
    let is_private = opened.trace.events[event].pool != PoolId::DEFAULT;
    let is_other = |spec: &Spec| {
        spec.name != choice.spec.name
            && spec.role.is_choice()
            && (!is_private || spec.name == "expandable")
    };
    let mut found = Vec::new();
    for spec in by_default().filter(|spec| is_other(spec)) {
        let other = Choice { spec, options: Options::default() };
        found.extend(served(scenario.beside(other, setup.clone()).run()?, event, None));
    }
    found.extend(settings(scenario, event)?);
    Ok(found)
}

/// What a run came to, if it serves the request of `event`.
fn served(summary: &RunSummary, event: usize, setting: Option<String>) -> Option<Served> {
    let is_served = summary.first_oom_event.is_none_or(|oom| oom > event as u64);
    let (allocator, runs_job) = (summary.allocator.clone(), summary.oom_count == 0);
    is_served.then_some(Served { allocator, setting, runs_job })
}

/// Of each of PyTorch's options the first value that runs the job, or else that serves the request, on top of the
/// settings that there are.
fn settings(scenario: &Scenario<'_>, event: usize) -> Result<Vec<Served>, BlameError> {
    let Scenario { opened, choice, setup, .. } = scenario;
    if choice.spec.name != "caching" {
        return Ok(Vec::new());
    }
    let now = setup.environment(opened).conf;
    let memory = setup.memory(opened).map_or(setup.memory, Memory::Bytes);
    let mut found = Vec::new();
    for values in single_settings() {
        let mut of_option: Vec<Served> = Vec::new();
        for text in values {
            // Versions of PyTorch know different options.
            let Ok(conf) = now.with(&text, setup.version) else { continue };
            let conf = Some(Conf::Known(conf));
            let other = Setup { conf, memory, memory_fraction: None, ..setup.clone() };
            let other = scenario.beside(choice.clone(), other);
            of_option.extend(served(other.run()?, event, Some(text)));
        }
        let best = of_option.iter().position(|served| served.runs_job).unwrap_or(0);
        found.extend(of_option.into_iter().nth(best));
    }
    Ok(found)
}

/// A card, and the bytes that it has for the job.
type Fitting = Option<(String, Bytes)>;

/// The smallest card that runs the job with the same allocator; and a smaller one, if expandable segments run it there,
/// and nothing runs it under the same limit.
fn cards(
    scenario: &Scenario<'_>,
    is_served: bool,
    ranks: usize,
) -> Result<(Fitting, Fitting), BlameError> {
    let Scenario { choice, .. } = scenario;
    let mut targets = Devices::catalogue().for_ranks(ranks);
    targets.sort_by_key(|target| target.capacity_bytes);
    let card = smallest(scenario, choice, &targets, Bytes::MAX)?;
    let expandable = find("expandable").filter(|_| choice.spec.name == "caching" && !is_served);
    let Some(spec) = expandable else { return Ok((card, None)) };
    let other = Choice { spec, options: Options::default() };
    let most = card.as_ref().map_or(Bytes::MAX, |&(_, bytes)| bytes);
    Ok((card, smallest(scenario, &other, &targets, most)?))
}

/// The smallest card below `most` that runs the job.
fn smallest(
    scenario: &Scenario<'_>,
    choice: &Choice,
    targets: &[Target],
    most: Bytes,
) -> Result<Fitting, BlameError> {
    let Scenario { opened, setup, .. } = scenario;
    let least = setup.memory(opened).unwrap_or(0);
    let is_possible = |bytes: Bytes| least < bytes && bytes < most;
    for target in targets.iter().filter(|target| is_possible(target.capacity_bytes)) {
        let memory = Memory::of(target);
        let larger = Setup { memory, memory_fraction: None, ..setup.clone() };
        if scenario.beside(choice.clone(), larger).run()?.oom_count == 0 {
            return Ok(Some((target.name.clone(), target.capacity_bytes)));
        }
    }
    Ok(None)
}
