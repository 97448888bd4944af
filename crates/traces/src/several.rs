//! Several snapshots in one file: dumps one behind the other, or a list or a dict with one for each rank or moment.
//!
//! `--snapshot N` chooses one, in the order of the file. Without it, the last of several dumps is taken and it is said;
//! a list or a dict of them is refused, since its snapshots are mostly of different ranks.

use super::{Position, Records, TraceError};
use super::{Warning, WarningKind};

/// The error for a list or a dict of snapshots of which none is chosen.
#[cold]
pub(super) fn choose(count: usize) -> TraceError {
    let problem = format!("holds {count} snapshots, of ranks or of moments");
    let remedy = "choose one with --snapshot N; or save each to a file of its own, such as \
                  rank0.pickle, rank1.pickle, and give the folder";
    TraceError::new(Position::File, problem, remedy)
}

/// The error for a number that no snapshot of the file has.
#[cold]
pub(super) fn beyond(number: usize, count: usize) -> TraceError {
    let problem = match count {
        0 | 1 => format!("holds one snapshot, and no number {number}"),
        _ => format!("holds {count} snapshots, and no number {number}"),
    };
    let remedy = match count {
        0 | 1 => "leave --snapshot out".to_owned(),
        _ => format!("choose 1 to {count} with --snapshot"),
    };
    TraceError::new(Position::File, problem, &remedy)
}

/// Warns of what a file has besides the last of its `count` snapshots, which is read.
pub(super) fn note_the_others(records: &mut [Records], count: u64, rest: u64) {
    let mut warn = |kind, count, first: String| {
        let warning = Warning { kind, count, first };
        records.iter_mut().for_each(|one| one.warnings.push(warning.clone()));
    };
    if count > 1 {
        let first = format!("this is number {count} of {count}, the last");
        warn(WarningKind::SeveralSnapshots, count, first);
    }
    if rest > 0 {
        warn(WarningKind::Trailing, 1, format!("{rest} bytes behind the snapshot"));
    }
}
