//! The end of a recording: our segments and blocks next to those of the snapshot.

use crate::trace::{BlockState, Segment, SegmentBlock};

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
