//! Facts: rows that are no entries. They say what a snapshot says apart from its entries, so that a table stands for
//! the whole of it: with them, PyTorch's decisions can be verified, and the memory limit and the emptied caches found.
//!
//! ```text
//!   action,addr,size,stream,time_us,pool
//!   setting,max_split_size:134217728,0,0,0,          key and value, as in `allocator_settings`
//!   setting,gmlake_virtual_gpu:True,0,0,0,           it was recorded on the virtual GPU
//!   annotation_start,ProfilerStep#1,0,0,1000,        what the program called this moment; annotation_end likewise
//!   ...                                              the entries
//!   final,,0,0,0,                                    what was held in the end follows, even if it is nothing
//!   final_segment_large,0x7f00000000,20971520,0,0,0:0    or small, and _expandable
//!   final_block_allocated,0x7f00000000,4096,0,0,         a block of it, or final_block_pending; the rest is free
//! ```
//!
//! What a block's program had asked for is the size of the last `alloc` at its address.

use rustc_hash::FxHashMap;

use super::columns::number;
use crate::torch::{RawBlock, RawSegment, Snapshot};
use crate::writer::Marks;
use crate::{Annotation, BlockState, Entry, Result};

pub(super) const SETTING: &str = "setting";
pub(super) const ANNOTATIONS: [&str; 2] = ["annotation_end", "annotation_start"];
pub(super) const FINAL: &str = "final";
pub(super) const SEGMENT: &str = "final_segment_";
pub(super) const BLOCK: &str = "final_block_";
pub(super) const STATES: [(&str, BlockState); 2] =
    [("allocated", BlockState::Allocated), ("pending", BlockState::PendingFree)];

/// A row that is no entry.
pub(super) struct Fact<'a> {
    pub(super) name: &'a str,
    /// What stands in the place of the address.
    pub(super) text: &'a str,
    pub(super) size: u64,
    pub(super) stream: u64,
    pub(super) time_us: u64,
    pub(super) pool: (u64, u64),
}

/// What is known while the rows are read.
#[derive(Default)]
pub(super) struct Facts {
    /// Size of the last request at each address.
    requested: FxHashMap<u64, u64>,
    /// The segment whose blocks are being read, and its end.
    segment: Option<(RawSegment, u64)>,
}

impl Facts {
    /// Whether a row with this action is no entry.
    pub(super) fn has(name: &str) -> bool {
        name == SETTING || ANNOTATIONS.contains(&name) || name.starts_with(FINAL)
    }

    /// A request was served.
    pub(super) fn alloc(&mut self, addr: u64, size: u64) {
        self.requested.insert(addr, size);
    }

    /// Takes a row; an error says what is wrong with it.
    pub(super) fn take(&mut self, fact: &Fact, snapshot: &mut Snapshot) -> Result<(), String> {
        if fact.name == SETTING {
            return setting(fact.text, snapshot);
        }
        if let Some(place) = ANNOTATIONS.iter().position(|&name| name == fact.name) {
            let (name, time_us) = (fact.text.to_owned(), fact.time_us);
            let annotation = Annotation { name, is_start: place == 1, time_us };
            return snapshot.annotation(0, annotation).map_err(|error| error.problem);
        }
        if fact.name == FINAL {
            snapshot.has_segments = true;
            return Ok(());
        }
        if let Some(kind) = fact.name.strip_prefix(SEGMENT) {
            self.finish(snapshot).map_err(|error| error.problem)?;
            self.segment = Some(segment(kind, fact)?);
            return Ok(());
        }
        self.block(fact)
    }

    fn block(&mut self, fact: &Fact) -> Result<(), String> {
        let state = fact.name.strip_prefix(BLOCK);
        let state = STATES.iter().find(|&&(name, _)| Some(name) == state);
        let &(_, state) = state.ok_or_else(|| format!("{:?} is no action", fact.name))?;
        let (segment, _) = self.segment.as_mut().ok_or("a block of no segment")?;
        let address = number("addr", fact.text, None)?;
        let requested = self.requested.get(&address).copied();
        let (address, size) = (Some(address), fact.size);
        segment.blocks.push(RawBlock { address, size, requested, state, stack: Entry::NO_STACK });
        Ok(())
    }

    /// Hands on the last segment, free up to its end behind its last block.
    pub(super) fn finish(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        let Some((mut segment, end)) = self.segment.take() else { return Ok(()) };
        let last = segment.blocks.last().map(|block| (block.address.unwrap_or(0), block.size));
        let used = last.map_or(segment.address.unwrap_or(0), |(at, size)| at.saturating_add(size));
        if used < end {
            let state = BlockState::Inactive;
            let (address, size) = (Some(used), end - used);
            let (requested, stack) = (None, Entry::NO_STACK);
            segment.blocks.push(RawBlock { address, size, requested, state, stack });
        }
        snapshot.segment(&segment)
    }
}

/// A segment without blocks yet, and where it ends.
fn segment(kind: &str, fact: &Fact) -> Result<(RawSegment, u64), String> {
    let address = number("addr", fact.text, None)?;
    let end = address.checked_add(fact.size).ok_or("a segment that ends beyond 2^64")?;
    let segment = RawSegment {
        address: Some(address),
        stream: fact.stream,
        pool: fact.pool,
        is_small: kind.starts_with("small"),
        is_expandable: kind.ends_with("_expandable"),
        ..RawSegment::default()
    };
    Ok((segment, end))
}

/// A setting under its name in PyTorch's `allocator_settings`.
fn setting(text: &str, snapshot: &mut Snapshot) -> Result<(), String> {
    let wrong = || format!("{text:?} is no setting of PyTorch's allocator with its value");
    let (key, value) = text.split_once(':').ok_or_else(wrong)?;
    if Marks::default().set(key) {
        if value == "True" {
            snapshot.mark(key);
        }
        return Ok(());
    }
    let settings = snapshot.settings.get_or_insert_default();
    match key {
        "PYTORCH_CUDA_ALLOC_CONF" => settings.text = Some(value.to_owned()),
        "max_split_size" => settings.max_split_size = Some(value.parse().map_err(|_| wrong())?),
        "garbage_collection_threshold" => {
            settings.garbage_collection_threshold = Some(value.parse().map_err(|_| wrong())?);
        }
        "expandable_segments" => settings.expandable_segments = Some(value == "True"),
        "roundup_power2_divisions" => {
            let pair = value.split_once(':').ok_or_else(wrong)?;
            let pair = (number(key, pair.0, None)?, number(key, pair.1, None)?);
            settings.roundup_power2_divisions.push(pair);
        }
        _ => return Err(wrong()),
    }
    Ok(())
}
