//! A sheet: the rows of a table, as they become entries.

use ::csv::StringRecord;
use rustc_hash::FxHashMap;

use super::columns::{Columns, number, pool_id, warn_of};
use super::facts::{Fact, Facts};
use crate::torch::{RawAction, RawEntry, Snapshot};
use crate::{Action, Entry, Records, Result};
use gmlake_core::units::parse_size;

/// A file half read.
pub(super) struct Sheet {
    columns: Columns,
    snapshot: Snapshot,
    facts: Facts,
    /// Address and size of each named block that is live.
    live: FxHashMap<String, (u64, u64)>,
    next_addr: u64,
    entries: usize,
    trims: Vec<usize>,
}

/// Named blocks get addresses one after another, from here on, each in a multiple of this.
const NAME_SPACING: u64 = 512;

impl Sheet {
    /// A table without a row.
    pub(super) fn new(columns: Columns, snapshot: Snapshot) -> Self {
        let (live, next_addr) = (FxHashMap::default(), NAME_SPACING);
        let facts = Facts::default();
        Self { columns, snapshot, facts, live, next_addr, entries: 0, trims: Vec::new() }
    }

    /// Takes the next row; an error says what is wrong with it.
    pub(super) fn row(&mut self, row: &StringRecord) -> Result<(), String> {
        let Columns { action, block, stream, time_us, pool, is_by_hand, .. } = self.columns;
        let cell = |column: Option<usize>| column.and_then(|at| row.get(at)).unwrap_or("");
        let name = cell(Some(action));
        if is_by_hand && name.eq_ignore_ascii_case("empty_cache") {
            self.trims.push(self.entries);
            return Ok(());
        }
        let time_us = number("time_us", cell(time_us), Some(0))?;
        if !is_by_hand && Facts::has(name) {
            let size = number("size", cell(Some(self.columns.size)), Some(0))?;
            let stream = number("stream", cell(stream), Some(0))?;
            let pool = if cell(pool).is_empty() { (0, 0) } else { pool_id(cell(pool))? };
            let fact = Fact { name, text: cell(Some(block)), size, stream, time_us, pool };
            return self.facts.take(&fact, &mut self.snapshot);
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
        let (action, addr, size) =
            if is_by_hand { self.named(name, row)? } else { self.recorded(name, row)? };
        if action == RawAction::Known(Action::Alloc) {
            self.facts.alloc(addr, size);
        }
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

    /// Everything that the table says, and what is missing of it if it was cut off.
    pub(super) fn finish(mut self, cut: Option<String>) -> Result<Vec<Records>> {
        self.facts.finish(&mut self.snapshot)?;
        self.snapshot.cut_if(cut);
        let mut records = self.snapshot.finish()?;
        if let Some(first) = records.first_mut() {
            first.trims = self.trims;
        }
        warn_of(&self.columns.unknown, &mut records);
        Ok(records)
    }

    /// Action, address and size of a row in PyTorch's form.
    fn recorded(&self, name: &str, row: &StringRecord) -> Result<(RawAction, u64, u64), String> {
        let action = RawAction::from_name(name.to_ascii_lowercase().as_bytes());
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
        match name.to_ascii_lowercase().as_str() {
            "alloc" => {
                let size = row.get(self.columns.size).filter(|size| !size.is_empty());
                let size = size.ok_or_else(|| format!("alloc of {id:?} without a size"))?;
                let size = parse_size(size)?;
                let addr = self.next_addr;
                let end = addr.checked_add(size.max(1).next_multiple_of(NAME_SPACING));
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
