//! Left over: what was asked for in one step and is still live some steps later.
//!
//! ```text
//!   blocks at the ends of steps ▁▁█████████   state: there from the first steps on, and no more of it later
//!                               ▂▄▆▇███████   a cache: it grew, and then no more; or what it holds is replaced
//!                               ▁▂▃▄▅▆▇█▉██   a leak: more in nearly every step, to the end
//! ```
//!
//! - **State** is what no step after the second left behind.
//! - A **leak** grows as often in the second half of the steps as in the first, or in a third of them. It grows in a
//!   step at whose end more of its blocks are live than ever before. What is live at the end of the last step judged is
//!   from as many steps: nothing of it was given back while the job trained.
//! - A **cache** is everything else. A tensor that is replaced by a larger one is no leak, however large it becomes.
//!
//! What the first two steps leave is state, so that only a third one can show a leak. Before it, what grows is
//! **unknown**.

use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::names::Namer;
use super::rows::By;
use crate::sim::Opened;
use crate::trace::{Lifetime, Trace, lifetimes};
use crate::units::Bytes;

/// Steps in which state comes; only what grows after them is a leak.
const STATE_STEPS: usize = 2;

/// Steps that must be judged before a leak can be found.
const LEAST_JUDGED: usize = STATE_STEPS + 1;

/// Growths in the second half of the steps without which rare ones make no leak.
const LEAST_GROWTHS: usize = 2;

/// What kind of left-over it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Leftover {
    /// It grows to the end.
    Leak,
    /// It grew for a while, or is replaced.
    Cache,
    /// It came in the first steps and stayed.
    State,
    /// It grew, in too few steps to say more.
    Unknown,
}

impl Leftover {
    /// Tells the kind by the live bytes and blocks at the end of each step. `lasting`: for each step, whether something
    /// that it left is live at the end of the last.
    pub fn of(levels: &[(Bytes, u64)], lasting: &[bool]) -> Self {
        let grew = |place: &usize| levels[..*place].iter().all(|own| own.1 < levels[*place].1);
        let half = levels.len() / 2;
        let growths = |places: Range<usize>| places.filter(grew).count();
        let before = growths(STATE_STEPS..half.max(STATE_STEPS));
        let growing = growths(half.max(STATE_STEPS)..levels.len());
        let last = lasting.iter().skip(half).filter(|&&lasts| lasts).count();
        let is_short = levels.len() < LEAST_JUDGED;
        let settled = if is_short { levels } else { &levels[STATE_STEPS - 1..] };
        let is_constant = levels.len() > 1 && settled.iter().all(|level| level == &settled[0]);
        // Growths that are evenly spaced are one fewer in a half than in the other, at most.
        let as_often = before.saturating_sub(1).max(LEAST_GROWTHS);
        match (levels.len() - half).div_ceil(3).min(as_often) {
            _ if is_constant => Self::State,
            _ if is_short => Self::Unknown,
            enough if growing.min(last) >= enough => Self::Leak,
            _ => Self::Cache,
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::Cache => "cache",
            Self::State => "state",
            Self::Unknown => "unknown",
        }
    }
}

/// What one name left over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrowthRow {
    /// The name.
    pub name: String,
    /// Where rows are lines: the user's own line that called it for most bytes, if that is another one.
    pub own: Option<String>,
    /// What kind it is.
    pub kind: Leftover,
    /// Bytes left over that are live at the end of the last step that can be judged.
    pub bytes: Bytes,
    /// The part of them that is live at the end of the recording.
    pub kept_bytes: Bytes,
    /// Blocks left over, freed since or not.
    pub blocks: u64,
    /// Bytes more at the end of each step, on average over the second half of the steps.
    pub per_step_bytes: i64,
    /// Steps that left something, first and last, from 1.
    pub steps: (u64, u64),
}

