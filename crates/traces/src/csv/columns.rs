//! Columns: where each part of a row stands, read from the header; and cells, as numbers.

use ::csv::StringRecord;

use super::{BYTE_ORDER_MARK, REMEDY};
use crate::error::excerpt;
use crate::whole::of_text;
use crate::{Position, Records, Result, TraceError, Warning, WarningKind};

/// Characters that separate the cells of a row in somebody's tables.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// The separator under which the first line that is no comment is a header that `is_ours`, in small letters.
pub(crate) fn separator(bytes: &[u8], is_ours: impl Fn(&[Vec<u8>]) -> bool) -> Option<u8> {
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut lines = text.split(|&b| b == b'\n');
    let header = lines.find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))?;
    SEPARATORS.into_iter().find(|separator| {
        let cells = header.split(|b| b == separator).take(64).map(|cell| {
            let cell = cell.trim_ascii();
            let bare = cell.strip_prefix(b"\"").and_then(|cell| cell.strip_suffix(b"\""));
            bare.unwrap_or(cell).trim_ascii().to_ascii_lowercase()
        });
        is_ours(&cells.collect::<Vec<_>>())
    })
}

/// Whether a header is that of this module's tables.
pub(super) fn is_ours(names: &[Vec<u8>]) -> bool {
    let has = |name: &[u8]| names.iter().any(|cell| cell == name);
    // A line of a log may well hold one of the words alone.
    (has(b"action") || has(b"event")) && names.len() > 1
}

/// The names in a header, in small letters.
pub(crate) fn names(header: &StringRecord) -> Vec<String> {
    // A blank before a quote makes it a part of the name.
    header.iter().map(|name| name.trim_matches(['"', ' ']).to_ascii_lowercase()).collect()
}

/// The place of each column.
pub(super) struct Columns {
    pub(super) action: usize,
    pub(super) block: usize,
    pub(super) size: usize,
    pub(super) stream: Option<usize>,
    pub(super) time_us: Option<usize>,
    pub(super) pool: Option<usize>,
    pub(super) is_by_hand: bool,
    /// Names of columns that we do not know.
    pub(super) unknown: Vec<String>,
}

impl Columns {
    /// Reads the header.
    pub(super) fn new(header: &StringRecord) -> Result<Self> {
        let names = names(header);
        let at = |name: &str| names.iter().position(|column| column == name);
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
        let unknown = names.iter().filter(|name| !known.contains(&name.as_str()));
        let unknown = unknown.map(|name| excerpt(name.as_bytes())).collect();
        Ok(Self {
            action: needed(action)?,
            block: needed(block)?,
            size: needed("size")?,
            stream: at("stream"),
            time_us: at("time_us"),
            pool: at("pool"),
            is_by_hand,
            unknown,
        })
    }
}

/// Warns of columns that we do not know.
pub(crate) fn warn_of(unknown: &[String], records: &mut [Records]) {
    if let (Some(records), Some(name)) = (records.first_mut(), unknown.first()) {
        let (kind, count) = (WarningKind::UnknownColumn, unknown.len() as u64);
        records.warnings.push(Warning { kind, count, first: format!("\"{name}\"") });
    }
}

/// A whole number, decimal or hexadecimal.
pub(crate) fn number(column: &str, text: &str, default: Option<u64>) -> Result<u64, String> {
    let parsed = if text.is_empty() { default } else { of_text(text) };
    let text = excerpt(text.as_bytes());
    parsed.ok_or_else(|| format!("{column} is \"{text}\", but must be a whole number from 0 on"))
}

/// `first:second`; a number alone is the second, as PyTorch numbers the pools of CUDA graphs.
pub(super) fn pool_id(text: &str) -> Result<(u64, u64), String> {
    let (first, second) = text.split_once(':').unwrap_or(("0", text));
    Ok((number("pool", first, None)?, number("pool", second, None)?))
}
