//! Names: what the rows of a blame table are called.
//!
//! The line that is named is the innermost one that a user can change: frames of PyTorch itself, of Python's standard
//! library, of generated code and of C++ are passed over. Those of `gmlake predict` are as if they were not there, and
//! so are those of the machinery below every request ([`crate::sim::frames`]).
//!
//! ```text
//!   c10::cuda::CUDACachingAllocator::...::malloc               the allocator: not there
//!   at::native::addmm                                          C++: passed over
//!   site-packages/torch/nn/modules/linear.py:125 forward       torch: passed over
//!   site-packages/transformers/models/opt/modeling_opt.py:84   by line: this one
//!   train.py:30 <module>                                       by own line: this one
//! ```
//!
//! A stack of nothing else is named by the node of autograd that it carries out, or else by its innermost frame: such
//! are those of autograd's backward threads. How files are shown is in [`super::files`].

use rustc_hash::FxHashMap;

use super::categories::Categories;
use super::files::{Files, is_of_user, is_own};
use super::lines::Lines;
use super::rows::{BEFORE, By, NO_STACK};
use crate::printable::printable;
use crate::sim::{
    Opened, has_stacks, is_machinery, is_of_engine, is_of_program, is_python, node,
    without_arguments,
};
use crate::trace::{Annotation, Frame, Stack};
use crate::units::{Bytes, Grouped, Size, parse_size};

/// A request without a stack where no request was recorded with one.
const NOT_RECORDED: &str = "no call stack recorded";

/// Names requests.
pub(crate) struct Namer<'o> {
    opened: &'o Opened,
    by: By,
    /// Every frame counts, not only those of the user.
    innermost: bool,
    files: Files,
    /// Whether requests were recorded with their stacks.
    has_stacks: bool,
    spans: Vec<(u64, Option<&'o str>)>,
    known: FxHashMap<u32, String>,
    categories: Option<Categories<'o>>,
}

impl<'o> Namer<'o> {
    /// Names of a kind; with `innermost`, no frame is passed over.
    pub(crate) fn new(opened: &'o Opened, by: By, innermost: bool) -> Self {
        Self::with_files(opened, by, innermost, Files::of(&opened.records.stacks))
    }

    /// The same, with files shown in this way.
    pub(super) fn with_files(opened: &'o Opened, by: By, innermost: bool, files: Files) -> Self {
        let spans = match by {
            By::Annotation => spans(&opened.records.annotations),
            _ => Vec::new(),
        };
        let categories = (by == By::Category).then(|| Categories::new(opened));
        let has_stacks = has_stacks(&opened.records);
        Self {
            opened,
            by,
            innermost,
            files,
            has_stacks,
            spans,
            known: FxHashMap::default(),
            categories,
        }
    }

    /// The name of the request that event number `event` is, of `bytes`.
    pub(crate) fn name(&mut self, event: usize, bytes: Bytes) -> String {
        let is_before = self.is_before(event);
        match self.by {
            By::Size if is_before && !self.opened.records.entries.is_empty() => {
                format!("{}, {BEFORE}", size(bytes))
            }
            By::Size => size(bytes),
            By::Annotation | By::Category if is_before => BEFORE.to_owned(),
            By::Annotation => self.annotation(event),
            By::Category => self.category(event),
            _ => self.of_request(event),
        }
    }

    /// The lines of all frames of the recording.
    pub(super) fn lines(&self) -> Lines {
        let names: Vec<String> =
            self.opened.records.stacks.frames.iter().map(|frame| self.line(frame)).collect();
        Lines::of(names.iter().map(String::as_str))
    }

    fn category(&mut self, event: usize) -> String {
        self.categories.as_mut().map_or_else(String::new, |all| all.of(event).name().to_owned())
    }

    fn of_request(&mut self, event: usize) -> String {
        let stack = self.opened.trace.stack_of(event);
        if let Some(name) = self.known.get(&stack) {
            return name.clone();
        }
        match self.of_stack(stack) {
            Some(name) => {
                self.known.insert(stack, name.clone());
                name
            }
            None => self.stackless(event).to_owned(),
        }
    }

