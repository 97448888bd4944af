//! A plain table, as wide as the terminal has room for.

use std::io::stdout;

use terminal_size::{Width, terminal_size_of};

use super::fitted::{Cell, fitted};
use super::look::Look;

/// A table with a heading, its first column to the left and the others to the right, as wide as there is room.
pub fn plain(heading: Vec<String>, rows: Vec<Vec<String>>, look: Look) -> String {
    let cells = |row: Vec<String>| row.into_iter().map(Cell::plain).collect();
    let dispensable: Vec<usize> = (1..heading.len()).rev().collect();
    fitted(&heading, rows.into_iter().map(cells).collect(), &dispensable, look)
}

/// Characters in a line of the terminal, if standard output is one.
pub fn terminal_width() -> Option<u16> {
    terminal_size_of(stdout()).map(|(Width(width), _)| width)
}
