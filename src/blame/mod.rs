//! Blame: who holds the memory at one moment.
//!
//! ```text
//!   At::Peak, Step(3), ... ──moments──▶ an event ──live──▶ blocks, each with its request ──names──▶ rows
//!                                          └─ with an allocator: what it then holds (sim::peak)
//! ```
//!
//! Without an allocator the moment is one of the program alone: nothing is simulated, and `peak` is when most bytes are
//! live. With an allocator, `peak` is when it holds most memory, and requests that it could not serve are not there.

mod card;
mod categories;
mod diff;
mod files;
mod growth;
mod history;
mod lines;
mod live;
mod lives;
mod loss;
mod message;
mod moments;
mod names;
mod recorded_oom;
mod refusal;
mod rows;
pub mod show;
mod times;

pub use card::{CardHistory, OtherProcess, card_history};
pub use categories::{Category, Lifetime, Phases};
pub use diff::{Change, Diff, DiffRow, Tolerance, diff};
pub use growth::{GrowthRow, Leftover, StepGrowth, growth};
pub use history::history;
pub use lines::Lines;
pub use lives::{BlockLife, EventIndex, History, Life, NamedStack, Origin, SegmentLife};
pub use loss::{Emptied, Loss, LossGrowth, LossRow, loss};
pub use message::{
    Cause as MessageCause, Finding, MemorySummary, Message, MessageNumbers, SourceLine, SummaryRow,
    explain,
};
pub use moments::At;
pub(crate) use names::Namer;
pub(crate) use recorded_oom::recorded_oom;
pub use recorded_oom::{RecordedOom, Shortfall};
pub use refusal::{Refusal, Served, UnusableFree, refusal};
pub use rows::{BEFORE, Blame, BlameRow, By, JobBlame, NO_STACK, RankBlame, RankDifference};

use rustc_hash::FxHashMap;

use crate::allocator::Role;
use crate::input_error::InputError;
use crate::sim::{Opened, RunError, Scenario};
use crate::trace::{Certainty, Coverage};
use crate::units::Bytes;
use categories::Categories;
use live::Live;

/// What is asked about a recording.
#[derive(Debug, Clone, Default)]
pub struct Question<'o> {
    /// The moment.
    pub at: At,
    /// The kind of name.
    pub by: By,
    /// Whether every frame counts, not only lines that a user can change.
    pub innermost: bool,
    /// The run whose moment it is; `None`: the program alone.
    pub scenario: Option<Scenario<'o>>,
}

