//! The terminal: what it can do, and the two streams that text goes to.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use gmlake::printable::{printable, printable_lines};
use gmlake::report::{Look, ReportError, stdout, wrapped, write_answer};
use gmlake::sim::Opened;
use serde::Serialize;

use crate::args::{Color, CommonArgs};
use crate::{Answer, bar, topics};

/// Whether there are colours, warnings, progress and JSON: as typed, for the whole program.
static MANNER: OnceLock<CommonArgs> = OnceLock::new();

/// Keeps to what was typed from now on.
pub(crate) fn set_manner(typed: CommonArgs) {
    let _ = MANNER.set(typed);
}

/// Whether warnings and progress are off.
pub(crate) fn is_quiet() -> bool {
    MANNER.get().is_some_and(|typed| typed.quiet)
}

/// Whether JSON is printed in place of tables.
pub(crate) fn wants_json() -> bool {
    MANNER.get().is_some_and(|typed| typed.json)
}

/// How tables look on standard output.
pub(crate) fn look() -> Look {
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let has_colour = match MANNER.get().map_or(Color::Auto, |typed| typed.color) {
        Color::Auto => io::stdout().is_terminal() && !no_colour,
        Color::Always => true,
        Color::Never => false,
    };
    Look { has_colour, ..Look::of_stdout() }
}

/// Prints the result of a command to standard output as JSON.
pub(crate) fn print_json(command: &str, result: &impl Serialize) -> Result<(), ReportError> {
    write_answer(command, result, &mut stdout())
}

/// Prints to standard output, with lines that are no longer than a terminal's.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let width = look().width;
    let text = width.map_or_else(|| text.to_owned(), |width| wrapped(text, usize::from(width)));
    // The colours of a table are ours; everything else that acts upon a terminal came out of a file.
    let parts: Vec<String> = text.split("\x1b[").map(printable_lines).collect();
    let text = if look().has_colour { parts.join("\x1b[") } else { printable_lines(&text) };
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a line to standard error, after the program's name.
pub(crate) fn print_line(text: &str) {
    // If this fails, there is nowhere to report it.
    let line = printable(text);
    let _ = bar::without_bar(|| writeln!(io::stderr().lock(), "gmlake-sim: {line}"));
}

/// Prints an error as a line to standard error, and where it is explained.
pub(crate) fn print_error(error: &anyhow::Error) {
    let page = error.chain().find_map(topics::page_of);
    let page = page.map_or(String::new(), |page| format!("; see 'gmlake-sim help {page}'"));
    print_line(&format!("{error:#}{page}"));
}

/// What was found out about the files that could be used; why the others could not be is printed.
pub(crate) fn usable<T>(results: impl IntoIterator<Item = anyhow::Result<T>>) -> (Vec<T>, Answer) {
    let (mut found, mut answer) = (Vec::new(), Answer::Yes);
    for result in results {
        match result {
            Ok(one) => found.push(one),
            Err(error) => {
                print_error(&error);
                answer = Answer::Incomplete;
            }
        }
    }
    (found, answer)
}

/// Prints a warning to standard error, unless they are off.
pub(crate) fn warn(text: &str) {
    if !is_quiet() {
        print_line(&format!("warning: {text}"));
    }
}

/// Warns of what had to be assumed about a recording.
pub(crate) fn warn_of_assumptions(opened: &Opened) {
    for note in opened.all_notes() {
        warn(&format!("{}: {note}", opened.file));
    }
}

/// Warns of each note, once for all files that share it. Takes pairs of file and note.
pub(crate) fn warn_of_notes<'a>(notes: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut shown: Vec<(&str, &str, usize)> = Vec::new();
    for (file, note) in notes {
        match shown.iter_mut().find(|(_, known, _)| *known == note) {
            Some((_, _, files)) => *files += 1,
            None => shown.push((file, note, 1)),
        }
    }
    for (file, note, files) in shown {
        let more = if files > 1 { format!(" and {} more", files - 1) } else { String::new() };
        warn(&format!("{file}{more}: {note}"));
    }
}
