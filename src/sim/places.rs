//! Places: from where in a program a request comes, by its call stack.

use rustc_hash::FxHashMap;

use super::frames::{has_stacks, is_machinery, is_of_engine, is_of_program, is_python, node};
use crate::trace::{Action, Entry, Frame, Records, Stacks};

/// From where a block was asked for, as its call stack tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A function of a collective.
    Collective,
    /// An optimizer.
    Optimizer,
    /// Autograd, in the backward pass.
    Backward,
    /// A checkpoint that computes its forward pass again.
    Recompute,
    /// A module that is built or moved.
    Building,
    /// A module's forward pass.
    Module,
    /// The program, outside of all these.
    Program,
    /// Not known.
    Unknown,
}

/// Whether the recording shows requests of modules, and up to its last out-of-memory none that only a backward pass or
/// an optimizer makes. Where the place of a single request is not known, that is not known either.
pub(crate) fn ends_before_backward(records: &Records) -> bool {
    let is_failure = |entry: &Entry| entry.action == Action::Oom;
    let Some(last) = records.entries.iter().rposition(is_failure) else { return false };
    if !has_stacks(records) {
        return false;
    }
    let mut places: FxHashMap<u32, Place> = FxHashMap::default();
    let requests = records.entries[..=last].iter();
    let requests = requests.filter(|entry| matches!(entry.action, Action::Alloc | Action::Oom));
    let mut has_module = false;
    for entry in requests {
        if entry.stack == Entry::NO_STACK {
            return false;
        }
        let place = places.entry(entry.stack);
        match place.or_insert_with(|| place_of(&records.stacks, entry.stack)) {
            Place::Module => has_module = true,
            Place::Program | Place::Building | Place::Collective => {}
            Place::Backward | Place::Recompute | Place::Optimizer | Place::Unknown => return false,
        }
    }
    has_module
}

/// From where a stack asks.
pub(crate) fn place_of(stacks: &Stacks, number: u32) -> Place {
    let all = || stacks.frames_of(number).filter(|frame| is_of_program(frame));
    let frames: Vec<&Frame> = all().filter(|frame| is_python(frame)).collect();
    if !frames.is_empty() || all().all(is_machinery) {
        return place(&frames);
    }
    match all().any(|frame| is_of_engine(frame) || node(frame).is_some()) {
        true => Place::Backward,
        false => Place::Unknown,
    }
}

/// From where a stack asks, its frames innermost first.
fn place(frames: &[&Frame]) -> Place {
    let Some(outermost) = frames.last() else { return Place::Backward };
    let found = frames.iter().find_map(|frame| mark(frame));
    let is_of_thread =
        ["<module>", "_run_module_as_main", "_bootstrap"].contains(&&*outermost.function);
    match found {
        None | Some(Place::Module | Place::Building) if !is_of_thread => Place::Backward,
        Some(place) => place,
        None => Place::Program,
    }
}

/// What a frame says about where it is, if it says anything.
fn mark(frame: &Frame) -> Option<Place> {
    let (file, function) = (&*frame.file, &*frame.function);
    let is_in = |part: &str| file.ends_with(part);
    let moves = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"];
    match function {
        _ if moves.iter().any(|name| function.contains(name)) => Some(Place::Collective),
        "_engine_run_backward" => Some(Place::Backward),
        "backward" | "grad" | "_make_grads" if is_in("torch/autograd/__init__.py") => {
            Some(Place::Backward)
        }
        "recompute_fn" | "unpack_hook" | "backward" if is_in("torch/utils/checkpoint.py") => {
            Some(Place::Recompute)
        }
        _ if file.contains("/torch/optim/") => Some(Place::Optimizer),
        "_call_impl" if is_in("torch/nn/modules/module.py") => Some(Place::Module),
        "_apply" | "convert" | "to_empty" if is_in("torch/nn/modules/module.py") => {
            Some(Place::Building)
        }
        // A copy of a whole model, such as an average.
        "__deepcopy__" if is_in("torch/nn/parameter.py") => Some(Place::Building),
        "__init__" | "reset_parameters" if file.contains("/torch/nn/") => Some(Place::Building),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{PoolId, Stack, StreamId};

    const MODULE: u32 = 0;
    const BACKWARD: u32 = 1;
    const BUILDING: u32 = 2;

    fn records(entries: &[(Action, u32)]) -> Records {
        let frame = |file: &str, function: &str| Frame {
            file: format!("/venv/site-packages/{file}").into(),
            line: 1,
            function: function.into(),
        };
        let frames = vec![
            frame("torch/nn/modules/module.py", "_call_impl"),
            frame("torch/autograd/graph.py", "_engine_run_backward"),
            frame("torch/nn/modules/linear.py", "__init__"),
            frame("train.py", "<module>"),
        ];
        let stack = |frame: u32| Stack { frames: [frame, 3].into(), ..Stack::default() };
        let stacks = Stacks { frames, stacks: (0..3).map(stack).collect() };
        let entry = |&(action, stack): &(Action, u32)| Entry {
            addr: 0,
            size: 512,
            time_us: 0,
            stack,
            stream: StreamId(0),
            action,
            pool: PoolId::DEFAULT,
        };
        Records { entries: entries.iter().map(entry).collect(), stacks, ..Records::default() }
    }

    #[test]
    fn no_backward_pass_was_seen_only_where_every_request_says_so() {
        use Action::{Alloc, FreeCompleted, Oom};
        let none = Entry::NO_STACK;
        for (entries, is_before) in [
            (&[(Alloc, BUILDING), (Alloc, MODULE), (Oom, MODULE)][..], true),
            (&[(Alloc, MODULE), (FreeCompleted, none), (Oom, MODULE)], true),
            // What the program does after it has failed is not of interest.
            (&[(Alloc, MODULE), (Oom, MODULE), (Alloc, BACKWARD)], true),
            (&[(Alloc, MODULE), (Alloc, BACKWARD), (Oom, MODULE)], false),
            (&[(Alloc, MODULE), (Oom, BACKWARD)], false),
            // Autograd's threads have no stack.
            (&[(Alloc, MODULE), (Alloc, none), (Oom, MODULE)], false),
            (&[(Alloc, MODULE), (Oom, none)], false),
            // The model may never have run, or nothing says where requests come from.
            (&[(Alloc, BUILDING), (Oom, BUILDING)], false),
            (&[(Alloc, none), (Oom, none)], false),
            (&[(Alloc, MODULE)], false),
        ] {
            assert_eq!(ends_before_backward(&records(entries)), is_before, "{entries:?}");
        }
    }
}