    /// Whether the event stands for a block that was live before the recording started.
    pub(crate) fn is_before(&self, event: usize) -> bool {
        event < self.opened.trace.start_events
    }

    /// Whether the request that event number `event` is has frames.
    pub(crate) fn has_frames(&self, event: usize) -> bool {
        self.counted(self.opened.trace.stack_of(event)).next().is_some()
    }

    /// The frames of a request, outermost first, each by its short file, line and function.
    pub(crate) fn frames(&self, event: usize) -> Vec<String> {
        let (mut frames, _) = self.stack(event);
        if frames.is_empty() {
            return vec![self.stackless(event).to_owned()];
        }
        frames.reverse();
        frames
    }

    /// The frames of a request, innermost first, and the place of the one that names it. Empty if it has none.
    pub(super) fn stack(&self, event: usize) -> (Vec<String>, usize) {
        let number = self.opened.trace.stack_of(event);
        let frames: Vec<&Frame> = self.counted(number).collect();
        let place = |is_it: &dyn Fn(&Frame) -> bool| frames.iter().position(|frame| is_it(frame));
        let named = place(&is_of_user)
            .or_else(|| place(&|frame| node(frame).is_some()))
            .or_else(|| place(&is_python));
        (frames.iter().map(|frame| self.line(frame)).collect(), named.unwrap_or(0))
    }

    /// Where rows are lines: the user's own line that called the line `name` for most bytes, if that is another one.
    /// `requests` are bytes and events.
    pub(super) fn own_of(
        &self,
        name: &str,
        requests: impl Iterator<Item = (Bytes, usize)>,
    ) -> Option<String> {
        if self.by != By::Line {
            return None;
        }
        let mut bytes: FxHashMap<String, Bytes> = FxHashMap::default();
        for (own, event) in requests {
            let stack = self.opened.trace.stack_of(event);
            let line = self.counted(stack).find(|frame| is_own(frame)).map(|f| self.line(f));
            *bytes.entry(line.unwrap_or_default()).or_default() += own;
        }
        let most = bytes.into_iter().max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)));
        most.map(|(line, _)| line).filter(|line| !line.is_empty() && line != name)
    }

    /// The same of one request.
    pub(super) fn own_of_event(&self, event: usize, name: &str) -> Option<String> {
        self.own_of(name, std::iter::once((1, event)))
    }

    /// The frames of a stack that may say who asked.
    fn counted(&self, number: u32) -> impl Iterator<Item = &'o Frame> + use<'o> {
        let frames = self.opened.records.stacks.frames_of(number);
        frames.filter(|frame| is_of_program(frame) && !is_machinery(frame))
    }

    fn of_stack(&self, number: u32) -> Option<String> {
        if self.by == By::Metadata {
            return metadata(self.opened.records.stacks.get(number)?);
        }
        let innermost = self.counted(number).next()?;
        if self.by == By::Stack {
            return Some(self.whole(number, innermost));
        }
        let first = |is_it: fn(&Frame) -> bool| self.counted(number).find(|frame| is_it(frame));
        let own = || first(is_own).filter(|_| self.by == By::Own);
        let frame =
            if self.innermost { Some(innermost) } else { own().or_else(|| first(is_of_user)) };
        let Some(frame) = frame else { return Some(self.of_library(number, innermost)) };
        Some(self.of_frame(frame))
    }

    /// The name of a stack that has no line of the user: a node of autograd, or else the innermost frame.
    fn of_library(&self, number: u32, innermost: &Frame) -> String {
        if let Some(node) = self.counted(number).find_map(node) {
            return printable(&node).into_owned();
        }
        let python = self.counted(number).find(|frame| is_python(frame));
        let is_backward = python.is_none() && self.counted(number).any(is_of_engine);
        let name = self.of_frame(python.unwrap_or(innermost));
        if is_backward { format!("{name} (backward pass)") } else { name }
    }

    fn of_frame(&self, frame: &Frame) -> String {
        let name = match self.by {
            By::Function => return self.line(&Frame { line: 0, ..frame.clone() }),
            By::Module if is_python(frame) => module(self.files.at(&frame.file)),
            By::Module => without_arguments(&frame.function).to_owned(),
            _ => return self.line(frame),
        };
        printable(&name).into_owned()
    }

    /// The lines of a stack: the frame that allocated, and those that a user can change.
    fn whole(&self, number: u32, innermost: &Frame) -> String {
        let is_shown = |frame: &&Frame| self.innermost || is_of_user(frame);
        let outer = self.counted(number).skip(1).filter(is_shown).map(|frame| self.line(frame));
        let node = || Some(printable(&self.counted(number).find_map(node)?).into_owned());
        let engine = || Some(self.line(self.counted(number).find(|frame| is_of_engine(frame))?));
        let pass = if self.innermost { None } else { node().or_else(engine) };
        let lines = std::iter::once(self.line(innermost)).chain(pass).chain(outer);
        lines.collect::<Vec<_>>().join(" < ")
    }

    /// What stands for the stack of a request that has none.
    pub(super) fn stackless(&self, event: usize) -> &'static str {
        match () {
            () if self.is_before(event) => BEFORE,
            () if self.by == By::Metadata => "no metadata",
            () if !self.has_stacks => NOT_RECORDED,
            () => NO_STACK,
        }
    }

    fn line(&self, frame: &Frame) -> String {
        let place = match (self.files.at(&frame.file), frame.line) {
            ("" | "?" | "??", _) => String::new(),
            (_, 0) if !is_python(frame) => String::new(),
            (file, 0) => format!("{file} "),
            (file, line) => format!("{file}:{line} "),
        };
        printable(&format!("{place}{}", shown(frame))).into_owned()
    }

    fn annotation(&self, event: usize) -> String {
        let origin = self.opened.records.entries.first().map_or(0, |entry| entry.time_us);
        let at = origin + self.opened.trace.times_us.get(event).copied().unwrap_or(0);
        let place = self.spans.partition_point(|&(start, _)| start <= at);
        let open = place.checked_sub(1).and_then(|place| self.spans[place].1);
        printable(open.unwrap_or("no annotation")).into_owned()
    }
}

