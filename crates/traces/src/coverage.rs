//! Coverage: how much of a job a recording shows, and so what may be claimed from it.
//!
//! ```text
//!   complete       ├──────────────────────────────────────────────┤   peaks are the job's
//!   started late        ┄┄┄┄├─────────────────────────────────────┤   what came before may have needed more
//!   tail only                                   ┄┄┄┄├─────────────┤   a ring buffer lost the beginning
//!   out of memory  ├───────────────╳                                  the job wanted more than it got
//!   partial        ├───────────────┄┄┄┄                               the dump or the history ends too early
//!   state only                                                    │   one moment, no history
//! ```
//!
//! From anything but a complete recording, every need is a lower bound. Where the beginning is missing, that holds only
//! of what was seen: another allocator would not have begun as the simulation does, and may need less ([`Certainty`]).
//! Where entries are missing in between, frees may be among them: then nothing is a bound.

use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use gmlake_core::units::{Bytes, Size};

/// The kind of a recording, by the worst of its gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CoverageKind {
    /// From the program's first allocation to the snapshot.
    #[default]
    Complete,
    /// The recorder was started when memory was in use already.
    StartedLate,
    /// At least one request failed.
    OutOfMemory,
    /// A ring buffer kept only the last entries.
    TailOnly,
    /// The recording ends before the job, or parts of it are missing.
    Partial,
    /// The state at one moment, without events.
    StateOnly,
}

impl CoverageKind {
    /// The name in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::StartedLate => "started_late",
            Self::OutOfMemory => "out_of_memory",
            Self::TailOnly => "tail_only",
            Self::Partial => "partial",
            Self::StateOnly => "state_only",
        }
    }
}

/// Something that a recording does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// The recorder was started when this much was in use.
    StartedLate {
        /// Bytes requested by the blocks that were live then.
        live: Bytes,
        /// Bytes that PyTorch had reserved, if the file tells.
        held: Bytes,
    },
    /// A request failed: what the program would have used afterwards is not known.
    OutOfMemory {
        /// The step in which it failed, counted from 1.
        step: usize,
        /// Whether the program ended with it.
        is_last: bool,
        /// Whether it is known that the program had not begun a backward pass.
        before_backward: bool,
    },
    /// The recorder's ring buffer lost the beginning.
    TailOnly {
        /// Entries that were kept.
        entries: usize,
    },
    /// The recording ends inside a step; the number counts from 1.
    MidStep {
        /// The step that was not finished.
        step: usize,
    },
    /// Memory was still growing when the recording ended.
    Growing,
    /// The history ends before the snapshot was taken.
    HistoryStopped,
    /// Entries are missing: some memory is freed that was never allocated, or allocated twice.
    EntriesMissing {
        /// Entries that cannot be explained.
        count: u64,
    },
    /// Entries of segments are missing: some memory is obtained that was held already, or used that was not held.
    SegmentsMissing {
        /// Entries that cannot be explained.
        count: u64,
    },
    /// The file has no final state, without which its entries do not explain what PyTorch did.
    NoFinalState,
    /// The file was cut off.
    CutOff {
        /// What is missing, in words.
        what: String,
    },
    /// It was exported from a recording that does not show the whole job.
    Exported,
    /// Of a job of several ranks, some are not there.
    RanksMissing {
        /// Which, in words.
        what: String,
    },
    /// There are no events.
    StateOnly,
}

impl Gap {
    /// The kind of recording that this makes.
    pub const fn kind(&self) -> CoverageKind {
        match self {
            Self::StartedLate { .. } => CoverageKind::StartedLate,
            Self::OutOfMemory { .. } => CoverageKind::OutOfMemory,
            Self::TailOnly { .. } => CoverageKind::TailOnly,
            Self::StateOnly => CoverageKind::StateOnly,
            _ => CoverageKind::Partial,
        }
    }

    /// Whether it hides how the job began.
    const fn hides_beginning(&self) -> bool {
        use Gap::{EntriesMissing, Exported, NoFinalState, SegmentsMissing};
        use Gap::{StartedLate, StateOnly, TailOnly};
        let is_late = matches!(self, StartedLate { .. } | TailOnly { .. } | Exported | StateOnly);
        let is_odd = matches!(self, EntriesMissing { .. } | SegmentsMissing { .. } | NoFinalState);
        is_late || is_odd
    }

