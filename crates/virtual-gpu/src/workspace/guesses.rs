//! Guesses: workspaces that nobody has measured. Each has ends between which nearly all errors of its kind lie, and it
//! is noted when it was used, so that a recording can be played again with other bytes.
//!
//! ```text
//!   plan   ─▶ note   a convolution of these shapes: 35 MB, 0 to 80 MB
//!   execute ─▶ ran   at this time      ─▶ report ─▶ `ends` finds the request in the recording
//! ```

use std::collections::BTreeMap;

use gmlake_core::units::Bytes;
use rustc_hash::FxHashMap;

use super::{Asked, Question};

/// What a workspace is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A convolution of cuDNN's: each run of it looks for it, so it is no line before it must be.
    Convolution(Asked),
    /// Anything else that can be measured: its line.
    Line(String),
    /// What cannot be measured: the function that asks, and the numbers that it is given.
    Other(&'static str, Vec<u64>),
}

impl Subject {
    /// Its line, if it can be measured.
    pub fn line(&self) -> Option<String> {
        match self {
            Self::Convolution(asked) => Some(Question::Convolution.line(asked)),
            Self::Line(line) => Some(line.clone()),
            Self::Other(..) => None,
        }
    }

    /// What it has in common with those that err alike. cuDNN mostly chooses the same kernel for a layer of a network,
    /// whatever the batch and the image: of 1,694 such pairs on an H200 both took less than the best guess, both as
    /// much, or both more in 95 of a hundred, where 47 were due to chance (`reports/predict.md`).
    fn family(&self) -> Self {
        let mut family = self.clone();
        if let Self::Convolution(asked) = &mut family {
            asked.convolution.input.drain(2..);
            asked.convolution.input.drain(..1);
            asked.convolution.output.clear();
        }
        family
    }
}

/// What convolutions are called in words.
pub const CONVOLUTIONS: &str = "convolutions";

/// Bytes that are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guess {
    /// What asks for them, in words.
    pub what: &'static str,
    /// The best guess, which the program gets.
    pub bytes: Bytes,
    /// The least, and the most.
    pub ends: (Bytes, Bytes),
    /// How many of a hundred take less, and how many take more.
    pub chances: (u8, u8),
}

/// A guess as it is reported: what, bytes, the least, the most, how many of a hundred take less, how many more, and the
/// number of its family.
pub type Row<'a> = (&'a str, Bytes, Bytes, Bytes, u8, u8, usize);

/// All guesses of a process.
#[derive(Debug, Default)]
pub struct Guesses {
    numbers: FxHashMap<Subject, usize>,
    families: FxHashMap<Subject, usize>,
    /// Each with the number of its family.
    all: Vec<(Guess, usize)>,
    /// When each was used: microseconds since 1970, and which.
    runs: Vec<(u64, usize)>,
}

impl Guesses {
    /// Notes a guess; one that has no width is none.
    pub fn note(&mut self, subject: Subject, guess: Guess) {
        if guess.ends == (guess.bytes, guess.bytes) {
            return;
        }
        let (next, family) = (self.all.len(), subject.family());
        if *self.numbers.entry(subject).or_insert(next) == next {
            self.all.push((guess, *self.families.entry(family).or_insert(next)));
        }
    }

    /// Notes that a workspace is in use at this time, if it is a guess.
    pub fn ran(&mut self, subject: &Subject, at_us: u64) {
        if let Some(&number) = self.numbers.get(subject) {
            self.runs.push((at_us, number));
        }
    }

    /// Whether there are none, so that nobody need ask.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many guesses there are of each kind but convolutions, whose layers are counted elsewhere.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for (guess, _) in self.all.iter().filter(|(guess, _)| guess.what != CONVOLUTIONS) {
            *counts.entry(guess.what).or_default() += 1;
        }
        counts
    }

    /// All guesses.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.all.iter().map(|(it, family)| {
            (it.what, it.bytes, it.ends.0, it.ends.1, it.chances.0, it.chances.1, *family)
        })
    }

    /// When each was used: microseconds, and the number of its row.
    pub fn runs(&self) -> &[(u64, usize)] {
        &self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_noted_once_and_its_uses_in_their_order() {
        let mut guesses = Guesses::default();
        let (one, two) = (Subject::Other("f", vec![1]), Subject::Other("f", vec![2]));
        let guess = |high| Guess { what: "f", bytes: 10, ends: (10, high), chances: (0, 9) };
        guesses.note(one.clone(), guess(20));
        guesses.note(one.clone(), guess(90));
        guesses.note(two.clone(), guess(10));
        for (subject, at) in [(&one, 5), (&two, 6), (&one, 7)] {
            guesses.ran(subject, at);
        }
        assert_eq!(guesses.rows().collect::<Vec<_>>(), [("f", 10, 10, 20, 0, 9, 0)]);
        assert_eq!(guesses.runs(), [(5, 0), (7, 0)]);
        assert_eq!(guesses.counts().into_iter().collect::<Vec<_>>(), [("f", 1)]);
    }
}
