//! CSV: a trace that people and scripts can write. One event a row, a header, `#` for comments, in one of two forms.
//!
//! As PyTorch records it, with addresses; the actions are those of [`Action`], and `free` for a free at once:
//!
//! ```text
//!   action,addr,size,stream,time_us,pool     addr: decimal or 0x hex. stream: a handle, 0 if left out.
//!   alloc,0x7f00000000,4096,0,1000,0:0       time_us: 0 if left out. pool: PyTorch's pair, `0:0` if left out.
//!   free,0x7f00000000,4096,0,1010,0:0
//! ```
//!
//! By hand, with names for the blocks:
//!
//! ```text
//!   event,id,size                            event: alloc, free or empty_cache (which needs neither id nor size)
//!   alloc,weights,80GiB                      id: any text. size: a number, or with a unit; may be left out in a free
//!   free,weights                             stream, time_us and pool as above
//!   empty_cache
//! ```
//!
//! A file has one device. Columns may come in any order.

use std::io::{self, Write};

use ::csv::{ReaderBuilder, StringRecord, Trim, WriterBuilder};
use rustc_hash::FxHashMap;

use super::error::excerpt;
use super::options::LoadOptions;
use super::torch::{RawAction, RawEntry, Snapshot};
use super::{Action, Entry, Position, Records, TraceError};
use crate::units::parse_size;

/// Writes the entries of a device in the first form; [`load`](super::load) reads them back as they were. Segments,
/// annotations, settings and stacks have no place in it.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(records: &Records, out: impl Write) -> io::Result<()> {
    let mut writer = WriterBuilder::new().from_writer(out);
    writer.write_record(["action", "addr", "size", "stream", "time_us", "pool"])?;
    for entry in &records.entries {
        let stream = records.streams.get(usize::from(entry.stream.0)).copied().unwrap_or(0);
        let pool = records.pools.get(usize::from(entry.pool.0)).copied().unwrap_or_default();
        writer.write_record([
            entry.action.name(),
            &format!("{:#x}", entry.addr),
            &entry.size.to_string(),
            &stream.to_string(),
            &entry.time_us.to_string(),
            &format!("{}:{}", pool.0, pool.1),
        ])?;
    }
    writer.flush()
}

/// Whether the first line that is no comment is a header of ours.
pub(super) fn is_csv(bytes: &[u8]) -> bool {
    let mut lines = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).split(|&b| b == b'\n');
    let header = lines.find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"));
    let names = header.unwrap_or_default().split(|&b| b == b',').map(|name| name.trim_ascii());
    let names: Vec<&[u8]> = names.take(16).collect();
    names.contains(&&b"action"[..]) || names.contains(&&b"event"[..])
}

/// Reads a trace in CSV.
///
/// # Errors
/// Names the line, and what is wrong in it.
pub(super) fn read(bytes: &[u8], options: &LoadOptions) -> Result<Vec<Records>, TraceError> {
    let mut builder = ReaderBuilder::new();
    let mut reader = builder.flexible(true).trim(Trim::All).comment(Some(b'#')).from_reader(bytes);
    let fail = |error: ::csv::Error| {
        let line = error.position().map_or(Position::File, |at| Position::Line(at.line()));
        TraceError::new(line, error.to_string(), REMEDY)
    };
    let columns = Columns::new(reader.headers().map_err(fail)?)?;
    let mut sheet = Sheet::new(columns, Snapshot::new(options.torch_version, bytes.len()));
    let mut row = StringRecord::new();
    while reader.read_record(&mut row).map_err(fail)? {
        if let Err(problem) = sheet.row(&row) {
            let line = row.position().map_or(0, ::csv::Position::line);
            return Err(TraceError::new(Position::Line(line), problem, REMEDY));
        }
    }
    let mut records = sheet.snapshot.finish()?;
    if let Some(first) = records.first_mut() {
        first.trims = sheet.trims;
    }
    Ok(records)
}

const REMEDY: &str =
    "columns are action,addr,size[,stream,time_us,pool] or event,id,size[,stream,time_us,pool]";

/// The place of each column.
struct Columns {
    action: usize,
    block: usize,
    size: usize,
    stream: Option<usize>,
    time_us: Option<usize>,
    pool: Option<usize>,
    is_by_hand: bool,
}

impl Columns {
    fn new(header: &StringRecord) -> Result<Self, TraceError> {
        let at = |name: &str| header.iter().position(|column| column == name);
        let is_by_hand = at("action").is_none();
        let (action, block) = if is_by_hand { ("event", "id") } else { ("action", "addr") };
        let needed = |name: &str| {
            let missing = || {
                let problem = format!("the header has no column {name:?}");
                TraceError::new(Position::Line(1), problem, REMEDY)
            };
            at(name).ok_or_else(missing)
        };
        let known = [action, block, "size", "stream", "time_us", "pool"];
        if let Some(odd) = header.iter().find(|column| !known.contains(column)) {
            let problem = format!("unknown column {:?}", excerpt(odd.as_bytes()));
            return Err(TraceError::new(Position::Line(1), problem, REMEDY));
        }
        Ok(Self {
            action: needed(action)?,
            block: needed(block)?,
            size: needed("size")?,
            stream: at("stream"),
            time_us: at("time_us"),
            pool: at("pool"),
            is_by_hand,
        })
    }
}