    /// How to record what is missing, as an imperative.
    pub const fn cure(&self) -> &'static str {
        match self {
            Self::StartedLate { .. } => "start the recorder before the model is built",
            Self::OutOfMemory { .. } => {
                "python -m gmlake predict --memory unlimited SCRIPT gives the full need"
            }
            Self::MidStep { .. } | Self::Growing => "dump the snapshot between two steps",
            Self::TailOnly { .. } => "record with max_entries=sys.maxsize",
            Self::HistoryStopped => "dump the snapshot before you stop the recorder",
            Self::EntriesMissing { .. } | Self::SegmentsMissing { .. } => {
                "record all kinds of entries, from the start to the dump"
            }
            Self::NoFinalState => "give the whole snapshot, with its segments",
            Self::CutOff { .. } => "copy the file again, or wait for the dump to finish",
            Self::Exported => "export a complete recording",
            Self::RanksMissing { .. } => "give a recording of every rank",
            Self::StateOnly => "call torch.cuda.memory._record_memory_history() before the job",
        }
    }
}

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::StartedLate { live: 0, held } => {
                write!(f, "the recorder started late, when {} were reserved", Size(*held))
            }
            Self::StartedLate { live, .. } => {
                write!(f, "the recorder started late, when {} were in use", Size(*live))
            }
            Self::OutOfMemory { step, is_last, before_backward } => {
                let what = match is_last {
                    true => "the recording ends in an out-of-memory",
                    false => "a request ran out of memory",
                };
                let phase = if *before_backward { ", before its first backward pass" } else { "" };
                write!(f, "{what} in step {step}{phase}")
            }
            Self::TailOnly { entries } => match entries {
                1 => f.write_str("the ring buffer kept only the last entry"),
                _ => write!(f, "the ring buffer kept only the last {entries} entries"),
            },
            Self::MidStep { step } => write!(f, "the recording ends inside step {step}"),
            Self::Growing => f.write_str("memory was still growing when the recording ended"),
            Self::HistoryStopped => f.write_str("the history ends before the snapshot was taken"),
            Self::EntriesMissing { count } => {
                let verb = if *count == 1 { "does" } else { "do" };
                write!(f, "entries are missing: {count} {verb} not fit together")
            }
            Self::SegmentsMissing { count } => {
                let verb = if *count == 1 { "does" } else { "do" };
                write!(f, "entries of segments are missing: {count} {verb} not fit together")
            }
            Self::NoFinalState => f.write_str(
                "without the final state (segments), PyTorch's decisions do not follow from the \
                 entries",
            ),
            Self::CutOff { what } | Self::RanksMissing { what } => f.write_str(what),
            Self::Exported => {
                f.write_str("it was exported from a recording that is not the whole job")
            }
            Self::StateOnly => f.write_str("the snapshot has no event history"),
        }
    }
}

/// How a figure from a recording stands to that of the whole job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It is the job's.
    #[default]
    Exact,
    /// The job's is at least as large.
    AtLeast,
    /// The job's may be smaller or larger.
    About,
}

impl Certainty {
    /// The name in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::AtLeast => "at_least",
            Self::About => "about",
        }
    }

    /// What stands before such a figure.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Exact => "",
            Self::AtLeast => ">= ",
            Self::About => "~ ",
        }
    }

    /// The same in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Exact => "",
            Self::AtLeast => "at least ",
            Self::About => "about ",
        }
    }
}

/// Bytes as a reader may take them: `7.29 GiB`, `>= 7.29 GiB` for a lower bound, or `~ 7.29 GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounded {
    /// The figure.
    pub bytes: Bytes,
    /// How it stands to the job's.
    pub certainty: Certainty,
}

impl std::fmt::Display for Bounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.certainty.sign(), Size(self.bytes))
    }
}

/// How much of a job a recording shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// What it does not show, the worst first; empty if it is complete.
    gaps: Vec<Gap>,
}

