//! Call stacks: every distinct frame and every distinct sequence of frames stored once.

use super::numbers::Interner;
use super::{Entry, Position, TraceError};

/// The call stacks of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Stacks {
    lines: Interner<Box<str>>,
    stacks: Interner<Box<[u32]>>,
}

/// All call stacks of a device as text, together, may not exceed this many bytes.
const MAX_TEXT: usize = 1 << 30;

impl Stacks {
    /// The number of a frame.
    pub(super) fn frame(&mut self, file: &str, line: u64, function: &str) -> u32 {
        self.lines.intern(format!("{file}:{line} {function}").into())
    }

    /// The number of a sequence of frames, innermost first.
    pub(super) fn stack(&mut self, frames: &[u32]) -> u32 {
        if frames.is_empty() { Entry::NO_STACK } else { self.stacks.intern(frames.into()) }
    }

    /// Numbers the stacks of `entries` anew in order of appearance, and returns their texts.
    pub(super) fn renumber(&self, entries: &mut [Entry]) -> Result<Vec<String>, TraceError> {
        let mut place = vec![Entry::NO_STACK; self.stacks.values().len()];
        let mut texts = Vec::new();
        let mut left = MAX_TEXT;
        for entry in entries.iter_mut().filter(|entry| entry.stack != Entry::NO_STACK) {
            let at = &mut place[entry.stack as usize];
            if *at == Entry::NO_STACK {
                *at = texts.len() as u32;
                let text = self.text(entry.stack, left).ok_or_else(too_long)?;
                left -= text.len();
                texts.push(text);
            }
            entry.stack = *at;
        }
        Ok(texts)
    }

    /// The lines of a stack, if they are not longer than `limit` bytes together.
    fn text(&self, stack: u32, limit: usize) -> Option<String> {
        let mut text = String::new();
        for &frame in &self.stacks.values()[stack as usize] {
            let line = &self.lines.values()[frame as usize];
            if text.len() + line.len() >= limit {
                return None;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
        }
        Some(text)
    }
}

fn too_long() -> TraceError {
    TraceError::new(
        Position::File,
        "call stacks above 1 GiB of text",
        "read it without call stacks",
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Action, PoolId, StreamId};
    use super::*;

    fn entry(stack: u32) -> Entry {
        let (stream, action, pool) = (StreamId(0), Action::Alloc, PoolId::DEFAULT);
        Entry { addr: 1, size: 1, time_us: 0, stack, stream, action, pool }
    }

    #[test]
    fn equal_stacks_are_one() {
        let mut stacks = Stacks::default();
        let (inner, outer) = (stacks.frame("a.py", 3, "f"), stacks.frame("b.py", 9, "main"));
        let unused = stacks.stack(&[outer]);
        let both = stacks.stack(&[inner, outer]);
        assert_eq!((stacks.stack(&[inner, outer]), stacks.stack(&[])), (both, Entry::NO_STACK));
        assert_ne!(unused, both);
        let mut entries = [entry(both); 2];
        assert_eq!(stacks.renumber(&mut entries).unwrap(), ["a.py:3 f\nb.py:9 main"]);
        assert_eq!(entries[1].stack, 0);
    }
}
