//! Growth: memory that is left over from step to step, by name.

use rustc_hash::FxHashMap;

use super::data::{By, GrowthRow, Leftover, StepGrowth};
use super::names::Namer;
use crate::sim::Opened;
use crate::trace::{Trace, lifetimes};
use crate::units::Bytes;

/// What one name left over, step by step.
struct Series {
    /// Change of live bytes and blocks at the end of each step.
    levels: Vec<(i128, i64)>,
    /// For each step, whether something that it left is live in the end.
    lasting: Vec<bool>,
    blocks: u64,
    steps: (u64, u64),
    /// Bytes of each call stack, with a request that has it.
    stacks: FxHashMap<u32, (Bytes, usize)>,
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
        if life.upper < trace.steps[step + after].end {
            continue;
        }
        let series = names.entry(namer.name(life.lower, life.size)).or_insert_with(|| Series {
            levels: vec![(0, 0); judged],
            lasting: vec![false; judged],
            blocks: 0,
            steps: (step as u64 + 1, 0),
            stacks: FxHashMap::default(),
        });
        let stack = trace.stack_of(life.lower);
        series.stacks.entry(stack).or_insert((0, life.lower)).0 += life.size;
        // It counts from the end of its step to the end of the last one that it lives through.
        let gone = trace.steps.partition_point(|own| own.end <= life.upper).min(judged);
        let bytes = i128::from(life.size);
        let add = |level: &mut (i128, i64), sign: i64| {
            *level = (level.0 + i128::from(sign) * bytes, level.1 + sign);
        };
        add(&mut series.levels[step], 1);
        match series.levels.get_mut(gone) {
            Some(level) => add(level, -1),
            None => series.lasting[step] = true,
        }
        series.blocks += 1;
        let number = step as u64 + 1;
        series.steps = (series.steps.0.min(number), series.steps.1.max(number));
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
        blocks: series.blocks,
        per_step_bytes: (last as i64 - middle as i64) / steps,
        steps: series.steps,
    }
}

fn step_at(trace: &Trace, event: usize) -> Option<usize> {
    let place = trace.steps.partition_point(|step| step.start <= event).checked_sub(1)?;
    (event < trace.steps[place].end).then_some(place)
}
