//! Moments: the places in a recording that can be asked about, as they are typed.

use std::ops::Range;
use std::str::FromStr;

use crate::input_error::InputError;
use crate::run::RunSummary;
use crate::sim::Opened;
use crate::trace::{Trace, most_live};
use crate::units::Grouped;

/// A moment of a recording or of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum At {
    /// When most bytes are live; under an allocator, when it holds most.
    #[default]
    Peak,
    /// When memory first ran out.
    Oom,
    /// After the last event.
    End,
    /// When most bytes are live in this training step, from 1.
    Step(u64),
    /// After this event, from 0.
    Event(u64),
}

/// Why there is no out-of-memory to look at.
pub(super) fn never_out(opened: &Opened) -> InputError {
    let problem = match opened.first_failure() {
        Some(_) => {
            "memory ran out in the recording, but not with these options, as far as the recording goes"
        }
        None if !opened.trace.unsized_failures.is_empty() => {
            "memory ran out, but the recording does not tell what was requested; simulate a smaller device \
             with --device-memory"
        }
        None => "memory never ran out; simulate a smaller device with --device-memory",
    };
    InputError::at(&opened.file, problem)
}

fn steps_in_words(steps: usize) -> String {
    match steps {
        0 => "no training steps were found in the recording".to_owned(),
        1 => "the recording has 1 step".to_owned(),
        steps => format!("the recording has {steps} steps"),
    }
}

impl FromStr for At {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let expected = "expected peak, oom, end, step:N or event:N";
        let wrong = || InputError(format!("invalid moment {text:?}; {expected}"));
        let number = |digits: &str| digits.replace([',', '_'], "").parse().ok();
        match (text, text.split_once([':', '=', ' '])) {
            ("peak", _) => Ok(Self::Peak),
            ("oom", _) => Ok(Self::Oom),
            ("end", _) => Ok(Self::End),
            (_, Some(("step", digits))) => number(digits).map(Self::Step).ok_or_else(wrong),
            (_, Some(("event", digits))) => number(digits).map(Self::Event).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

impl At {
    /// The event after which it is so, and the moment in words. `run` is of the allocator, if one is asked about.
    pub(super) fn resolve(
        self,
        opened: &Opened,
        run: Option<&RunSummary>,
    ) -> Result<(Option<usize>, String), InputError> {
        let trace = &opened.trace;
        let wrong = |problem: String| InputError::at(&opened.file, problem);
        let nothing = || match opened.records.entries.len() + opened.records.left_out {
            0 => wrong("the recording has no events".to_owned()),
            _ => wrong("no entry of the recording can be used".to_owned()),
        };
        let last = trace.events.len().checked_sub(1).ok_or_else(nothing)?;
        Ok(match (self, run) {
            (Self::Peak, Some(run)) => {
                let words = format!("peak of memory reserved by {}", run.allocator);
                (run.peak_event.map(|event| event as usize), words)
            }
            (Self::Peak, None) => {
                (Some(highest(trace, 0..last + 1)), "peak of live memory".to_owned())
            }
            (Self::Oom, _) => {
                let simulated = run.map(|run| run.first_oom_event.map(|event| event as usize));
                let found = simulated.unwrap_or_else(|| opened.first_failure());
                (Some(found.ok_or_else(|| never_out(opened))?), "out of memory".to_owned())
            }
            (Self::End, _) => (Some(last), "end of the recording".to_owned()),
            (Self::Step(number), _) => {
                let steps = || steps_in_words(trace.steps.len());
                let missing = || wrong(format!("no step {number}; {}", steps()));
                let step = step_range(opened, number).ok_or_else(missing)?;
                let words = format!("peak of live memory in step {}", Grouped(number));
                (Some(highest(trace, step)), words)
            }
            (Self::Event(event), _) => {
                let last_one = Grouped(last as u64);
                let missing = || wrong(format!("no event {event}; the last one is {last_one}"));
                let found = usize::try_from(event).ok().filter(|&event| event <= last);
                (Some(found.ok_or_else(missing)?), format!("after event {}", Grouped(event)))
            }
        })
    }
}

/// The events of a step, from 1; that of the step in which the recording ends goes to its end.
fn step_range(opened: &Opened, number: u64) -> Option<Range<usize>> {
    let (steps, end) = (&opened.trace.steps, opened.trace.events.len());
    let place = usize::try_from(number.checked_sub(1)?).ok()?;
    let is_unfinished = || opened.step_of(end.checked_sub(1)?).filter(|&last| last == number);
    match steps.get(place) {
        Some(step) => Some(step.start..step.end),
        None => is_unfinished().map(|_| steps.last().map_or(0, |step| step.end)..end),
    }
}

/// The first event of a range after which as many bytes are live as never else in it.
fn highest(trace: &Trace, range: Range<usize>) -> usize {
    let start = range.start;
    most_live(trace, range).map_or(start, |(event, _)| event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_people_write_them() {
        for (text, at) in [
            ("peak", At::Peak),
            ("oom", At::Oom),
            ("end", At::End),
            ("step:3", At::Step(3)),
            ("step 3", At::Step(3)),
            ("event=12,000", At::Event(12_000)),
        ] {
            assert_eq!(text.parse(), Ok(at), "{text}");
        }
        for text in ["", "step", "step:", "step:x", "steps:3", "event:-1"] {
            assert!(text.parse::<At>().is_err(), "{text}");
        }
    }
}
