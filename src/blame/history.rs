//! The history of a run: the blocks that it handed out and the segments that it held, written down as they come and go.
//!
//! The writer watches the run: it learns where each request was served, and of the device ([`HeldSegments`]) what was
//! obtained from the driver.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::categories::Categories;
use super::lives::{BlockLife, EventIndex, History, Life, NamedStack, Origin, SegmentLife};
use super::loss::expandable;
use super::names::Namer;
use super::refusal::refused_at;
use super::rows::By;
use super::times::samples;
use crate::allocator::{Allocation, BlockView};
use crate::drive::{Observer, Step};
use crate::sim::{Choice, Opened, RunError, Scenario, Stage};
use crate::simulation::{HeldSegments, Owner, Simulated};
use crate::trace::{Action, AllocId, Event, EventKind, both};
use crate::units::Bytes;

/// Every block and every segment of a run. On the way, what is held at the peak and where memory ran out is remembered,
/// and what expandable segments would hold, so that [`loss`](super::loss()) and [`refusal`](super::refusal()) replay
/// nothing.
///
/// # Errors
/// If the simulation comes to no result.
pub fn history(scenario: &Scenario<'_>) -> Result<History, RunError> {
    let new = || Writer::new(scenario.opened, &scenario.choice);
    let (run, mut writer) = both(|| scenario.run().map(drop), new);
    run?;
    let mut stage = scenario.stage()?;
    let mut held = HeldSegments::default();
    writer.adopt(&stage, &mut held);
    stage.watch_segments(held);
    let failed = refused_at(scenario)?.map(|(_, seen_at)| seen_at);
    let follow = || scenario.follow(&mut stage, failed.as_slice(), &mut writer);
    // `loss` asks for it, and says what is wrong with it.
    let (followed, _) = both(follow, || expandable(scenario));
    followed?;
    let ooms = stage.replay.outcome.ooms.iter();
    writer.history.ooms = ooms.map(|oom| (oom.event as EventIndex, oom.requested)).collect();
    Ok(writer.history)
}

/// Writes the history.
struct Writer<'o> {
    opened: &'o Opened,
    history: History,
    /// The number of each allocation's block, from 1 on, while it is there.
    blocks: Vec<Option<NonZeroU32>>,
    /// Segments that are held, by address.
    held: BTreeMap<u64, usize>,
    namer: Namer<'o>,
    categories: Categories<'o>,
    origins: FxHashMap<Origin, u32>,
    /// Place of each call stack of the recording, and of each sentence that stands for one.
    stacks: FxHashMap<(u32, &'static str), u32>,
}

impl<'o> Writer<'o> {
    fn new(opened: &'o Opened, choice: &Choice) -> Self {
        let trace = &opened.trace;
        let has_times = trace.span_us() > 0;
        let history = History {
            allocator: choice.spec.name.to_owned(),
            events: trace.events.len() as EventIndex,
            times_us: if has_times { samples(&trace.times_us) } else { Vec::new() },
            has_stacks: opened.records.stacks.has_frames(),
            is_state: opened.records.entries.is_empty(),
            steps: trace.steps.iter().map(|step| step.start as EventIndex).collect(),
            ..History::default()
        };
        Self {
            opened,
            history,
            blocks: vec![None; trace.allocs as usize],
            held: BTreeMap::new(),
            namer: Namer::new(opened, By::Line, false),
            categories: Categories::new(opened),
            origins: FxHashMap::default(),
            stacks: FxHashMap::default(),
        }
    }

    /// What was held before the first event that is carried out.
    fn adopt(&mut self, stage: &Stage<'_>, held: &mut HeldSegments) {
        let events = &self.opened.trace.events[..stage.replay.outcome.events];
        if events.is_empty() {
            return;
        }
        held.adopt(&self.opened.start);
        for segment in &self.opened.start.segments {
            let owner = Owner::new(segment.stream, segment.pool);
            let range = segment.address..segment.address + segment.size;
            self.segments(0, vec![(Action::SegmentAlloc, range, owner)]);
        }
        let blocks = stage.allocator.blocks().into_iter();
        let place = |view: BlockView| Some((view.block?, (view.at.0, view.size)));
        let places: FxHashMap<_, _> = blocks.filter_map(place).collect();
        for (index, event) in events.iter().enumerate() {
            let block = stage.replay.block(event.alloc);
            match block.and_then(|block| places.get(&block).copied()) {
                Some(place) if event.kind == EventKind::Malloc => {
                    self.hand_out(index, event, place)
                }
                _ => self.let_go(index, event),
            }
        }
    }

