//! What the terminal can do, and the two places that text goes to.

use std::env;
use std::io::{self, IsTerminal, Write};

use gmlake::report::table::{Look, terminal_width};

/// How tables look on standard output.
pub(crate) fn look() -> Look {
    if !io::stdout().is_terminal() {
        return Look::default();
    }
    let has_colour = env::var_os("NO_COLOR").is_none();
    Look { has_boxes: has_utf8(), has_colour, width: terminal_width() }
}

/// Prints to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a line to standard error, after the program's name.
pub(crate) fn complain(text: &str) {
    // There is nobody left to tell if this fails.
    let _ = writeln!(io::stderr().lock(), "gmlake-sim: {text}");
}

/// Warns of each note, once for all files that share it. Takes pairs of file and note.
pub(crate) fn tell_of_notes<'a>(notes: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut told: Vec<(&str, &str, usize)> = Vec::new();
    for (file, note) in notes {
        match told.iter_mut().find(|(_, known, _)| *known == note) {
            Some((_, _, files)) => *files += 1,
            None => told.push((file, note, 1)),
        }
    }
    for (file, note, files) in told {
        let more = if files > 1 { format!(" and {} more", files - 1) } else { String::new() };
        complain(&format!("warning: {file}{more}: {note}"));
    }
}

fn has_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(env::var_os);
    let first = locale.map(|value| value.to_string_lossy().to_lowercase()).find(|v| !v.is_empty());
    first.is_some_and(|value| value.contains("utf-8") || value.contains("utf8"))
}
