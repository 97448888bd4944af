//! The difference between the peaks of two recordings, and how much growth is tolerated.

use std::str::FromStr;

use super::data::{By, Diff};
use super::files::Files;
use super::names::Namer;
use super::{BlameError, Question, blame_by};
use crate::sim::Opened;
use crate::trace::Coverage;
use crate::units::{Bytes, parse_share, parse_size};

/// How much larger a peak may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// A share of the peak before.
    Share(f64),
    /// This many bytes.
    Bytes(Bytes),
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.trim_end().ends_with('%') {
            return parse_size(text).map(Self::Bytes);
        }
        let share = parse_share(text).ok().filter(|&share| share >= 0.0);
        share.map(Self::Share).ok_or_else(|| {
            format!("invalid tolerance {text:?}; expected a share (1%) or a size (64MiB)")
        })
    }
}

impl Tolerance {
    /// Whether the second peak is larger than is tolerated; `None` if the recordings do not show it. The peak of a job
    /// that was recorded in part may be larger: before, it makes growth less, and after, more.
    pub fn is_exceeded(self, diff: &Diff) -> Option<bool> {
        let is_exceeded = match self {
            Self::Share(share) => diff.growth() as f64 > share * diff.live_bytes[0] as f64,
            Self::Bytes(bytes) => diff.growth() > i128::from(bytes),
        };
        let [before, after] = diff.coverage.each_ref().map(Coverage::is_partial);
        let is_open = if is_exceeded { before } else { after };
        (!is_open).then_some(is_exceeded)
    }
}

/// The peaks of live bytes of two recordings, by name.
///
/// # Errors
/// If one of them is empty.
pub fn diff(before: &Opened, after: &Opened, by: By, innermost: bool) -> Result<Diff, BlameError> {
    let question = Question { by, innermost, ..Question::default() };
    let [old, new] = Files::of_both(&before.records.stacks, &after.records.stacks);
    let mut namers = [
        Namer::with_files(before, by, innermost, old),
        Namer::with_files(after, by, innermost, new),
    ];
    let lines = [namers[0].lines(), namers[1].lines()];
    let [old, new] = &mut namers;
    let peaks = [blame_by(before, &question, old)?, blame_by(after, &question, new)?];
    let coverage = [before, after].map(|opened| opened.coverage.clone());
    let mut diff = Diff::of(&peaks[0], &peaks[1], &lines).of_parts(coverage);
    let reserved = |opened: &Opened| opened.recorded.as_ref().map(|run| run.reserved_peak_bytes);
    diff.reserved_bytes = [reserved(before), reserved(after)];
    Ok(diff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Gap;

    /// `None`: the job's peak after may be larger than what was recorded of it, the one before too.
    #[test]
    fn of_parts_only_what_no_larger_peak_refutes_is_known() {
        let part = || Coverage::new(vec![Gap::Growing]);
        let tolerance: Tolerance = "1%".parse().unwrap();
        for (live_bytes, of_first, of_second, of_both) in
            [([1000, 1011], None, Some(true), None), ([1000, 1010], Some(false), None, None)]
        {
            let is_exceeded =
                |coverage| tolerance.is_exceeded(&Diff { live_bytes, coverage, ..Diff::default() });
            assert_eq!(is_exceeded([part(), Coverage::default()]), of_first);
            assert_eq!(is_exceeded([Coverage::default(), part()]), of_second);
            assert_eq!(is_exceeded([part(), part()]), of_both);
        }
    }

    #[test]
    fn a_tolerance_is_a_share_or_a_size() {
        let diff = Diff { live_bytes: [1000, 1010], ..Diff::default() };
        for (text, is_exceeded) in
            [("0%", true), ("0.9%", true), ("1%", false), ("9B", true), ("10", false)]
        {
            let tolerance: Tolerance = text.parse().unwrap();
            assert_eq!(tolerance.is_exceeded(&diff), Some(is_exceeded), "{text}");
        }
        for text in ["", "%", "-1%", "x", "nan%"] {
            assert!(text.parse::<Tolerance>().is_err(), "{text}");
        }
    }
}
