//! Texts that come again and again in a run of entries: actions and labels, recognised by how they are written.

use super::super::torch::RawAction;
use super::memo::Slot;
use super::scan::{Pattern, Scan, Text};

/// Texts that were met last, by how they are written.
#[derive(Default)]
pub(super) struct Texts<'a> {
    known: Vec<Known<'a>>,
    oldest: usize,
}

/// A text that was met, and what there is to know about it.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) pattern: Pattern<'a>,
    pub(super) text: Text<'a>,
    pub(super) action: RawAction,
    /// It in the memo. Equal texts count as the first.
    pub(super) slot: Slot,
}

/// Texts of a kind that are kept. There are nine actions, and few labels at a time.
const TEXTS: usize = 12;

impl<'a> Texts<'a> {
    #[inline]
    pub(super) fn find(&self, scan: &Scan<'a>) -> Option<Known<'a>> {
        let word = scan.word()?;
        self.known.iter().find(|known| known.pattern.is_at(word, scan)).copied()
    }

    pub(super) fn add(&mut self, new: Known<'a>) {
        if self.known.len() < TEXTS {
            self.known.push(new);
        } else {
            self.known[self.oldest % TEXTS] = new;
            self.oldest += 1;
        }
    }
}
