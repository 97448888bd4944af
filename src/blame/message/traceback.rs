//! The call stack above a message: Python's own, or IPython's, with or without what a log writes before each line.

use super::SourceLine;
use super::amount::digits;
use crate::blame::files::{in_package, is_of_user};
use crate::trace::Frame;
use crate::trace::text::{process_of, without_prefix};

/// Lines without a frame between two frames of one stack: the source line, its marks, what others write between.
const BETWEEN: usize = 12;

/// The innermost line that a user can change, of the stack that ends in the message at this place. The user's own files
/// come first, then those of packages other than PyTorch.
///
/// Other stacks say nothing of the request: those of other processes, those below the message, those that end in
/// another exception, and those of a `raise` that passes the message on.
pub(super) fn innermost(text: &str, at: usize) -> Option<SourceLine> {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let process = process_of(&text[line..]);
    let above = text[..line].lines().rev().filter(|line| process_of(line) == process);
    let frames = stack(above)?;
    let is_own = |frame: &&Frame| is_of_user(frame) && in_package(&frame.file).is_none();
    let found = frames.iter().find(is_own).or_else(|| frames.iter().find(|f| is_of_user(f)))?;
    let (file, function) = (found.file.to_string(), found.function.to_string());
    Some(SourceLine { file, line: found.line, function })
}

/// The frames of the stack that these lines end with, the last of both first.
fn stack<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Vec<Frame>> {
    let (mut frames, mut gap, mut arrow, mut source) = (Vec::new(), 0, 0, "");
    for line in lines {
        if line.contains("Traceback (most recent call last)") && !frames.is_empty() {
            break;
        }
        let bare = without_prefix(line);
        match frame(bare) {
            Some(_) if frames.is_empty() && source.starts_with("raise ") => return None,
            Some(frame) => {
                let line = if frame.line == 0 { arrow } else { frame.line };
                frames.push(Frame { line, ..frame });
                gap = 0;
            }
            None if frames.is_empty() && ends_another(bare) => return None,
            None => {
                gap += 1;
                match marked(bare) {
                    Some((number, code)) => (arrow, source) = (number, code),
                    None if arrow == 0 => source = bare,
                    None => {}
                }
            }
        }
        // The message itself may be far below the stack, but a stack has no such holes.
        if gap > if frames.is_empty() { 8 * BETWEEN } else { 2 * BETWEEN } {
            break;
        }
    }
    Some(frames)
}

/// `ValueError: bad`, below a stack: how another exception ends. A message that was wrapped leaves `RuntimeError:`.
fn ends_another(line: &str) -> bool {
    const ENDS: [&str; 4] = ["Error", "Exception", "Interrupt", "Exit"];
    let name = line.split(':').next().unwrap_or(line);
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    is_name && ENDS.iter().any(|end| name.ends_with(end)) && !line.trim_end().ends_with(':')
}

fn frame(line: &str) -> Option<Frame> {
    python(line).or_else(|| ipython(line)).or_else(|| old_ipython(line))
}

/// `File "train.py", line 31, in step`
fn python(line: &str) -> Option<Frame> {
    let (_, rest) = line.split_once("File \"")?;
    let (file, rest) = rest.split_once("\", line ")?;
    let (number, rest) = digits(rest)?;
    let function = rest.strip_prefix(", in ").unwrap_or("");
    Some(made(file, number, function))
}

/// `File ~/train.py:31, in step(x)` and `Cell In[5], line 3`
fn ipython(line: &str) -> Option<Frame> {
    let trimmed = line.trim_start();
    if trimmed.starts_with("Cell In") {
        let (cell, rest) = trimmed.split_once(", line ")?;
        return Some(made(&format!("<ipython-input {cell}>"), digits(rest)?.0, ""));
    }
    let (file, rest) = trimmed.strip_prefix("File ")?.split_once(':')?;
    let (number, rest) = digits(rest)?;
    let function = rest.strip_prefix(", in ").unwrap_or("");
    Some(made(file, number, function.split('(').next().unwrap_or("")))
}

/// `/usr/lib/python3/dist-packages/torch/nn/functional.py in silu(input)`, whose line is the one with the arrow below.
fn old_ipython(line: &str) -> Option<Frame> {
    let (file, function) = line.trim().split_once(" in ")?;
    let is_file = file.ends_with(".py") || file.starts_with("<ipython-input");
    let is_one = is_file && !file.contains(' ');
    is_one.then(|| made(file, 0, function.split('(').next().unwrap_or("")))
}

