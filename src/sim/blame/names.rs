//! Names: what the rows of a blame table are called.
//!
//! The line that is named is the innermost one that a user can change: frames of PyTorch itself, of Python's standard
//! library, of generated code and of C++ are passed over. Those of `gmlake predict` are as if they were not there.
//!
//! ```text
//!   site-packages/torch/nn/modules/linear.py:125 forward       torch: passed over
//!   site-packages/transformers/models/opt/modeling_opt.py:84   this one
//!   train.py:30 <module>
//! ```
//!
//! A stack of nothing else is named by its innermost frame: such are those of autograd's backward threads. Files of
//! packages are shown from the package on, others from the folder that they have in common.

use rustc_hash::FxHashMap;

use super::categories::Categories;
use super::files::{common_folder, in_package, is_of_program, is_of_user};
use crate::metrics::{By, NO_STACK};
use crate::sim::Opened;
use crate::trace::{Annotation, Entry, Frame, Stack};
use crate::units::{Bytes, GIB, Grouped, KIB, MIB, Size};

/// The same where no request has one.
const NOT_RECORDED: &str = "no call stacks in the recording";
/// A block from before the recording whose stack is not known.
const BEFORE: &str = "live before the recording began";

/// Names requests.
pub(crate) struct Namer<'o> {
    opened: &'o Opened,
    by: By,
    /// Every frame counts, not only those of the user.
    innermost: bool,
    folder: String,
    spans: Vec<(u64, Option<&'o str>)>,
    known: FxHashMap<u32, String>,
    categories: Option<Categories<'o>>,
}

impl<'o> Namer<'o> {
    /// Names of a kind; with `innermost`, no frame is passed over.
    pub(crate) fn new(opened: &'o Opened, by: By, innermost: bool) -> Self {
        let folder = common_folder(&opened.records.stacks);
        let spans = match by {
            By::Annotation => spans(&opened.records.annotations),
            _ => Vec::new(),
        };
        let categories = (by == By::Category).then(|| Categories::new(opened));
        Self { opened, by, innermost, folder, spans, known: FxHashMap::default(), categories }
    }

    /// The name of the request that event number `event` is, of `bytes`.
    pub(crate) fn name(&mut self, event: usize, bytes: Bytes) -> String {
        let stack = self.opened.trace.stack_of(event);
        if let Some(categories) = &mut self.categories {
            return categories.of(event).name().to_owned();
        }
        match self.by {
            By::Size => size(bytes),
            By::Annotation => self.annotation(event),
            _ if stack == Entry::NO_STACK => self.stackless(event).to_owned(),
            _ => match self.known.get(&stack) {
                Some(name) => name.clone(),
                None => {
                    let name =
                        self.of_stack(stack).unwrap_or_else(|| self.stackless(event).to_owned());
                    self.known.insert(stack, name.clone());
                    name
                }
            },
        }
    }

    /// Whether the request that event number `event` is has frames.
    pub(crate) fn has_frames(&self, event: usize) -> bool {
        let stacks = &self.opened.records.stacks;
        stacks.frames_of(self.opened.trace.stack_of(event)).any(is_of_program)
    }

    /// The frames of a request, outermost first, each by its short file, line and function.
    pub(crate) fn frames(&self, event: usize) -> Vec<String> {
        if !self.has_frames(event) {
            return vec![self.stackless(event).to_owned()];
        }
        let stack = self.opened.trace.stack_of(event);
        let frames = self.opened.records.stacks.frames_of(stack).rev();
        frames.filter(|frame| is_of_program(frame)).map(|frame| self.line(frame)).collect()
    }

    /// The frames of a request, innermost first, and the place of the one that names it. Empty if it has none.
    pub(super) fn stack(&self, event: usize) -> (Vec<String>, usize) {
        let number = self.opened.trace.stack_of(event);
        let stack = self.opened.records.stacks.frames_of(number);
        let frames: Vec<&Frame> = stack.filter(|frame| is_of_program(frame)).collect();
        let named = frames.iter().position(|frame| is_of_user(frame)).unwrap_or(0);
        (frames.into_iter().map(|frame| self.line(frame)).collect(), named)
    }