impl Coverage {
    /// A recording with these gaps.
    pub fn new(mut gaps: Vec<Gap>) -> Self {
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.kind()));
        Self { gaps }
    }

    /// The kind of recording.
    pub fn kind(&self) -> CoverageKind {
        self.gaps.first().map(Gap::kind).unwrap_or_default()
    }

    /// What the recording does not show, the worst first.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether the job may need more than the recording shows.
    pub fn is_partial(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Whether ranks of the job are not there at all.
    pub fn lacks_ranks(&self) -> bool {
        self.gaps.iter().any(|gap| matches!(gap, Gap::RanksMissing { .. }))
    }

    /// Whether the recording shows the job from its first allocation on.
    pub fn sees_beginning(&self) -> bool {
        !self.gaps.iter().any(Gap::hides_beginning)
    }

    /// How a figure of what was seen stands to the job's: bytes that were live. Missing frees make it too high.
    pub fn of_what_was_seen(&self) -> Certainty {
        let lacks_frees = self.gaps.iter().any(|gap| matches!(gap, Gap::EntriesMissing { .. }));
        match self.is_partial() {
            _ if lacks_frees => Certainty::About,
            true => Certainty::AtLeast,
            false => Certainty::Exact,
        }
    }

    /// Whether figures of what was seen are lower bounds.
    pub fn is_lower_bound(&self) -> bool {
        self.of_what_was_seen() == Certainty::AtLeast
    }

    /// Whether entries of memory from the driver are missing: then it is not known what PyTorch held.
    pub fn lacks_segments(&self) -> bool {
        self.gaps.iter().any(|gap| matches!(gap, Gap::SegmentsMissing { .. }))
    }

    /// How what a simulated allocator held stands to what it would in the job. A bound is a figure of what was seen.
    pub fn of_a_run(&self, is_bound: bool) -> Certainty {
        match is_bound || self.sees_beginning() {
            true => self.of_what_was_seen(),
            false => Certainty::About,
        }
    }

    /// Whether all that it lacks is what came after an out-of-memory in the first step, which ended the program.
    pub fn ends_in_first_step(&self) -> bool {
        matches!(self.gaps[..], [Gap::OutOfMemory { step: 1, is_last: true, .. }])
    }

    /// The same, where it is known that no backward pass had begun when memory ran out.
    #[must_use]
    pub fn without_backward(mut self) -> Self {
        for gap in &mut self.gaps {
            if let Gap::OutOfMemory { before_backward, .. } = gap {
                *before_backward = true;
            }
        }
        self
    }

    /// The least complete of several, as for the ranks of a job; of equals the first.
    pub fn worst_of<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let worse = |worst: &'a Self, next: &'a Self| {
            if next.kind() > worst.kind() { next } else { worst }
        };
        all.reduce(worse).cloned().unwrap_or_default()
    }

    /// The same with more gaps.
    #[must_use]
    pub fn with(mut self, more: impl Iterator<Item = Gap>) -> Self {
        self.gaps.extend(more);
        Self::new(self.gaps)
    }

    /// What is missing, in one clause: `the recording ends in an out-of-memory in step 1`.
    pub fn reason(&self) -> String {
        let gaps: Vec<String> = self.gaps.iter().map(ToString::to_string).collect();
        gaps.join("; ")
    }

    /// What the reader of any figure must know, in a sentence; nothing if the recording is complete.
    pub fn caution(&self) -> Option<String> {
        Some(format!("{} ({})", self.limits()?, self.cure()?))
    }

    /// The same without the cure, for places with little room.
    pub fn limits(&self) -> Option<String> {
        let what = match self.of_what_was_seen() {
            Certainty::About => "estimates (~) only",
            _ if self.sees_beginning() => "lower bounds only",
            _ => "lower bounds and estimates (~) only",
        };
        self.is_partial().then(|| format!("{what}: {}", self.reason()))
    }

    /// How to record what is missing, if anything is.
    pub fn cure(&self) -> Option<&'static str> {
        self.gaps.first().map(Gap::cure)
    }
}

impl Serialize for Coverage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Coverage", 4)?;
        out.serialize_field("kind", &self.kind())?;
        out.serialize_field("is_lower_bound", &self.is_lower_bound())?;
        let gaps: Vec<String> = self.gaps.iter().map(ToString::to_string).collect();
        out.serialize_field("gaps", &gaps)?;
        out.serialize_field("cure", &self.cure())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_gap_names_the_kind() {
        let gaps = vec![Gap::StartedLate { live: 512, held: 512 }, Gap::HistoryStopped];
        let coverage = Coverage::new(gaps);
        assert_eq!(coverage.kind(), CoverageKind::Partial);
        assert_eq!(coverage.cure(), Some(Gap::HistoryStopped.cure()));
        assert!(coverage.reason().contains("512 B"));
    }

    #[test]
    fn a_job_is_as_complete_as_its_worst_rank() {
        let late = Coverage::new(vec![Gap::StartedLate { live: 512, held: 512 }]);
        let complete = Coverage::default();
        assert_eq!(Coverage::worst_of([&complete, &late].into_iter()), late);
        assert_eq!(Coverage::worst_of([&late, &complete].into_iter()), late);
        assert_eq!(Coverage::worst_of(std::iter::empty()), complete);
        assert!(!Coverage::default().is_partial());
    }

    #[test]
    fn without_the_beginning_only_what_was_seen_bounds_the_job() {
        let gaps = [
            (None, Certainty::Exact, Certainty::Exact),
            (Some(Gap::Growing), Certainty::AtLeast, Certainty::AtLeast),
            (Some(Gap::TailOnly { entries: 9 }), Certainty::AtLeast, Certainty::About),
            (Some(Gap::StateOnly), Certainty::AtLeast, Certainty::About),
            (Some(Gap::SegmentsMissing { count: 9 }), Certainty::AtLeast, Certainty::About),
            (Some(Gap::EntriesMissing { count: 9 }), Certainty::About, Certainty::About),
        ];
        for (gap, seen, simulated) in gaps {
            let coverage = Coverage::new(gap.into_iter().collect());
            let found = (coverage.of_what_was_seen(), coverage.of_a_run(false));
            assert_eq!(coverage.of_a_run(true), seen, "{coverage:?}");
            assert_eq!(found, (seen, simulated), "{coverage:?}");
        }
    }
}