/// The number and the code of the line that IPython marks with an arrow.
fn marked(line: &str) -> Option<(u64, &str)> {
    let (arrow, rest) = line.trim().split_once("> ")?;
    let is_arrow = !arrow.is_empty() && arrow.chars().all(|c| c == '-');
    let (number, code) = is_arrow.then(|| digits(rest.trim_start()))??;
    Some((number, code.trim_start()))
}

fn made(file: &str, line: u64, function: &str) -> Frame {
    let shown = |text: &str| text.trim().replace(char::is_control, "?").into();
    Frame { file: shown(file), line, function: shown(function) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::text::without_colors;

    /// Of a stack that ends in a message.
    fn line(text: &str) -> Option<(String, u64, String)> {
        let process = text.lines().next_back().and_then(process_of).unwrap_or_default();
        let text = without_colors(&format!("{text}{process}: OutOfMemoryError: "));
        innermost(&text, text.len()).map(|found| (found.file, found.line, found.function))
    }

    fn is(file: &str, line: u64, function: &str) -> Option<(String, u64, String)> {
        Some((file.to_owned(), line, function.to_owned()))
    }

    #[test]
    fn the_innermost_line_of_the_user_is_found_in_every_style() {
        let python = "[rank3]: Traceback (most recent call last):\n\
            [rank3]:   File \"/me/train.py\", line 90, in <module>\n\
            [rank3]:     main()\n\
            [rank3]:   File \"/me/train.py\", line 31, in step\n\
            [rank3]:     loss = model(x)\n\
            [rank3]:   File \"/v/lib/python3.12/site-packages/transformers/m.py\", line 7, in \
            forward\n\
            [rank3]:   File \"/v/lib/python3.12/site-packages/torch/nn/f.py\", line 5, in silu\n\
            [rank3]:     return torch._C._nn.silu_(input)\n";
        assert_eq!(line(python), is("/me/train.py", 31, "step"));
        let ipython = "\x1b[0;31mOutOfMemoryError\x1b[0m   Traceback (most recent call last)\n\
            Cell In[5], line 3\n      1 a\n----> 3 model(x)\n\n\
            File ~/v/lib/python3.10/site-packages/torch/nn/modules/module.py:1501, in M.f(self)\n\
            -> 1501 return forward_call(*args)\n";
        assert_eq!(line(ipython), is("<ipython-input Cell In[5]>", 3, ""));
        let old = "/tmp/ipykernel_55/22.py in <cell line: 0>()\n----> 4 m(x)\n\n\
            /usr/local/lib/python3.11/dist-packages/torch/nn/a.py in forward(self, input)\n    \
            430 \n\
            --> 432         return F.silu(input)\n";
        assert_eq!(line(old), is("/tmp/ipykernel_55/22.py", 4, "<cell line: 0>"));
        let packages = "  File \"/v/lib/python3.12/site-packages/vllm/worker.py\", line 8, in \
        load\n\
              File \"/v/lib/python3.12/site-packages/torch/nn/f.py\", line 5, in silu\n";
        let expected = "/v/lib/python3.12/site-packages/vllm/worker.py";
        assert_eq!(line(packages), is(expected, 8, "load"));
        assert_eq!(line("no stack here\n"), None);
    }

    #[test]
    fn the_stack_nearest_to_the_message_counts() {
        let text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    \
        x\nValueError\n\n\
            During handling of the above exception, another exception occurred:\n\n\
            Traceback (most recent call last):\n  File \"b.py\", line 2, in g\n    y\n";
        assert_eq!(line(text), is("b.py", 2, "g"));
    }

    #[test]
    fn a_stack_that_does_not_end_in_the_message_says_nothing_of_the_request() {
        let frame = "  File \"a.py\", line 1, in f\n";
        assert_eq!(line(&format!("{frame}    x()\n    ^^^\n")), is("a.py", 1, "f"));
        assert_eq!(line(&format!("{frame}    x()\nValueError: bad\n\n2026-05-01 ERROR\n")), None);
        assert_eq!(line(&format!("{frame}    raise Exception(\n    ^^^^\n")), None);
        assert_eq!(line("a.py in f(x)\n      1 y\n----> 2 raise Exception(\n      3 z\n"), None);
        let message = |tag: &str| format!("{tag}torch.OutOfMemoryError: ");
        for (stack, own) in [
            ("(EngineCore pid=104) ", "(APIServer pid=1) "),
            ("[rank1]: ", "[rank0]: "),
            ("[rank1]: ", ""),
            ("", "[rank1]: "),
        ] {
            let text =
                format!("{own}{frame}{stack}  File \"b.py\", line 2, in g\n{}", message(own));
            let found = innermost(&text, text.len()).map(|found| found.file);
            assert_eq!(found.as_deref(), Some("a.py"), "{text}");
        }
    }
}
