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

impl Frame {
    /// The file, the line and the function of a frame that is written as one text: `train.py:8:main`,
    /// `File "train.py", line 8, in main`, or only a function.
    pub(super) fn parts(text: &str) -> (&str, u64, &str) {
        let text = text.trim();
        if let Some((file, rest)) =
            text.strip_prefix("File \"").and_then(|t| t.split_once("\", line "))
        {
            let (line, function) = rest.split_once(", in ").unwrap_or((rest, "?"));
            return (file, line.trim().parse().unwrap_or(0), function.trim());
        }
        // The line is the first number between two colons, or the last number behind one.
        let mut from = 0;
        while let Some(at) = text[from..].find(':').map(|at| from + at) {
            let behind = &text[at + 1..];
            let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            let rest = behind[digits..].strip_prefix([':', ' ']);
            match (behind[..digits].parse(), rest) {
                (Ok(line), Some(function)) => return (&text[..at], line, function.trim()),
                (Ok(line), None) if digits == behind.len() => return (&text[..at], line, "?"),
                _ => from = at + 1,
            }
        }
        ("??", 0, text)
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
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The stack with this number; `None` for [`Entry::NO_STACK`](super::Entry::NO_STACK).
    pub fn get(&self, number: u32) -> Option<&Stack> {
        self.stacks.get(number as usize)
    }

    /// The frames of the stack with this number, innermost first.
    pub fn frames_of(&self, number: u32) -> impl DoubleEndedIterator<Item = &Frame> {
        let frames = self.get(number).map_or(&[][..], |stack| &stack.frames);
        frames.iter().filter_map(|&frame| self.frames.get(frame as usize))
    }

    /// Whether any stack has frames.
    pub fn has_frames(&self) -> bool {
        self.stacks.iter().any(|stack| !stack.frames.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_from_text() {
        for (text, parts) in [
            ("train.py:8:<module>", ("train.py", 8, "<module>")),
            ("train.py:8 main", ("train.py", 8, "main")),
            ("C:\\job\\train.py:8:main", ("C:\\job\\train.py", 8, "main")),
            ("??:0:torch::unwind::unwind()", ("??", 0, "torch::unwind::unwind()")),
            ("a.cpp:12:at::native::f(int)", ("a.cpp", 12, "at::native::f(int)")),
            ("  File \"train.py\", line 8, in main", ("train.py", 8, "main")),
            ("train.py:8", ("train.py", 8, "?")),
            ("at::native::mm(at::Tensor)", ("??", 0, "at::native::mm(at::Tensor)")),
            ("", ("??", 0, "")),
            (":", ("??", 0, ":")),
        ] {
            assert_eq!(Frame::parts(text), parts, "{text}");
        }
    }
}
