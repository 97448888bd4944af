//! Left over: what was asked for in one step and is still live some steps later.
//!
//! ```text
//!   blocks at the ends of steps ▁▁█████████   state: there from the first steps on, and no more of it later
//!                               ▂▄▆▇███████   a cache: it grew, and then no more; or what it holds is replaced
//!                               ▁▂▃▄▅▆▇█▉██   a leak: more in nearly every step, to the end
//! ```
//!
//! - **State** is what no step after the second left behind.
//! - A **leak** has more live blocks than ever before at the ends of at least a third of the steps in the second half,
//!   and what is live in the end is from as many of these steps: nothing of it was given back.
//! - A **cache** is everything else. A tensor that is replaced by a larger one is no leak, however large it becomes.
//!
//! What the first two steps leave is state, so that only a third one can show a leak. Before it, what grows is
//! **unknown**.

use serde::Serialize;

use super::rows::with_own;
use crate::units::Bytes;

/// Steps in which state comes; only what grows after them is a leak.
const STATE_STEPS: usize = 2;

/// Steps that must be judged before a leak can be found.
const LEAST_JUDGED: usize = STATE_STEPS + 1;

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
    /// that it left is live in the end.
    pub fn of(levels: &[(Bytes, u64)], lasting: &[bool]) -> Self {
        let grew = |place: usize| levels[..place].iter().all(|before| before.1 < levels[place].1);
        let half = levels.len() / 2;
        let later = half.max(STATE_STEPS)..levels.len();
        let growing = later.filter(|&place| grew(place)).count();
        let last = lasting.iter().skip(half).filter(|&&lasts| lasts).count();
        let is_short = levels.len() < LEAST_JUDGED;
        let settled = if is_short { levels } else { &levels[STATE_STEPS - 1..] };
        let is_constant = levels.len() > 1 && settled.iter().all(|level| level == &settled[0]);
        match (levels.len() - half).div_ceil(3) {
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
    /// Blocks left over, freed since or not.
    pub blocks: u64,
    /// Bytes more at the end of each step, on average over the second half of the steps.
    pub per_step_bytes: i64,
    /// Steps that left something, first and last, from 1.
    pub steps: (u64, u64),
}

impl GrowthRow {
    /// The name, and behind it the user's own line that called it.
    pub fn with_own(&self) -> String {
        with_own(&self.name, self.own.as_deref())
    }
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
