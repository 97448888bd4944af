//! The stack table: the call stacks of a file while it is read, each distinct one stored once.
//!
//! Frames, lists of frames and labels get numbers as they appear. When a device is complete, the stacks that it uses
//! are numbered anew in order of its entries, so that files that say the same are read as the same.

use super::numbers::Interner;
use super::{Entry, Frame, Stack, Stacks};

/// The call stacks of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct StackTable {
    frames: Interner<Frame>,
    lists: Interner<Box<[u32]>>,
    labels: Interner<Box<str>>,
    stacks: Interner<RawStack>,
}

/// A stack as numbers: of its list of frames, and of its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RawStack {
    list: u32,
    compile_context: u32,
    user_metadata: u32,
}

/// No list of frames, or no label.
const NONE: u32 = u32::MAX;

/// What PyTorch writes where nothing was compiled.
pub(super) const NOT_COMPILED: &str = "N/A";

impl StackTable {
    /// The number of a frame.
    pub(super) fn frame(&mut self, file: &str, line: u64, function: &str) -> u32 {
        self.frames.intern(Frame { file: file.into(), line, function: function.into() })
    }

    /// The number of a frame that is written as one text.
    pub(super) fn frame_of_text(&mut self, text: &str) -> u32 {
        let (file, line, function) = Frame::parts(text);
        self.frame(file, line, function)
    }

    /// The number of a sequence of frames, innermost first.
    pub(super) fn list(&mut self, frames: &[u32]) -> u32 {
        if frames.is_empty() { NONE } else { self.lists.intern_ref(frames) }
    }

    /// The number of a stack: a list of frames with the labels that PyTorch writes next to it.
    pub(super) fn stack(&mut self, list: u32, compile_context: &str, user_metadata: &str) -> u32 {
        let is_compiled = ![NOT_COMPILED, ""].contains(&compile_context);
        let label = |labels: &mut Interner<Box<str>>, text: &str, is_set: bool| {
            if is_set { labels.intern_ref(text) } else { NONE }
        };
        let stack = RawStack {
            list,
            compile_context: label(&mut self.labels, compile_context, is_compiled),
            user_metadata: label(&mut self.labels, user_metadata, !user_metadata.is_empty()),
        };
        let is_empty =
            (stack.list, stack.compile_context, stack.user_metadata) == (NONE, NONE, NONE);
        if is_empty { Entry::NO_STACK } else { self.stacks.intern(stack) }
    }

    /// Gives the stacks behind `numbers` new numbers in order of appearance, and returns them.
    pub(super) fn renumber<'n>(&self, numbers: impl Iterator<Item = &'n mut u32>) -> Stacks {
        let mut place = vec![NONE; self.stacks.values().len()];
        let mut frame_place = vec![NONE; self.frames.values().len()];
        let mut used = Stacks::default();
        if place.is_empty() {
            return used;
        }
        for number in numbers.filter(|number| **number != Entry::NO_STACK) {
            let at = &mut place[*number as usize];
            if *at == NONE {
                *at = used.stacks.len() as u32;
                let stack = self.resolve(*number, &mut frame_place, &mut used.frames);
                used.stacks.push(stack);
            }
            *number = *at;
        }
        used
    }

    fn resolve(&self, number: u32, place: &mut [u32], used: &mut Vec<Frame>) -> Stack {
        let raw = self.stacks.values()[number as usize];
        let list = self.lists.values().get(raw.list as usize).map_or(&[][..], |list| list);
        let frame = |&frame: &u32| {
            let at = &mut place[frame as usize];
            if *at == NONE {
                *at = used.len() as u32;
                used.push(self.frames.values()[frame as usize].clone());
            }
            *at
        };
        let label = |label: u32| self.labels.values().get(label as usize).cloned();
        Stack {
            frames: list.iter().map(frame).collect(),
            compile_context: label(raw.compile_context),
            user_metadata: label(raw.user_metadata),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one_and_unused_ones_are_left_out() {
        let mut table = StackTable::default();
        let (inner, outer) = (table.frame("a.py", 3, "f"), table.frame("b.py", 9, "main"));
        let odd = table.frame("c.py", 1, "g");
        let lists = [table.list(&[odd]), table.list(&[inner, outer]), table.list(&[])];
        let unused = table.stack(lists[0], "N/A", "");
        let both = table.stack(lists[1], "N/A", "");
        assert_eq!(table.list(&[inner, outer]), lists[1]);
        assert_eq!(table.stack(lists[1], "", ""), both);
        assert_eq!(table.stack(lists[2], "N/A", ""), Entry::NO_STACK);
        assert_ne!(unused, both);
        let labelled = table.stack(lists[1], "0/1", "epoch 3");
        let mut numbers = [labelled, Entry::NO_STACK, both, labelled];
        let stacks = table.renumber(numbers.iter_mut());
        assert_eq!(numbers, [0, Entry::NO_STACK, 1, 0]);
        let texts: Vec<_> = stacks.frames_of(1).map(ToString::to_string).collect();
        assert_eq!(texts, ["a.py:3 f", "b.py:9 main"]);
        assert_eq!(stacks.frames.len(), 2, "frames of unused stacks are kept");
        let first = stacks.get(0).unwrap();
        assert_eq!(first.frames, stacks.stacks[1].frames);
        assert_eq!(first.compile_context.as_deref(), Some("0/1"));
        assert_eq!(first.user_metadata.as_deref(), Some("epoch 3"));
    }
}