/// What was left over from step to step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StepGrowth {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// Training steps.
    pub steps: u64,
    /// Steps after which what is still live is left over.
    pub after: u64,
    /// Leaks first, then caches, then state; the largest first.
    pub rows: Vec<GrowthRow>,
}

impl StepGrowth {
    /// Training steps without which no leak can be found.
    pub const fn least_steps(&self) -> u64 {
        self.after.saturating_add(LEAST_JUDGED as u64)
    }
}

/// What one name left over, step by step.
struct Series {
    /// Change of live bytes and blocks at the end of each step.
    levels: Vec<(i128, i64)>,
    /// For each step, whether something that it left is live at the end of the last.
    lasting: Vec<bool>,
    kept_bytes: Bytes,
    blocks: u64,
    steps: (u64, u64),
    /// Bytes of each call stack, with a request that has it.
    stacks: FxHashMap<u32, (Bytes, usize)>,
}

impl Series {
    fn new(judged: usize) -> Self {
        Self {
            levels: vec![(0, 0); judged],
            lasting: vec![false; judged],
            kept_bytes: 0,
            blocks: 0,
            steps: (u64::MAX, 0),
            stacks: FxHashMap::default(),
        }
    }

    /// A block that counts from the end of its step to the end of the last one that it lives through.
    fn add(&mut self, trace: &Trace, step: usize, life: &Lifetime) {
        let gone = trace.steps.partition_point(|own| own.end <= life.upper);
        let add = |level: &mut (i128, i64), sign: i64| {
            *level = (level.0 + i128::from(sign) * i128::from(life.size), level.1 + sign);
        };
        add(&mut self.levels[step], 1);
        match self.levels.get_mut(gone) {
            Some(level) => add(level, -1),
            None => {
                self.lasting[step] = true;
                let is_kept = life.upper == trace.events.len();
                self.kept_bytes += if is_kept { life.size } else { 0 };
            }
        }
        let stack = self.stacks.entry(trace.stack_of(life.lower)).or_insert((0, life.lower));
        stack.0 += life.size;
        self.blocks += 1;
        let number = step as u64 + 1;
        self.steps = (self.steps.0.min(number), self.steps.1.max(number));
    }
}

/// What was requested in a step and is still live at the end of the step that comes `after` steps later.
pub fn growth(opened: &Opened, by: By, innermost: bool, after: u64) -> StepGrowth {
    let trace = &opened.trace;
    let mut namer = Namer::new(opened, by, innermost);
    let after = usize::try_from(after).unwrap_or(usize::MAX);
    // The last steps cannot be judged: what they leave may be freed in the next one.
    let judged = trace.steps.len().saturating_sub(after);
    let mut names: FxHashMap<String, Series> = FxHashMap::default();
    for life in lifetimes(trace) {
        let Some(step) = step_at(trace, life.lower).filter(|&step| step < judged) else {
            continue;
        };
        if life.upper >= trace.steps[step + after].end {
            let name = namer.name(life.lower, life.size);
            names.entry(name).or_insert_with(|| Series::new(judged)).add(trace, step, &life);
        }
    }
    let mut rows: Vec<GrowthRow> =
        names.into_iter().map(|(name, series)| row(name, series, &namer)).collect();
    rows.sort_by(|a, b| {
        let rank = |row: &GrowthRow| (row.kind, std::cmp::Reverse(row.bytes));
        rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
    });
    StepGrowth {
        file: opened.file.clone(),
        device: trace.device,
        steps: trace.steps.len() as u64,
        after: after as u64,
        rows,
    }
}