/// The function of a frame, without the arguments that C++ writes behind it.
fn shown(frame: &Frame) -> &str {
    if is_python(frame) { &frame.function } else { without_arguments(&frame.function) }
}

/// A file as Python imports it.
fn module(file: &str) -> String {
    let stem = file.strip_suffix(".py").unwrap_or(file);
    let stem = stem.strip_suffix("/__init__").unwrap_or(stem);
    stem.trim_start_matches('/').replace('/', ".")
}

fn metadata(stack: &Stack) -> Option<String> {
    let name = match (&stack.user_metadata, &stack.compile_context) {
        (Some(text), Some(context)) => format!("{text} (compiled: {context})"),
        (Some(text), None) => text.to_string(),
        (None, Some(context)) => format!("compiled: {context}"),
        (None, None) => return None,
    };
    Some(printable(&name).into_owned())
}

/// A size that differs from every other in words: as everywhere if that is exact, else in bytes.
fn size(bytes: Bytes) -> String {
    let usual = Size(bytes).to_string();
    if parse_size(&usual) == Ok(bytes) { usual } else { format!("{} B", Grouped(bytes)) }
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
    use crate::units::MIB;

    #[test]
    fn modules_are_named_as_python_imports_them() {
        assert_eq!(module("transformers/models/opt/__init__.py"), "transformers.models.opt");
    }

    #[test]
    fn sizes_are_told_apart() {
        assert_eq!((size(16 * MIB), size(16 * MIB + 1)), ("16 MiB".into(), "16,777,217 B".into()));
        assert_ne!(size(1025 * MIB), size(1026 * MIB));
        assert_eq!(size(512), "512 B");
        assert_eq!(
            (size(1536 * MIB), size(1536 * MIB + 1)),
            ("1.50 GiB".into(), "1,610,612,737 B".into())
        );
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