/// A file half read.
struct Sheet {
    columns: Columns,
    snapshot: Snapshot,
    /// Address and size of each named block that is live.
    live: FxHashMap<String, (u64, u64)>,
    next_addr: u64,
    entries: usize,
    trims: Vec<usize>,
}

/// Named blocks get addresses one after another, from here on, each in a multiple of this.
const NAME_SPACING: u64 = 512;

impl Sheet {
    fn new(columns: Columns, snapshot: Snapshot) -> Self {
        let (live, next_addr) = (FxHashMap::default(), NAME_SPACING);
        Self { columns, snapshot, live, next_addr, entries: 0, trims: Vec::new() }
    }

    fn row(&mut self, row: &StringRecord) -> Result<(), String> {
        let Columns { action, stream, time_us, pool, is_by_hand, .. } = self.columns;
        let cell = |column: Option<usize>| column.and_then(|at| row.get(at)).unwrap_or("");
        let name = cell(Some(action));
        if is_by_hand && name == "empty_cache" {
            self.trims.push(self.entries);
            return Ok(());
        }
        let numbers = &mut self.snapshot.numbers;
        let stream = numbers.stream(number("stream", cell(stream), Some(0))?);
        let place = match cell(pool) {
            "" => 0,
            text => {
                numbers.entries_have_pools = true;
                numbers.pool(pool_id(text)?).map_err(|error| error.problem)?
            }
        };
        let time_us = number("time_us", cell(time_us), Some(0))?;
        let (action, addr, size) =
            if is_by_hand { self.named(name, row)? } else { self.recorded(name, row)? };
        let raw = RawEntry {
            addr,
            size,
            time_us,
            stack: Entry::NO_STACK,
            stream: stream.map_err(|error| error.problem)?,
            pool: place,
            action,
        };
        self.entries += if action == RawAction::Free { 2 } else { 1 };
        self.snapshot.entry(0, &raw).map_err(|error| error.problem)
    }

    /// Action, address and size of a row in PyTorch's form.
    fn recorded(&self, name: &str, row: &StringRecord) -> Result<(RawAction, u64, u64), String> {
        let action = RawAction::from_name(name.as_bytes());
        if action == RawAction::Unknown {
            let names: Vec<&str> = Action::ALL.iter().map(|action| action.name()).collect();
            return Err(format!("action {name:?} is none of free, {}", names.join(", ")));
        }
        let cell = |at: usize| row.get(at).unwrap_or("");
        let addr = number("addr", cell(self.columns.block), None)?;
        Ok((action, addr, number("size", cell(self.columns.size), None)?))
    }

    /// Action, made-up address and size of a row written by hand.
    fn named(&mut self, name: &str, row: &StringRecord) -> Result<(RawAction, u64, u64), String> {
        let id = row.get(self.columns.block).filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| format!("{name:?} without an id"))?;
        match name {
            "alloc" => {
                let size = row.get(self.columns.size).filter(|size| !size.is_empty());
                let size = size.ok_or_else(|| format!("alloc of {id:?} without a size"))?;
                let size = parse_size(size).map_err(|error| error.to_string())?;
                let addr = self.next_addr;
                let end = addr.checked_add(size.next_multiple_of(NAME_SPACING));
                self.next_addr = end.ok_or("the sizes exceed 2^64 bytes together")?;
                if self.live.insert(id.to_owned(), (addr, size)).is_some() {
                    return Err(format!("{id:?} is live already: free it first"));
                }
                Ok((RawAction::Known(Action::Alloc), addr, size))
            }
            "free" => {
                let live = self.live.remove(id);
                let (addr, size) =
                    live.ok_or_else(|| format!("free of {id:?}, which is not live"))?;
                Ok((RawAction::Free, addr, size))
            }
            _ => Err(format!("event {name:?} is none of alloc, free, empty_cache")),
        }
    }
}

/// A whole number, decimal or hexadecimal.
fn number(column: &str, text: &str, default: Option<u64>) -> Result<u64, String> {
    let parsed = match (text, text.strip_prefix("0x")) {
        ("", _) => default,
        (_, Some(hex)) => u64::from_str_radix(hex, 16).ok(),
        _ => text.parse().ok(),
    };
    let text = excerpt(text.as_bytes());
    parsed.ok_or_else(|| format!("{column} is \"{text}\", but must be a whole number from 0 on"))
}

/// `first:second`; a number alone is the second, as PyTorch numbers the pools of CUDA graphs.
fn pool_id(text: &str) -> Result<(u64, u64), String> {
    let (first, second) = text.split_once(':').unwrap_or(("0", text));
    Ok((number("pool", first, None)?, number("pool", second, None)?))
}