fn row(name: String, series: Series, namer: &Namer) -> GrowthRow {
    let mut sum = (0_i128, 0_i64);
    let add = |change: (i128, i64)| {
        sum = (sum.0 + change.0, sum.1 + change.1);
        (Bytes::try_from(sum.0).unwrap_or(0), u64::try_from(sum.1).unwrap_or(0))
    };
    let levels: Vec<(Bytes, u64)> = series.levels.into_iter().map(add).collect();
    let half = levels.len() / 2;
    let middle = levels[half.saturating_sub(1)].0;
    let last = levels.last().map_or(0, |level| level.0);
    let steps = (levels.len() - half.max(1)).max(1) as i64;
    GrowthRow {
        own: namer.own_of(&name, series.stacks.into_values()),
        name,
        kind: Leftover::of(&levels, &series.lasting),
        bytes: last,
        kept_bytes: series.kept_bytes,
        blocks: series.blocks,
        per_step_bytes: (last as i64 - middle as i64) / steps,
        steps: series.steps,
    }
}

fn step_at(trace: &Trace, event: usize) -> Option<usize> {
    let place = trace.steps.partition_point(|step| step.start <= event).checked_sub(1)?;
    (event < trace.steps[place].end).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_caches_and_leaks_are_told_apart() {
        for (blocks, kind) in [
            (&[5, 9, 9, 9, 9, 9][..], Leftover::State),
            (&[9, 9], Leftover::State),
            (&[9], Leftover::Unknown),
            (&[1, 2], Leftover::Unknown),
            (&[1, 2, 3], Leftover::Leak),
            (&[2, 4, 6, 7, 7, 7, 7, 7], Leftover::Cache),
            (&[3, 5, 4, 5, 3, 5, 4, 5], Leftover::Cache),
            (&[1, 2, 3, 4, 5, 6, 7, 8], Leftover::Leak),
            (&[1, 1, 1, 1, 2, 2, 3, 3, 4, 4], Leftover::Leak),
            (&[0, 0, 1, 2], Leftover::Leak),
        ] {
            let levels: Vec<(Bytes, u64)> = blocks.iter().map(|&n| (512 * n, n)).collect();
            assert_eq!(Leftover::of(&levels, &vec![true; levels.len()]), kind, "{levels:?}");
        }
    }

    /// The levels of something that grows in these steps, from 1, and is never freed.
    fn kept(steps: usize, grows: impl Fn(usize) -> bool) -> (Vec<(Bytes, u64)>, Vec<bool>) {
        let lasting: Vec<bool> = (1..=steps).map(grows).collect();
        let blocks = |step: usize| lasting[..step].iter().filter(|&&grew| grew).count() as u64;
        ((1..=steps).map(|step| (512 * blocks(step), blocks(step))).collect(), lasting)
    }

    #[test]
    fn a_leak_may_be_as_rare_as_it_likes_where_it_keeps_coming() {
        for every in 1..60 {
            for steps in 4 * every..=120 {
                for first in 1..=every {
                    let (levels, lasting) = kept(steps, |step| step % every == first % every);
                    let found = Leftover::of(&levels, &lasting);
                    assert_eq!(found, Leftover::Leak, "{every}, {first} of {steps}");
                }
            }
        }
    }

    #[test]
    fn what_comes_ever_more_rarely_is_no_leak() {
        for steps in 8..200 {
            let (levels, lasting) = kept(steps, usize::is_power_of_two);
            assert_eq!(Leftover::of(&levels, &lasting), Leftover::Cache, "{steps}");
            let (levels, lasting) = kept(steps, |step| step <= steps / 2);
            assert_eq!(Leftover::of(&levels, &lasting), Leftover::Cache, "{steps}");
        }
    }

    #[test]
    fn what_is_replaced_is_no_leak() {
        // One block that is larger in each step; then more blocks in each step, all of them new.
        let larger: Vec<(Bytes, u64)> = (1..9).map(|step| (512 * step, 1)).collect();
        let more: Vec<(Bytes, u64)> = (1..9).map(|step| (512 * step, step)).collect();
        let lasting: Vec<bool> = (1..9).map(|step| step == 8).collect();
        assert_eq!(Leftover::of(&larger, &lasting), Leftover::Cache);
        assert_eq!(Leftover::of(&more, &lasting), Leftover::Cache);
        assert_eq!(Leftover::of(&more, &[true; 8]), Leftover::Leak);
    }
}
