//! Flame graphs: live bytes by call stack, the width of a frame the bytes that were asked for through it.
//!
//! ```text
//!   ┌ train.py:30 <module> ─────────────────────┐┌ no Python stack ┐
//!   ├ modeling_opt.py:499 forward ─────┬ adam ──┤└─────────────────┘
//!   ├ attention ───────┬ mlp ──────────┤
//! ```
//!
//! Folded stacks are the form in between, one line each, that every other flame graph tool reads.

use std::io::Write;

use inferno::flamegraph::{Direction, Options, from_lines};

use crate::printable::printable;
use crate::report::{ReportError, Result, scaling};

/// Writes stacks, outermost frame first and joined by `;`, each with its bytes.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_folded(stacks: &[(String, u64)], out: &mut dyn Write) -> Result<()> {
    for (stack, bytes) in stacks {
        writeln!(out, "{stack} {bytes}")?;
    }
    Ok(())
}

/// Draws the stacks as one SVG that opens in any browser: click to zoom, Ctrl-F to search.
///
/// # Errors
/// If there is nothing to draw, or `out` cannot be written.
pub fn write_flamegraph(
    stacks: &[(String, u64)],
    [title, subtitle]: &[String; 2],
    out: &mut dyn Write,
) -> Result<()> {
    let lines: Vec<String> =
        stacks.iter().map(|(stack, bytes)| format!("{} {bytes}", printable(stack))).collect();
    let mut options = Options::default();
    options.title = printable(title).into_owned();
    options.subtitle = Some(printable(subtitle).into_owned());
    "bytes".clone_into(&mut options.count_name);
    options.direction = Direction::Inverted;
    // The same colour for the same name, so that two graphs can be compared.
    options.hash = true;
    options.min_width = 0.05;
    let mut svg = Vec::new();
    let drawn = from_lines(&mut options, lines.iter().map(|line| &line[..]), &mut svg);
    drawn.map_err(|error| ReportError::Draw(error.to_string()))?;
    // Its script makes it as wide as the window; this is for where scripts do not run.
    let svg = scaling(&String::from_utf8_lossy(&svg), "max-width:100%");
    Ok(out.write_all(svg.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_drawn_and_escaped() {
        let stacks =
            [("train.py:30 <module>;a.py:1 f".to_owned(), 30), ("no stack".to_owned(), 10)];
        let mut svg = Vec::new();
        write_flamegraph(&stacks, &["job & peak".to_owned(), "step 3".to_owned()], &mut svg)
            .unwrap();
        let svg = String::from_utf8(svg).unwrap();
        for text in
            ["train.py:30 &lt;module&gt;", "a.py:1 f", "no stack", "job &amp; peak", "75.00%"]
        {
            assert!(svg.contains(text), "{text} is missing");
        }
        let mut folded = Vec::new();
        write_folded(&stacks, &mut folded).unwrap();
        assert_eq!(folded, b"train.py:30 <module>;a.py:1 f 30\nno stack 10\n");
        assert!(write_flamegraph(&[], &Default::default(), &mut Vec::new()).is_err());
    }
}
