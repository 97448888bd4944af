//! One trace through several allocators, side by side.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::columns::Row;
use crate::blame::{CardHistory, History, Loss, RecordedOom, Refusal};
use crate::run::{Moment, Peak, RECORDED, RunSummary, StepSummary};
use crate::sim::title_of;
use crate::trace::{Coverage, CoverageKind};
use crate::units::{Bytes, Count, Nanos, Size};

/// The runs of one trace, in the order of the table, and what they have in common.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// Whether the file tells of other devices, too.
    pub is_one_of_many: bool,
    /// Memory of the simulated device in bytes; `None`: as much as was asked for.
    pub device_memory: Option<Bytes>,
    /// What must be live at once, so that no device with less serves every request; only where the bound is a row.
    pub least_bytes: Option<Bytes>,
    /// The runs; what the recording says comes first, where it says anything.
    pub runs: Vec<RunSummary>,
    /// What was held at the peaks of runs, by their places in `runs`; only where it was asked for.
    pub peaks: BTreeMap<usize, Arc<Peak>>,
    /// Cards on which every request is served, the smallest first, by the runs' places; only where it was asked for.
    pub cards: BTreeMap<usize, Vec<String>>,
    /// Name of the allocator that the others are compared with, one of those in `runs`.
    pub reference: Option<String>,
    /// Time between the first and the last event in microseconds; 0 if the file has no times.
    pub span_us: u64,
    /// Where each training step begins.
    pub step_starts: Vec<Moment>,
    /// The out-of-memory that the recording tells of, if it does.
    pub recorded_oom: Option<RecordedOom>,
    /// How much of the job the recording shows. Unless it is complete, peaks are bounds or estimates.
    pub coverage: Coverage,
    /// What was assumed about the trace or about the run, one sentence each.
    pub notes: Vec<String>,
    /// Every block and segment of the allocator that the recording ran on; only where it was asked for, as the next
    /// two.
    pub history: Option<History>,
    /// What that allocator lost at its peak, and to whom it is due.
    pub loss: Option<Loss>,
    /// Why it ran out of memory, if it did.
    pub refusal: Option<Refusal>,
    /// The whole card over time, if that was recorded with it.
    pub card: Option<CardHistory>,
}

impl Comparison {
    /// The file's name without folders and without the endings that say how it is written.
    pub fn title(&self) -> &str {
        title_of(&self.file)
    }

    /// The title, and the device if the file tells of others.
    pub fn heading(&self) -> String {
        match self.is_one_of_many {
            true => format!("{}, device {}", self.title(), self.device),
            false => self.title().to_owned(),
        }
    }

    /// Whether the recording shows memory over time, and not one moment alone.
    pub fn has_history(&self) -> bool {
        self.coverage.kind() != CoverageKind::StateOnly
    }

    /// The run of the allocator with this name; the first, if it ran with several sets of options.
    pub fn run(&self, allocator: &str) -> Option<&RunSummary> {
        self.runs.iter().find(|run| run.allocator == allocator)
    }

    /// What the recording itself says.
    pub fn recorded(&self) -> Option<&RunSummary> {
        self.run(RECORDED)
    }

    /// The run that the others are compared with.
    pub fn reference(&self) -> Option<&RunSummary> {
        self.run(self.reference.as_deref()?)
    }

    /// One line: the file, how much of it was replayed, and on what device.
    pub fn about(&self) -> String {
        let mut text = format!("{}, device {}: ", self.file, self.device);
        text += &match self.has_history() {
            true => Count(self.events(), "event").to_string(),
            false => "one moment".to_owned(),
        };
        match self.steps().len() {
            0 => {}
            steps => text += &format!(" in {}", Count(steps as u64, "step")),
        }
        if self.span_us > 0 {
            text += &format!(", {}", Nanos(self.span_us as f64 * 1e3));
        }
        match self.device_memory {
            Some(memory) => text += &format!("; on a device of {}", Size(memory)),
            None => text += "; on a device whose memory never runs out",
        }
        text
    }

    /// The runs as rows of a table.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let reference = self.reference();
        self.runs.iter().map(move |run| Row { run, reference })
    }

    /// Events of the run that has most.
    pub fn events(&self) -> u64 {
        self.runs.iter().map(|run| run.events).max().unwrap_or(0)
    }

    /// Whose prices the driver's time is counted by.
    pub fn profile(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| Some(&*run.prices.as_ref()?.profile))
    }

    /// The run that shows what was in use: the first that served everything, as it is nearly the same in all of those.
    pub fn in_use(&self) -> Option<&RunSummary> {
        let served = |run: &&RunSummary| run.oom_count == 0 && !run.timeline.buckets.is_empty();
        self.runs.iter().find(served).or_else(|| self.runs.first())
    }

    /// The training steps, as the first simulated run shows them.
    pub fn steps(&self) -> &[StepSummary] {
        self.runs.iter().map(|run| &run.steps[..]).max_by_key(|steps| steps.len()).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_is_the_name_without_its_endings() {
        let title = |file: &str| {
            Comparison { file: file.to_owned(), ..Comparison::default() }.title().to_owned()
        };
        assert_eq!(title("traces/opt-1.3b-LR.pickle.xz"), "opt-1.3b-LR");
        assert_eq!(title("run.json"), "run");
        assert_eq!(title(".json"), ".json");
        assert_eq!(title("-"), "standard input");
    }
}