    fn of_stack(&self, number: u32) -> Option<String> {
        let stacks = &self.opened.records.stacks;
        if self.by == By::Metadata {
            return Some(metadata(stacks.get(number)?));
        }
        let all = || stacks.frames_of(number).filter(|frame| is_of_program(frame));
        let counted: Vec<&Frame> =
            all().filter(|frame| self.innermost || is_of_user(frame)).collect();
        let frame = counted.first().copied().or_else(|| all().next())?;
        Some(match self.by {
            By::Function => format!("{} {}", self.short(&frame.file), frame.function),
            By::Module => module(self.short(&frame.file)),
            By::Stack if !counted.is_empty() => {
                let lines: Vec<String> =
                    counted.into_iter().map(|frame| self.line(frame)).collect();
                lines.join(" < ")
            }
            _ => self.line(frame),
        })
    }

    /// What stands for the stack of a request that has none.
    pub(super) fn stackless(&self, event: usize) -> &'static str {
        match () {
            () if self.by == By::Metadata => "no metadata",
            () if !self.opened.records.stacks.has_frames() => NOT_RECORDED,
            () if event < self.opened.trace.start_events => BEFORE,
            () => NO_STACK,
        }
    }

    fn line(&self, frame: &Frame) -> String {
        format!("{}:{} {}", self.short(&frame.file), frame.line, frame.function)
    }

    fn short<'f>(&self, file: &'f str) -> &'f str {
        in_package(file).or_else(|| file.strip_prefix(&self.folder)).unwrap_or(file)
    }

    fn annotation(&self, event: usize) -> String {
        let origin = self.opened.records.entries.first().map_or(0, |entry| entry.time_us);
        let at = origin + self.opened.trace.times_us.get(event).copied().unwrap_or(0);
        let place = self.spans.partition_point(|&(start, _)| start <= at);
        let is_before = event < self.opened.trace.start_events;
        let open = place.checked_sub(1).and_then(|place| self.spans[place].1);
        open.unwrap_or(if is_before { BEFORE } else { "no annotation" }).to_owned()
    }
}

/// A file as Python imports it.
fn module(file: &str) -> String {
    let stem = file.strip_suffix(".py").unwrap_or(file);
    let stem = stem.strip_suffix("/__init__").unwrap_or(stem);
    stem.trim_start_matches('/').replace('/', ".")
}

fn metadata(stack: &Stack) -> String {
    match (&stack.user_metadata, &stack.compile_context) {
        (Some(text), Some(context)) => format!("{text} (compiled: {context})"),
        (Some(text), None) => text.to_string(),
        (None, Some(context)) => format!("compiled: {context}"),
        (None, None) => "no metadata".to_owned(),
    }
}

/// A size that differs from every other in words: in a large unit only if that is exact.
fn size(bytes: Bytes) -> String {
    let is_exact =
        [GIB, MIB, KIB].iter().any(|unit| bytes.is_multiple_of(*unit) && bytes < unit << 10);
    if is_exact { Size(bytes).to_string() } else { format!("{} B", Grouped(bytes)) }
}

/// From when on which annotation is the innermost open one.
fn spans(annotations: &[Annotation]) -> Vec<(u64, Option<&str>)> {
    let mut open: Vec<&str> = Vec::new();
    let mut spans = Vec::with_capacity(annotations.len());
    for annotation in annotations {
        match (annotation.is_start, open.iter().rposition(|name| *name == annotation.name)) {
            (true, _) => open.push(&annotation.name),
            (false, Some(place)) => drop(open.remove(place)),
            (false, None) => continue,
        }
        spans.push((annotation.time_us, open.last().copied()));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_as_python_imports_them() {
        assert_eq!(module("transformers/models/opt/__init__.py"), "transformers.models.opt");
    }

    #[test]
    fn sizes_are_told_apart() {
        assert_eq!((size(16 * MIB), size(16 * MIB + 1)), ("16 MiB".into(), "16,777,217 B".into()));
        assert_ne!(size(1025 * MIB), size(1026 * MIB));
        assert_eq!(size(512), "512 B");
    }

    #[test]
    fn the_innermost_open_annotation_counts() {
        let mark =
            |name: &str, is_start, time_us| Annotation { name: name.into(), is_start, time_us };
        let all = [
            mark("step", true, 10),
            mark("forward", true, 20),
            mark("lost", false, 25),
            mark("forward", false, 30),
            mark("step", false, 40),
        ];
        let expected = [(10, Some("step")), (20, Some("forward")), (30, Some("step")), (40, None)];
        assert_eq!(spans(&all), expected);
    }
}
