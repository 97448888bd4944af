//! CSV: a trace that people and scripts can write. One event a row, a header, `#` for comments, in one of two forms.
//!
//! As PyTorch records it, with addresses; the actions are those of [`Action`](super::Action), and `free` for a free at
//! once:
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
//! In the first form a file may also say what else a snapshot says ([`facts`]): the settings, the annotations, and
//! what was held in the end. [`write_csv`] writes them, so that nothing is lost.
//!
//! A line break ends each line; without one, the last may be cut off. A file has one device. Columns may come in any
//! order, capitals do not matter, and columns that we do not know are left out with a warning. The separator may be a
//! comma, a semicolon or a tab, and a byte order mark may come first: so spreadsheets write tables.

mod columns;
mod facts;
mod sheet;
mod write;

pub use write::write_csv;

use ::csv::{ReaderBuilder, StringRecord, Trim};

use super::options::LoadOptions;
use super::torch::Snapshot;
use super::{Position, Records, Result, TraceError};
use columns::{Columns, is_ours};
pub(super) use columns::{names, number, separator, warn_of};
use gmlake_core::units::Bytes;
use sheet::Sheet;

/// What spreadsheets put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether the first line that is no comment is a header of ours.
pub(super) fn is_csv(bytes: &[u8]) -> bool {
    separator(bytes, is_ours).is_some()
}

/// A reader of the rows of a table with this separator.
pub(super) fn rows(bytes: &[u8], separator: u8) -> ::csv::Reader<&[u8]> {
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut builder = ReaderBuilder::new();
    builder.delimiter(separator).flexible(true).trim(Trim::All).comment(Some(b'#'));
    builder.from_reader(text)
}

/// Reads a trace in CSV. An error names the line, and what is wrong in it.
pub(super) fn read(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    let mut reader = rows(bytes, separator(bytes, is_ours).unwrap_or(b','));
    let columns = Columns::new(reader.headers().map_err(|error| damaged(&error))?)?;
    let mut sheet = Sheet::new(columns, Snapshot::new(options.torch_version, room));
    let cut = each_row(&mut reader, bytes, |row, line| {
        sheet.row(row).map_err(|problem| TraceError::new(Position::Line(line), problem, REMEDY))
    })?;
    sheet.finish(cut)
}

/// Hands on each row of a table, with its line. If the last may have been cut off, what is missing comes back, in
/// words: a row that lacks cells, or is wrong, is left out.
pub(super) fn each_row(
    reader: &mut ::csv::Reader<&[u8]>,
    bytes: &[u8],
    mut take: impl FnMut(&StringRecord, u64) -> Result<()>,
) -> Result<Option<String>> {
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let columns = reader.headers().map_err(|error| damaged(&error))?.len();
    let mut row = StringRecord::new();
    loop {
        let from = reader.position().byte() as usize;
        let read = reader.read_record(&mut row).map_err(|error| damaged(&error));
        if let Ok(false) = read {
            return Ok(None);
        }
        let line = row.position().map_or(0, ::csv::Position::line);
        let is_last = reader.position().byte() as usize == text.len();
        if !is_last || !is_open(&text[from..]) {
            read?;
            take(&row, line)?;
            continue;
        }
        let is_whole = read.is_ok() && row.get(columns - 1).is_some_and(|cell| !cell.is_empty());
        return Ok(Some(match is_whole && take(&row, line).is_ok() {
            true => format!("no line break ends line {line}, so that it may be cut off"),
            false => format!("the file ends in the middle of line {line}"),
        }));
    }
}

/// Whether the end of a table may be a part of a row. Zeros are not what was cut off, but damage.
fn is_open(row: &[u8]) -> bool {
    let quotes = row.iter().filter(|&&byte| byte == b'"').count();
    let is_ended = (row.ends_with(b"\n") || row.ends_with(b"\r")) && quotes.is_multiple_of(2);
    !is_ended && !row.contains(&0)
}

/// The only thing that is wrong with a table of whatever shape: bytes that are no text.
pub(super) fn damaged(error: &::csv::Error) -> TraceError {
    let line = error.position().map_or(Position::File, |at| Position::Line(at.line()));
    TraceError::new(line, "not a text in UTF-8", "save the table as CSV in UTF-8")
}

const REMEDY: &str =
    "columns are action,addr,size[,stream,time_us,pool] or event,id,size[,stream,time_us,pool]";
