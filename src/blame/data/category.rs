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

use serde::Serialize;

use crate::sim::Place;
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
