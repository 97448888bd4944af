//! Call stacks: who asked for a block, every frame and every stack stored once.
//!
//! A recording of 120,000 entries has some two hundred different stacks, of frames that occur again and again:
//!
//! ```text
//!   entry ──4 bytes──▶ stack 7: frames [3, 9, 12]  ──▶ frame 3: model.py:84 attention     innermost
//!                               compile_context,       frame 9: model.py:210 forward
//!                               user_metadata          frame 12: train.py:30 <module>     outermost
//! ```
//!
//! Python sees no frame of its own in autograd's backward threads: their blocks have no stack, or a short one that ends
//! in `torch/autograd`.

/// A place in a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The file, as the interpreter names it.
    pub file: Box<str>,
    /// The line, from 1; 0 if it is not known.
    pub line: u64,
    /// The function.
    pub function: Box<str>,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} {}", self.file, self.line, self.function)
    }
}

/// A call stack, and what else was noted about the moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    /// Numbers of its frames ([`Stacks::frames`]), innermost first; empty if only the rest is known.
    pub frames: Box<[u32]>,
    /// PyTorch's `compile_context`: the compiled region, if there was one.
    pub compile_context: Option<Box<str>>,
    /// PyTorch's `user_metadata`: what the program itself set as a label.
    pub user_metadata: Option<Box<str>>,
}

/// The call stacks of one device, in order of appearance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Every frame that occurs.
    pub frames: Vec<Frame>,
    /// Every stack that occurs; its place is its number.
    pub stacks: Vec<Stack>,
}

impl Stacks {
    /// Whether the file has no stacks, or they were skipped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The stack with this number; `None` for [`Entry::NO_STACK`](super::Entry::NO_STACK).
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Stack> {
        self.stacks.get(number as usize)
    }

    /// The frames of the stack with this number, innermost first.
    pub fn frames_of(&self, number: u32) -> impl DoubleEndedIterator<Item = &Frame> {
        let frames = self.get(number).map_or(&[][..], |stack| &stack.frames);
        frames.iter().filter_map(|&frame| self.frames.get(frame as usize))
    }

    /// Whether any stack has frames.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.stacks.iter().any(|stack| !stack.frames.is_empty())
    }
}
