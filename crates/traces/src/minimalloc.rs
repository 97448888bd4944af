//! Lifetimes for offline placement, in the CSV of `minimalloc` (Moffitt, ASPLOS 2023) and its relatives, both ways.
//!
//! ```text
//!   id,lower,upper,size        lower: the event that asks for it; upper: the event from which on its place may be
//!   b0,0,7,1049088             used again. size: bytes, as requested. Time is counted in events.
//! ```
//!
//! The names of columns are those that minimalloc's reader knows: `begin` and `start` for `lower`; `end` for the last
//! event in place of `upper`, which is one behind it; `buffer` and `buffer_id` for `id`. A solution's `offset` is read
//! over. What lives to the last event of the file is not freed, as whoever wrote it cannot tell the two apart.

use std::io::{self, Write};

use ::csv::StringRecord;

use super::csv;
use super::error::excerpt;
use super::options::LoadOptions;
use super::torch::{RawAction, RawEntry, Snapshot};
use super::{Action, Position, Records, Result, Trace, TraceError};
use super::{Lifetime, lifetimes};
use gmlake_core::units::Bytes;

/// Writes when each allocation of a trace lives, and how large it is. Those that are never freed live to the end.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_minimalloc(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    out.write_all(b"id,lower,upper,size\n")?;
    let held = lifetimes(trace).into_iter().filter(|lifetime| lifetime.lower < lifetime.upper);
    for (id, Lifetime { lower, upper, size, .. }) in held.enumerate() {
        writeln!(out, "b{id},{lower},{upper},{size}")?;
    }
    out.flush()
}

const ID: [&str; 3] = ["id", "buffer", "buffer_id"];
const LOWER: [&str; 3] = ["lower", "begin", "start"];
const UPPER: [&str; 2] = ["upper", "end"];
const SIZE: [&str; 1] = ["size"];
const OFFSET: [&str; 1] = ["offset"];
const REMEDY: &str = "columns are id,lower,upper,size, with whole numbers";
/// Blocks get addresses one after another, each in a multiple of this.
const SPACING: u64 = 512;

/// Whether the first line that is no comment is a header of such a table.
pub(super) fn is_csv(bytes: &[u8]) -> bool {
    separator(bytes).is_some()
}

fn separator(bytes: &[u8]) -> Option<u8> {
    let needed = [&ID[..], &LOWER, &UPPER, &SIZE];
    csv::separator(bytes, |names| {
        let has = |name: &&str| names.iter().any(|cell| cell == name.as_bytes());
        needed.iter().all(|column| column.iter().any(has))
    })
}

/// Reads lifetimes as the requests and frees that have them. An error names the line, and what is wrong in it.
pub(super) fn read(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    let mut reader = csv::rows(bytes, separator(bytes).unwrap_or(b','));
    let names = csv::names(reader.headers().map_err(|error| csv::damaged(&error))?);
    let columns = Columns::new(&names);
    let mut snapshot = Snapshot::new(options.torch_version, room);
    let (mut rows, mut next) = (Vec::new(), SPACING);
    let cut = csv::each_row(&mut reader, bytes, |row, line| {
        let fail = |problem: String| TraceError::new(Position::Line(line), problem, REMEDY);
        snapshot.spend(3 * size_of::<Row>() as Bytes)?;
        let read = columns.row(row, next).map_err(fail)?;
        let end = next.checked_add(read.size.max(1).next_multiple_of(SPACING));
        next = end.ok_or_else(|| fail("the sizes exceed 2^64 bytes together".to_owned()))?;
        rows.push(read);
        Ok(())
    })?;
    snapshot.cut_if(cut);
    for raw in events(&rows) {
        snapshot.entry(0, &raw)?;
    }
    let mut records = snapshot.finish()?;
    csv::warn_of(&columns.unknown, &mut records);
    Ok(records)
}

/// A lifetime as the file has it, at an address of ours.
#[derive(Debug, Clone, Copy)]
struct Row {
    lower: i64,
    upper: i64,
    size: Bytes,
    addr: u64,
}

/// Where each part of a row stands.
struct Columns {
    lower: usize,
    upper: usize,
    size: usize,
    /// Whether `upper` is the last event, and not the one behind it.
    is_end: bool,
    unknown: Vec<String>,
}

impl Columns {
    /// The places in a header that has them.
    fn new(names: &[String]) -> Self {
        let at = |of: &[&str]| names.iter().position(|name| of.contains(&&**name)).unwrap_or(0);
        let (lower, upper, size) = (at(&LOWER), at(&UPPER), at(&SIZE));
        let known = [&ID[..], &LOWER, &UPPER, &SIZE, &OFFSET].concat();
        let unknown = names.iter().filter(|name| !known.contains(&&***name));
        let unknown = unknown.map(|name| excerpt(name.as_bytes())).collect();
        let is_end = names.get(upper).is_some_and(|name| name == UPPER[1]);
        Self { lower, upper, size, is_end, unknown }
    }

    fn row(&self, row: &StringRecord, addr: u64) -> Result<Row, String> {
        let time = |name: &str, at: usize| -> Result<i64, String> {
            let text = row.get(at).unwrap_or("");
            let wrong = || format!("{name} is \"{}\", no whole number", excerpt(text.as_bytes()));
            text.parse().ok().filter(|&time| time < i64::MAX).ok_or_else(wrong)
        };
        let (lower, last) = (time("lower", self.lower)?, time("upper", self.upper)?);
        let upper = last + i64::from(self.is_end);
        let size = csv::number("size", row.get(self.size).unwrap_or(""), None)?;
        if lower >= upper {
            return Err(format!("upper is {upper}, but must be greater than lower, {lower}"));
        }
        if size >= 1 << 63 {
            return Err(format!("size is {size}, beyond any memory"));
        }
        Ok(Row { lower, upper, size, addr })
    }
}

/// The requests and frees, in order: at the same moment frees come first, since a place may be used again from `upper`
/// on.
fn events(rows: &[Row]) -> impl Iterator<Item = RawEntry> + '_ {
    let end = rows.iter().map(|row| row.upper).max().unwrap_or(0);
    let mut order: Vec<(i64, bool, usize)> = Vec::with_capacity(2 * rows.len());
    for (number, row) in rows.iter().enumerate() {
        order.push((row.lower, true, number));
        if row.upper < end {
            order.push((row.upper, false, number));
        }
    }
    order.sort_unstable();
    order.into_iter().map(|(_, is_request, number)| {
        let action = if is_request { RawAction::Known(Action::Alloc) } else { RawAction::Free };
        let Row { addr, size, .. } = rows[number];
        RawEntry { addr, size, action, ..RawEntry::default() }
    })
}
