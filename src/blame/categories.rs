//! Categories: what each block of a recording is for, by what the program itself noted, or else by the rule.
//!
//! `gmlake predict --categories` and `gmlake.record(categories=True)` note it in the `user_metadata` of each request.
//! For other recordings this file collects what the rule ([`Phases`]) asks: places from stacks, steps from annotations.

use rustc_hash::FxHashMap;

use super::data::{Category, EventIndex, Lifetime, Phases};
use crate::sim::{Opened, Place, has_stacks, place_of};
use crate::trace::{Entry, EventKind, Gap};
use crate::units::Bytes;

/// How a category begins that the program noted.
const NOTED: &str = "gmlake category: ";

/// What each request of a recording is for.
pub(super) struct Categories<'o> {
    opened: &'o Opened,
    phases: Phases,
    has_stacks: bool,
    places: FxHashMap<u32, Place>,
    /// For each allocation, the event that gave it back.
    freed: Vec<EventIndex>,
}

impl<'o> Categories<'o> {
    pub(super) fn new(opened: &'o Opened) -> Self {
        let trace = &opened.trace;
        let mut freed = vec![EventIndex::MAX; trace.allocs as usize];
        for (index, event) in trace.events.iter().enumerate() {
            if matches!(event.kind, EventKind::Free | EventKind::FreeCompleted) {
                freed[event.alloc.0 as usize] = index as EventIndex;
            }
        }
        let began_before = opened.coverage.gaps().iter().any(is_of_beginning);
        let phases = Phases { steps: steps(opened), began_before, ..Phases::default() };
        let (has_stacks, places) = (has_stacks(&opened.records), FxHashMap::default());
        let mut found = Self { opened, phases, has_stacks, places, freed };
        for (index, event) in trace.events.iter().enumerate() {
            match event.kind {
                EventKind::Malloc => found.request(index),
                EventKind::Attempt => found.failure(index),
                _ => {}
            }
        }
        if found.phases.backward.is_empty() {
            found.phases.cut.extend(trace.events.len().checked_sub(1));
        }
        found.phases.parameter_bytes = found.parameter_bytes();
        found
    }

    fn request(&mut self, index: usize) {
        match self.place(index) {
            Place::Backward => self.phases.backward.push(index),
            Place::Module => self.phases.module.push(index),
            Place::Building if self.phases.module.is_empty() => self.phases.built = index + 1,
            _ => {}
        }
    }

    /// Notes a request that failed, if it was one of a forward or backward pass.
    fn failure(&mut self, index: usize) {
        let Phases { module, backward, steps, .. } = &self.phases;
        let step = steps.iter().map(|step| step.1).rfind(|&end| end <= index);
        let is_forward =
            module.last().is_some_and(|last| Some(last) > backward.last().max(step.as_ref()));
        let is_pass = match self.place(index) {
            Place::Module | Place::Recompute | Place::Backward => true,
            Place::Program => is_forward,
            _ => false,
        };
        if is_pass {
            self.phases.cut.push(index);
        }
    }

    /// What the request that event number `event` is was for.
    pub(super) fn of(&mut self, event: usize) -> Category {
        self.noted(event).unwrap_or_else(|| self.by_rule(event))
    }

    /// The same as the program noted it.
    pub(super) fn noted(&self, event: usize) -> Option<Category> {
        let stack = self.opened.records.stacks.get(self.opened.trace.stack_of(event))?;
        Category::from_name(stack.user_metadata.as_deref()?.strip_prefix(NOTED)?)
    }

    /// The same by the rule.
    pub(super) fn by_rule(&mut self, event: usize) -> Category {
        let block = self.lifetime(event);
        self.phases.category(&block)
    }

    fn lifetime(&mut self, event: usize) -> Lifetime {
        let asked = self.opened.trace.events[event];
        let freed = self.freed.get(asked.alloc.0 as usize).copied();
        let freed = freed.filter(|&freed| freed != EventIndex::MAX);
        let freed = freed.map_or(usize::MAX, |freed| freed as usize);
        Lifetime { place: self.place(event), asked: event, freed, bytes: asked.size }
    }

    fn parameter_bytes(&mut self) -> Vec<Bytes> {
        let requests =
            0..self.phases.module.first().copied().unwrap_or(self.opened.trace.events.len());
        let is_request = |event: &usize| self.opened.trace.events[*event].kind == EventKind::Malloc;
        let events: Vec<usize> = requests.filter(is_request).collect();
        let blocks = events.into_iter().map(|event| self.lifetime(event));
        let blocks: Vec<Lifetime> = blocks.collect();
        let mut bytes: Vec<Bytes> = blocks
            .iter()
            .filter(|block| self.phases.is_parameter(block))
            .map(|b| b.bytes)
            .collect();
        bytes.sort_unstable();
        bytes.dedup();
        bytes
    }

    fn place(&mut self, event: usize) -> Place {
        let (records, trace) = (&self.opened.records, &self.opened.trace);
        let number = trace.stack_of(event);
        let is_known = self.has_stacks && event >= trace.start_events;
        match number {
            _ if !is_known => Place::Unknown,
            Entry::NO_STACK => Place::Backward,
            _ => {
                let found = self.places.entry(number);
                *found.or_insert_with(|| place_of(&records.stacks, number))
            }
        }
    }
}

/// Whether a gap is at the beginning of the recording.
fn is_of_beginning(gap: &Gap) -> bool {
    matches!(gap, Gap::StartedLate { .. } | Gap::TailOnly { .. } | Gap::EntriesMissing { .. })
}

/// The steps of all optimizers, in events; where no optimizer left annotations, the ends of the training steps.
fn steps(opened: &Opened) -> Vec<(usize, usize)> {
    let trace = &opened.trace;
    let origin = opened.records.entries.first().map_or(0, |entry| entry.time_us);
    let event = |time_us: u64| {
        let time = time_us.saturating_sub(origin);
        trace.times_us.partition_point(|&at| at <= time).max(trace.start_events)
    };
    let (mut found, mut open) = (Vec::new(), None);
    for annotation in &opened.records.annotations {
        match (annotation.name.starts_with("Optimizer.step#"), annotation.is_start, open) {
            (true, true, _) => open = Some(event(annotation.time_us)),
            (true, false, Some(begin)) => {
                found.push((begin, event(annotation.time_us)));
                open = None;
            }
            _ => {}
        }
    }
    found.extend(open.map(|begin| (begin, trace.events.len())));
    if found.is_empty() {
        found = trace.steps.iter().map(|step| (step.end, step.end)).collect();
    }
    found
}