    fn hand_out(&mut self, index: usize, event: &Event, (at, bytes): (u64, Bytes)) {
        let origin = self.origin(index, event);
        let life = Life { born: index as EventIndex, died: Life::NEVER };
        let (requested, let_go) = (event.size, Life::NEVER);
        self.history.blocks.push(BlockLife { at, bytes, requested, life, let_go, origin });
        let number = NonZeroU32::new(self.history.blocks.len() as u32);
        self.blocks[event.alloc.0 as usize] = number;
    }

    /// Notes the end of a block, if the event lets go of one.
    fn let_go(&mut self, index: usize, event: &Event) {
        let now = index as EventIndex;
        let AllocId(alloc) = event.alloc;
        match event.kind {
            EventKind::Free | EventKind::FreeCompleted => {
                let Some(block) = self.blocks[alloc as usize].take() else { return };
                let block = &mut self.history.blocks[block.get() as usize - 1];
                block.life.died = now;
                block.let_go = block.let_go.min(now);
            }
            EventKind::FreeRequested => {
                let Some(block) = self.blocks[alloc as usize] else { return };
                self.history.blocks[block.get() as usize - 1].let_go = now;
            }
            EventKind::Malloc | EventKind::Attempt | EventKind::Trim => {}
        }
    }

    fn origin(&mut self, index: usize, event: &Event) -> u32 {
        let origin = Origin {
            stack: self.stack(index),
            category: self.categories.of(index),
            stream: event.stream,
            pool: event.pool,
        };
        *self.origins.entry(origin).or_insert_with(|| {
            self.history.origins.push(origin);
            self.history.origins.len() as u32 - 1
        })
    }

    fn stack(&mut self, index: usize) -> u32 {
        let number = self.opened.trace.stack_of(index);
        let instead = if self.namer.has_frames(index) { "" } else { self.namer.stackless(index) };
        *self.stacks.entry((number, instead)).or_insert_with(|| {
            let (frames, named) = match instead {
                "" => self.namer.stack(index),
                sentence => (vec![sentence.to_owned()], 0),
            };
            self.history.stacks.push(NamedStack { frames, named });
            self.history.stacks.len() as u32 - 1
        })
    }

    fn segments(&mut self, index: usize, calls: Vec<(Action, Range<u64>, Owner)>) {
        for (action, range, owner) in calls {
            match action {
                Action::SegmentFree | Action::SegmentUnmap => self.give_back(index, &range),
                _ => self.obtain(index, range, owner),
            }
        }
    }

    fn obtain(&mut self, index: usize, range: Range<u64>, owner: Owner) {
        let life = Life { born: index as EventIndex, died: Life::NEVER };
        let (at, bytes) = (range.start, range.end - range.start);
        self.held.insert(at, self.history.segments.len());
        let Owner { stream, pool, .. } = owner;
        self.history.segments.push(SegmentLife { at, bytes, life, stream, pool });
    }

    /// Ends the segments in `range`. What one of them has outside of it goes on as a segment of its own.
    fn give_back(&mut self, index: usize, range: &Range<u64>) {
        let before = self.held.range(..=range.start).next_back().map_or(range.start, |(&at, _)| at);
        let places: Vec<(u64, usize)> =
            self.held.range(before..range.end).map(|(&at, &place)| (at, place)).collect();
        for (at, place) in places {
            let segment = self.history.segments[place];
            let end = at + segment.bytes;
            if end <= range.start {
                continue;
            }
            self.held.remove(&at);
            self.history.segments[place].life.died = index as EventIndex;
            let owner = Owner::new(segment.stream, segment.pool);
            for rest in [at..range.start.max(at), range.end.min(end)..end] {
                if !rest.is_empty() {
                    self.obtain(index, rest, owner);
                }
            }
        }
    }
}

impl Observer<Simulated> for Writer<'_> {
    fn before(&mut self, step: &mut Step<'_, Simulated>) {
        if let Some(held) = &mut step.device.watch.2 {
            held.begin(step.event.stream, step.event.pool);
        }
    }

    fn served(&mut self, step: &mut Step<'_, Simulated>, given: Option<Allocation>) {
        if let Some(given) = given.filter(|_| step.event.kind == EventKind::Malloc) {
            self.hand_out(step.index, step.event, (given.at.0, given.size));
        }
    }

    fn after(&mut self, step: &mut Step<'_, Simulated>) {
        if let Some(held) = &mut step.device.watch.2 {
            self.segments(step.index, held.take_calls().made);
        }
        self.let_go(step.index, step.event);
    }
}
