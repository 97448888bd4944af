//! Category: what a block is for, from when and from where it was asked for, and how long it is kept.
//!
//! ```text
//!             set-up      forward       backward     optimizer   forward ...
//!   params    ├──────────────────────────────────────────────────────────────▶
//!   inputs                ├──────────────────┤               before a module's first request
//!   activ.                 ├───────────────┤                 live when the backward pass begins
//!   temp.                    ├─┤            ├─┤    ├─┤
//!   grads                                  ├──────────────┤  live when the optimizer begins
//!   state                                           ├────────────────────────▶
//! ```
//!
//! The rule, of which the first line that holds decides. Every request has a place, inferred from its call stack:
//!
//! 1. asked for by a function of a collective (`all_gather` and so on): **collectives**;
//! 2. within an optimizer's step: **optimizer state** if it is live when the step ends, else **temporaries**;
//! 3. by autograd, without a frame of Python: **gradients** if it is live when the optimizer's next step begins, else
//!    **temporaries**; what is never given back and is not as large as a parameter is **unknown**;
//! 4. by a checkpoint that computes again: **activations** if it is live at the next request of the backward pass, else
//!    **temporaries**;
//! 5. before any module's first request, and live when the first step of the optimizer ends: **parameters**; so is what
//!    a module asks for that is being built, moved or copied. Where no step ended, what was asked for between the
//!    building of a module and its first request is an input. Where the recording begins later than the program and no
//!    module is built in it, the model was built before: such a request is **unknown**;
//! 6. live when two further steps of the optimizer are over, if this many were recorded: **unknown** (workspaces);
//! 7. outside of all modules, before the first module of the forward pass, and live when that one asks: **inputs**;
//! 8. live when the backward pass begins: **activations**. Where the forward pass was cut off, by a request that failed
//!    or by the end of a recording without a backward pass: live then;
//! 9. else **temporaries**. Without stacks, what 2 does not decide is **unknown**.
//!
//! `gmlake predict --categories` and `gmlake.record(categories=True)` note it in the `user_metadata` of each request.
//! For other recordings this file collects what the rule ([`Phases`]) asks: places from stacks, steps from annotations.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::sim::{Opened, Place, has_stacks, place_of};
use crate::trace::{Entry, EventKind, Gap};
use crate::units::Bytes;

/// What a block is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Category {
    /// Parameters and buffers of modules.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// What an optimizer keeps from step to step.
    OptimizerState,
    /// What collectives send and receive.
    Collectives,
    /// What the program gives to its model.
    Inputs,
    /// Results of the forward pass that are kept for the backward pass.
    Activations,
    /// What is needed for a moment.
    Temporaries,
    /// None of these, or it cannot be known.
    Unknown,
}

impl Category {
    /// Every category with its name.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Parameters, "parameters"),
        (Self::Gradients, "gradients"),
        (Self::OptimizerState, "optimizer state"),
        (Self::Collectives, "collectives"),
        (Self::Inputs, "inputs"),
        (Self::Activations, "activations"),
        (Self::Temporaries, "temporaries"),
        (Self::Unknown, "unknown"),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(own, _)| *own == self).map_or("", |(_, name)| name)
    }

    /// The category with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own)| *own == name).map(|(category, _)| category)
    }
}

/// A block's request, and how long it is kept; moments are numbers of events.
#[derive(Debug, Clone, Copy)]
pub struct Lifetime {
    /// From where it was asked for.
    pub place: Place,
    /// When.
    pub asked: usize,
    /// When it was given back; `usize::MAX`: never.
    pub freed: usize,
    /// Bytes.
    pub bytes: Bytes,
}

/// When the phases of the program are, in numbers of events, each list ascending.
#[derive(Debug, Clone, Default)]
pub struct Phases {
    /// Requests of the backward pass.
    pub backward: Vec<usize>,
    /// Requests of modules' forward passes.
    pub module: Vec<usize>,
    /// First event of each step of an optimizer, and the first one after it.
    pub steps: Vec<(usize, usize)>,
    /// Where passes were cut off: requests that failed in them, and the end of a recording without a backward pass.
    pub cut: Vec<usize>,
    /// The first event after the last request of a module that was built or moved before any module ran; 0: none was.
    pub built: usize,
    /// Whether the recording does not begin with the program, so that its model may have been built before.
    pub began_before: bool,
    /// Sizes of parameters.
    pub parameter_bytes: Vec<Bytes>,
}

