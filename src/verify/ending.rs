//! The end of a recording: our segments and blocks next to those of the snapshot, and whether its entries lead there.

use rustc_hash::FxHashMap;

use crate::trace::{Action, BlockState, Records, Segment, SegmentBlock};
use crate::units::Bytes;

/// Whether the entries leave something that the final state lacks: a block in use, or a segment. Then they end before
/// the state was taken. Entries of which some are missing prove nothing, and so do requests alone.
pub fn leads_elsewhere(records: &Records) -> bool {
    if !records.entries.iter().any(|entry| entry.action.is_driver_call()) {
        return false;
    }
    let (mut live, mut held) = (FxHashMap::default(), FxHashMap::default());
    for entry in &records.entries {
        let known = match entry.action {
            Action::Alloc => live.insert(entry.addr, entry.size),
            Action::SegmentAlloc => held.insert(entry.addr, entry.size),
            Action::FreeRequested | Action::FreeCompleted => {
                live.remove(&entry.addr);
                None
            }
            Action::SegmentFree => {
                held.remove(&entry.addr);
                None
            }
            _ => None,
        };
        if known.is_some() {
            return false;
        }
    }
    let is_there = |(at, size): (&u64, &Bytes)| {
        segment_at(records, *at).is_some_and(|segment| segment.address + segment.size >= at + size)
    };
    let is_live = |(at, size): (&u64, &Bytes)| {
        let blocks = segment_at(records, *at).map_or(&[][..], |segment| &segment.blocks);
        let block = blocks.binary_search_by_key(at, |block| block.address).map(|at| &blocks[at]);
        block.is_ok_and(|block| block.state != BlockState::Inactive && block.size >= *size)
    };
    !held.iter().all(is_there) || !live.iter().all(is_live)
}

/// The last segment of the final state that does not begin behind this address.
fn segment_at(records: &Records, at: u64) -> Option<&Segment> {
    let behind = records.segments.partition_point(|segment| segment.address <= at);
    records.segments[..behind].last()
}

/// Every segment that is not the same on both sides, in words: what is recorded, and what the model has.
pub(super) fn differing_segments(recorded: &[Segment], model: &[Segment]) -> Vec<(String, String)> {
    let mut differing = Vec::new();
    let mut model = model.iter().peekable();
    for segment in recorded {
        while let Some(extra) = model.next_if(|other| other.address < segment.address) {
            differing.push((describe(None), describe(Some(extra))));
        }
        match model.next_if(|other| other.address == segment.address) {
            Some(found) if is_same(segment, found) => {}
            found => differing.push((describe(Some(segment)), describe(found))),
        }
    }
    differing.extend(model.map(|extra| (describe(None), describe(Some(extra)))));
    differing
}

/// Requested sizes are compared in active blocks only: what is left in a free one is stale.
fn is_same(recorded: &Segment, model: &Segment) -> bool {
    let same_block = |(a, b): (&SegmentBlock, &SegmentBlock)| {
        let same_request = a.state == BlockState::Inactive || a.requested == b.requested;
        (a.address, a.size, a.state) == (b.address, b.size, b.state) && same_request
    };
    let Segment { size, stream, pool, is_small, is_expandable, .. } = *recorded;
    (size, stream, pool, is_small, is_expandable)
        == (model.size, model.stream, model.pool, model.is_small, model.is_expandable)
        && recorded.blocks.len() == model.blocks.len()
        && recorded.blocks.iter().zip(&model.blocks).all(same_block)
}

fn describe(segment: Option<&Segment>) -> String {
    match segment {
        None => "no segment there at the end".to_owned(),
        Some(Segment { address, size, blocks, .. }) => {
            format!("segment {address:#x} of {size} bytes, {} blocks", blocks.len())
        }
    }
}