impl Question<'_> {
    /// How what is held at the moment stands to what the whole job holds.
    fn certainty(&self, coverage: &Coverage) -> Certainty {
        match (self.at, &self.scenario) {
            (At::Peak, None) => coverage.of_what_was_seen(),
            (At::Peak, Some(run)) => coverage.of_a_run(run.choice.spec.role == Role::Bound),
            _ => Certainty::Exact,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum BlameError {
    /// The recording has no such moment.
    #[error(transparent)]
    Moment(#[from] InputError),
    /// The simulation came to no result.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Whose bytes are live at a moment.
///
/// # Errors
/// If there is no such moment, or the simulation fails.
pub fn blame(opened: &Opened, question: &Question<'_>) -> Result<Blame, BlameError> {
    blame_by(opened, question, &mut Namer::new(opened, question.by, question.innermost))
}

/// The same, by the names that a namer gives.
fn blame_by(
    opened: &Opened,
    question: &Question<'_>,
    namer: &mut Namer,
) -> Result<Blame, BlameError> {
    let found = live::find(opened, question)?;
    let step = found.moment.and_then(|moment| opened.step_of(moment.event as usize));
    let (mut before_bytes, mut stackless_bytes) = (0, 0);
    for block in &found.blocks {
        match namer.is_before(block.event) {
            true => before_bytes += block.bytes,
            false if !namer.has_frames(block.event) => stackless_bytes += block.bytes,
            false => {}
        }
    }
    Ok(Blame {
        file: opened.file.clone(),
        device: opened.trace.device,
        coverage: opened.coverage.clone(),
        certainty: question.certainty(&opened.coverage),
        allocator: question.scenario.as_ref().map(|run| run.choice.spec.name.to_owned()),
        at: found.words,
        event: found.moment.map(|moment| moment.event),
        time_us: found.moment.map_or(0, |moment| moment.time_us),
        step,
        live_bytes: found.blocks.iter().map(|block| block.bytes).sum(),
        reserved_bytes: found.reserved,
        stackless_bytes,
        before_bytes,
        by: question.by,
        rows: rows(opened, &found.blocks, namer),
    })
}

/// The live bytes of a moment by whole call stack: frames from the outermost on, joined by `;`, and bytes.
///
/// # Errors
/// As [`blame`].
pub fn folded(opened: &Opened, question: &Question<'_>) -> Result<Vec<(String, u64)>, BlameError> {
    let found = live::find(opened, question)?;
    let namer = Namer::new(opened, By::Stack, true);
    let mut bytes: FxHashMap<u32, (usize, u64)> = FxHashMap::default();
    for block in &found.blocks {
        let stack = opened.trace.stack_of(block.event);
        bytes.entry(stack).or_insert((block.event, 0)).1 += block.bytes;
    }
    let line = |(event, bytes): (usize, u64)| {
        let frames = namer.frames(event).into_iter().map(|frame| frame.replace(';', ","));
        (frames.collect::<Vec<_>>().join(";"), bytes)
    };
    let mut lines: Vec<(String, u64)> = bytes.into_values().map(line).collect();
    lines.sort_unstable();
    lines.dedup_by(|next, first| {
        let is_same = next.0 == first.0;
        first.1 += if is_same { next.1 } else { 0 };
        is_same
    });
    Ok(lines)
}

/// The live bytes of a moment by what the program noted that they are for, by what the rule says, and by line. Empty if
/// the program noted nothing.
///
/// # Errors
/// As [`blame`].
pub fn verdicts(
    opened: &Opened,
    question: &Question<'_>,
) -> Result<Vec<(Category, Category, String, u64)>, BlameError> {
    let found = live::find(opened, question)?;
    let mut categories = Categories::new(opened);
    let mut namer = Namer::new(opened, By::Line, false);
    let mut bytes: FxHashMap<(Category, Category, String), u64> = FxHashMap::default();
    for block in &found.blocks {
        let Some(noted) = categories.noted(block.event) else { continue };
        let key = (noted, categories.by_rule(block.event), namer.name(block.event, block.bytes));
        *bytes.entry(key).or_default() += block.bytes;
    }
    let mut rows: Vec<_> = bytes.into_iter().map(|((a, b, line), n)| (a, b, line, n)).collect();
    rows.sort_by(|a, b| (b.3, &a.2, a.0.name()).cmp(&(a.3, &b.2, b.0.name())));
    Ok(rows)
}

fn rows(opened: &Opened, blocks: &[Live], namer: &mut Namer) -> Vec<BlameRow> {
    let mut sums: FxHashMap<String, Sum> = FxHashMap::default();
    for block in blocks {
        let name = namer.name(block.event, block.bytes);
        let sum = sums.entry(name).or_insert_with(|| Sum::from(block.event));
        sum.bytes += block.bytes;
        sum.blocks += 1;
        sum.oldest = sum.oldest.min(block.event);
        let stack = opened.trace.stack_of(block.event);
        sum.stacks.entry(stack).or_insert((0, block.event)).0 += block.bytes;
    }
    let row = |(name, sum): (String, Sum)| BlameRow {
        own: namer.own_of(&name, sum.stacks.into_values()),
        name,
        bytes: sum.bytes,
        blocks: sum.blocks,
        oldest_step: opened.step_of(sum.oldest),
    };
    let mut rows: Vec<BlameRow> = sums.into_iter().map(row).collect();
    rows.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
    rows
}

/// A row while it is added up.
struct Sum {
    bytes: Bytes,
    blocks: u64,
    oldest: usize,
    /// Bytes of each call stack, with an event that has it.
    stacks: FxHashMap<u32, (Bytes, usize)>,
}

impl Sum {
    fn from(event: usize) -> Self {
        Self { bytes: 0, blocks: 0, oldest: event, stacks: FxHashMap::default() }
    }
}