impl Phases {
    /// What the block is for.
    pub fn category(&self, block: &Lifetime) -> Category {
        let is_live_at = |event: Option<usize>| event.is_some_and(|event| block.freed > event);
        let or_temporary = |is_it: bool, it| if is_it { it } else { Category::Temporaries };
        let ends = [after(&self.backward, block.asked), after(&self.cut, block.asked)];
        let next_backward = ends.into_iter().flatten().min();
        let place = self.steps.partition_point(|step| step.1 <= block.asked);
        let within = self.steps.get(place).filter(|step| step.0 <= block.asked);
        match (block.place, within) {
            (Place::Collective, _) => Category::Collectives,
            (_, Some(step)) => or_temporary(block.freed >= step.1, Category::OptimizerState),
            (Place::Optimizer, _) => {
                or_temporary(block.freed == usize::MAX, Category::OptimizerState)
            }
            (Place::Backward, _) => self.of_backward(block),
            (Place::Recompute, _) => or_temporary(is_live_at(next_backward), Category::Activations),
            (Place::Unknown, _) => Category::Unknown,
            _ if self.is_parameter(block) => Category::Parameters,
            // What looks like a parameter is none, where the model was built before.
            _ if self.lasts(block) || self.is_early(block) && self.is_built_before() => {
                Category::Unknown
            }
            (Place::Program, _) if self.is_input(block) => Category::Inputs,
            _ => or_temporary(is_live_at(next_backward), Category::Activations),
        }
    }

    fn of_backward(&self, block: &Lifetime) -> Category {
        let place = self.steps.partition_point(|step| step.0 <= block.asked);
        let is_kept = block.freed >= self.steps.get(place).map_or(usize::MAX, |step| step.0);
        match (is_kept, block.freed) {
            (false, _) => Category::Temporaries,
            (_, usize::MAX) if !self.parameter_bytes.contains(&block.bytes) => Category::Unknown,
            _ => Category::Gradients,
        }
    }

    /// Whether the block has a parameter in it.
    pub fn is_parameter(&self, block: &Lifetime) -> bool {
        // Without a step, nothing shows whether an input would have been given back at its end.
        let is_given = self.steps.is_empty() && self.built > 0 && block.asked >= self.built;
        match block.place {
            Place::Building => self.lasts(block) || block.freed >= self.first_end(),
            Place::Program if is_given => false,
            _ => self.is_early(block) && !self.is_built_before(),
        }
    }

    /// Whether it was requested before any module's first request, and is live when the first step ends.
    fn is_early(&self, block: &Lifetime) -> bool {
        matches!(block.place, Place::Module | Place::Program)
            && self.module.first().is_none_or(|&first| block.asked < first)
            && block.freed >= self.first_end()
    }

    /// Where the first step ends, or the pass in which the recording was cut off.
    fn first_end(&self) -> usize {
        let cut = || self.cut.first().copied().unwrap_or(usize::MAX);
        self.steps.first().map_or_else(cut, |step| step.1)
    }

    /// Whether the model was built before the recording, as far as can be told.
    fn is_built_before(&self) -> bool {
        self.began_before && self.built == 0
    }

    /// Whether it is live when two further steps are over.
    fn lasts(&self, block: &Lifetime) -> bool {
        let place = self.steps.partition_point(|step| step.1 <= block.asked);
        self.steps.get(place + 1).is_some_and(|step| block.freed >= step.1)
    }

    /// Whether no module asked for anything since the last backward pass or step, and it is live when one does.
    fn is_input(&self, block: &Lifetime) -> bool {
        let before =
            |list: &[usize]| list[..list.partition_point(|&at| at < block.asked)].last().copied();
        let step = self.steps.partition_point(|step| step.1 <= block.asked).checked_sub(1);
        let begin = before(&self.backward).max(step.map(|step| self.steps[step].1));
        let is_first = before(&self.module) <= begin;
        is_first && after(&self.module, block.asked).is_some_and(|module| block.freed > module)
    }
}

/// The first of an ascending list that is after `event`.
fn after(list: &[usize], event: usize) -> Option<usize> {
    list.get(list.partition_point(|&at| at <= event)).copied()
}

/// How a category begins that the program noted.
const NOTED: &str = "gmlake category: ";

/// What each request of a recording is for.
pub(super) struct Categories<'o> {
    opened: &'o Opened,
    phases: Phases,
    has_stacks: bool,
    places: FxHashMap<u32, Place>,
    /// For each allocation, the event that gave it back.
    freed: Vec<usize>,
}

impl<'o> Categories<'o> {
    pub(super) fn new(opened: &'o Opened) -> Self {
        let trace = &opened.trace;
        let mut freed = vec![usize::MAX; trace.allocs as usize];
        for (index, event) in trace.events.iter().enumerate() {
            if matches!(event.kind, EventKind::Free | EventKind::FreeCompleted) {
                freed[event.alloc.0 as usize] = index;
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
        let freed = self.freed.get(asked.alloc.0 as usize).copied().unwrap_or(usize::MAX);
        Lifetime { place: self.place(event), asked: event, freed, bytes: asked.size }
    }

    fn parameter_bytes(&mut self) -> Vec<Bytes> {
        let events = &self.opened.trace.events;
        let first = self.phases.module.first().copied().unwrap_or(events.len());
        let requests = (0..first).filter(|&event| events[event].kind == EventKind::Malloc);
        let blocks = requests.map(|event| self.lifetime(event)).collect::<Vec<_>>().into_iter();
        let parameters = blocks.filter(|block| self.phases.is_parameter(block));
        let mut bytes: Vec<Bytes> = parameters.map(|block| block.bytes).collect();
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
