//! What blame finds out, as data.

mod category;
mod diff;
mod growth;
mod history;
mod lines;
mod loss;
mod message;
mod oom;
mod refusal;
mod rows;

pub use category::{Category, Lifetime, Phases};
pub use diff::{Change, Diff, DiffRow};
pub use growth::{GrowthRow, Leftover, StepGrowth};
pub use history::{BlockLife, EventIndex, History, Life, NamedStack, Origin, SegmentLife};
pub use lines::Lines;
pub use loss::{Emptied, Loss, LossGrowth, LossRow};
pub use message::{
    Cause as MessageCause, Finding, MemorySummary, Message, MessageNumbers, SourceLine, SummaryRow,
};
pub use oom::{RecordedOom, Shortfall};
pub use refusal::{OtherProcess, Refusal, Served, UnusableFree};
pub use rows::{BEFORE, Blame, BlameRow, By, JobBlame, NO_STACK, RankBlame, RankDifference};
