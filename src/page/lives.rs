//! The lives of blocks as the page reads them: a few tables as JSON, and long columns of numbers, deflated.
//!
//! ```text
//!   blocks     born, as change │ life + 1, or 0 for ever │ origin │ size │ place      five columns, one after another
//!   let go     count │ block, as change; how long before its end ...
//!   segments   count │ born, as change; life + 1; address, as change; size; stream; pool ...
//!   times      count │ event, as change; time, as change ...
//! ```
//!
//! Sizes and places are numbers of rows in tables of their own, which come first: both occur again and again. Where all
//! blocks would make the page too large, the smallest are left out, and the page says so. `js/lives.js` is the other
//! end of this.

use std::collections::BTreeMap;
use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::encode::Numbers;
use crate::blame::{BlockLife, Category, EventIndex, History, Life, SegmentLife};
use crate::trace::both;
use crate::units::Bytes;

/// What the page knows of a history in addition to the columns.
#[derive(Serialize)]
pub(super) struct Lives {
    allocator: String,
    events: EventIndex,
    steps: Vec<EventIndex>,
    ooms: Vec<(EventIndex, Bytes)>,
    has_stacks: bool,
    is_state: bool,
    frames: Vec<String>,
    /// Frames of each stack, innermost first, and which of them names it.
    stacks: Vec<(Vec<usize>, usize)>,
    /// Stack, category, stream, pool.
    origins: Vec<(u32, usize, u16, u8)>,
    categories: Vec<&'static str>,
    blocks: usize,
    pub(super) left_out: Option<LeftOut>,
}

/// Blocks that are not in the page one by one.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) blocks: usize,
    /// They are all at most this large.
    pub(super) bytes: Bytes,
    /// Most of their bytes that are live at once.
    pub(super) most_bytes: Bytes,
}

/// The tables, and the columns as text of at most about `budget` characters.
pub(super) fn lives(history: &History, budget: usize) -> (Lives, String) {
    let (text, smallest) = fit(history, budget);
    let mut frames = Table::default();
    let of_stack = |stack: &crate::blame::NamedStack| {
        let places = stack.frames.iter().map(|frame| frames.place(frame.clone())).collect();
        (places, stack.named)
    };
    let stacks = history.stacks.iter().map(of_stack).collect();
    let category = |wanted: Category| Category::ALL.iter().position(|(own, _)| *own == wanted);
    let origins = history.origins.iter().map(|origin| {
        let category = category(origin.category).unwrap_or_default();
        (origin.stack, category, origin.stream.0, origin.pool.0)
    });
    let tables = Lives {
        allocator: history.allocator.clone(),
        events: history.events,
        steps: history.steps.clone(),
        ooms: history.ooms.clone(),
        has_stacks: history.has_stacks,
        is_state: history.is_state,
        stacks,
        frames: frames.rows,
        origins: origins.collect(),
        categories: Category::ALL.iter().map(|(_, name)| *name).collect(),
        blocks: history.blocks.len(),
        left_out: left_out(history, smallest),
    };
    (tables, text)
}

/// Blocks from which it is guessed how many fit.
const SAMPLE: usize = 1 << 18;

/// The columns, and the size up to which blocks were left out.
fn fit(history: &History, budget: usize) -> (String, Bytes) {
    let counts = || counts(&history.blocks);
    let (mut room, counts) = both(|| guess(&history.blocks, budget), counts);
    let mut smallest = 0;
    loop {
        if let Some(border) = history.blocks.len().checked_sub(room.saturating_add(1)) {
            smallest = size_at(&counts, border).max(smallest + 1);
        }
        let kept = history.blocks.iter().filter(|block| block.bytes > smallest);
        let kept: Vec<BlockLife> = kept.copied().collect();
        let text = deflated(&columns(&kept, &history.segments, &history.times_us));
        if text.len() <= budget || kept.is_empty() {
            return (text, smallest);
        }
        // Small blocks are many, so that this is done once or twice.
        room = share(kept.len(), budget, text.len());
    }
}

/// How many blocks there are of each size.
fn counts(blocks: &[BlockLife]) -> BTreeMap<Bytes, usize> {
    let mut counts: FxHashMap<Bytes, usize> = FxHashMap::default();
    blocks.iter().for_each(|block| *counts.entry(block.bytes).or_default() += 1);
    counts.into_iter().collect()
}

/// The size of the block in this place of all, the smallest first.
fn size_at(counts: &BTreeMap<Bytes, usize>, place: usize) -> Bytes {
    let mut before = 0;
    let reaches = |(&bytes, &count)| {
        before += count;
        (before > place).then_some(bytes)
    };
    counts.iter().find_map(reaches).unwrap_or(0)
}

/// How many of the largest blocks probably fit, by what some from the middle take: all, to be tried, unless it is less
/// than half.
fn guess(blocks: &[BlockLife], budget: usize) -> usize {
    if blocks.len() <= 4 * SAMPLE {
        return blocks.len();
    }
    let middle = &blocks[(blocks.len() - SAMPLE) / 2..][..SAMPLE];
    let room = share(SAMPLE, budget, deflated(&columns(middle, &[], &[])).len());
    if room > blocks.len() / 2 { blocks.len() } else { room }
}

/// How many blocks fit where `blocks` of them take `taken` characters: in proportion, and a little less.
fn share(blocks: usize, budget: usize, taken: usize) -> usize {
    (blocks as u64 * budget as u64 / taken as u64 * 9 / 10) as usize
}

fn left_out(history: &History, smallest: Bytes) -> Option<LeftOut> {
    let out = || history.blocks.iter().filter(|block| block.bytes <= smallest);
    let blocks = out().count();
    if blocks == 0 {
        return None;
    }
    // How much more is live after each event, modulo 2^64.
    let mut changes = vec![0; history.events as usize];
    for block in out() {
        let Life { born, died } = block.life;
        for (event, change) in [(born, block.bytes), (died, block.bytes.wrapping_neg())] {
            if let Some(total) = changes.get_mut(event as usize) {
                *total = change.wrapping_add(*total);
            }
        }
    }
    let live = changes.iter().scan(0, |live: &mut Bytes, change| {
        *live = live.wrapping_add(*change);
        Some(*live)
    });
    Some(LeftOut { blocks, bytes: smallest, most_bytes: live.max().unwrap_or(0) })
}

fn deflated(bytes: &[u8]) -> String {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    BASE64_STANDARD.encode(written.expect("memory takes everything"))
}

fn columns(
    blocks: &[BlockLife],
    segments: &[SegmentLife],
    times_us: &[(EventIndex, u64)],
) -> Vec<u8> {
    let ([sizes, lives], [table, places]) = both(|| own_columns(blocks), || place_columns(blocks));
    let mut others = Numbers::default();
    push_pending(&mut others, blocks);
    push_segments(&mut others, segments);
    push_times(&mut others, times_us);
    let in_order = [sizes, table, lives, places, others];
    in_order.map(Numbers::into_bytes).concat()
}

/// The table of sizes, and the columns of all but the place.
fn own_columns(blocks: &[BlockLife]) -> [Numbers; 2] {
    let (mut table, mut numbers) = (Numbers::default(), Numbers::default());
    let (sizes, of_size) = by_frequency(blocks);
    table.push(sizes.len() as u64);
    for &(bytes, requested) in &sizes {
        table.push(bytes);
        table.push(bytes.saturating_sub(requested));
    }
    numbers.push(blocks.len() as u64);
    changes(&mut numbers, blocks.iter().map(|block| block.life.born.into()));
    blocks.iter().for_each(|block| numbers.push(span(block.life)));
    blocks.iter().for_each(|block| numbers.push(block.origin.into()));
    blocks.iter().for_each(|block| numbers.push(of_size[&(block.bytes, block.requested)]));
    [table, numbers]
}

/// The table of places, and their column.
fn place_columns(blocks: &[BlockLife]) -> [Numbers; 2] {
    let (mut table, mut numbers) = (Numbers::default(), Numbers::default());
    let mut places: Vec<u64> = blocks.iter().map(|block| block.at).collect();
    places.sort_unstable();
    places.dedup();
    table.push(places.len() as u64);
    changes(&mut table, places.iter().copied());
    for block in blocks {
        numbers.push(places.partition_point(|&place| place < block.at) as u64);
    }
    [table, numbers]
}

/// The different sizes with what was asked for, the commonest first, and the place of each.
#[allow(clippy::type_complexity, reason = "a pair of tables")]
fn by_frequency(blocks: &[BlockLife]) -> (Vec<(Bytes, Bytes)>, FxHashMap<(Bytes, Bytes), u64>) {
    let mut counts: FxHashMap<(Bytes, Bytes), u64> = FxHashMap::default();
    for block in blocks {
        *counts.entry((block.bytes, block.requested)).or_default() += 1;
    }
    let mut sizes: Vec<(Bytes, Bytes)> = counts.keys().copied().collect();
    sizes.sort_unstable_by_key(|size| (std::cmp::Reverse(counts[size]), *size));
    let places = sizes.iter().copied().zip(0..).collect();
    (sizes, places)
}

/// Each number's distance from the one before.
fn changes(numbers: &mut Numbers, values: impl Iterator<Item = u64>) {
    let mut last = 0;
    for value in values {
        numbers.push_change(last, value);
        last = value;
    }
}

/// How long it was there, and one more; 0 if it was there at the end.
fn span(life: Life) -> u64 {
    match life.died {
        Life::NEVER => 0,
        died => u64::from(died - life.born) + 1,
    }
}

/// The blocks that another stream still used when the program let go of them.
fn push_pending(numbers: &mut Numbers, blocks: &[BlockLife]) {
    let is_pending = |block: &BlockLife| block.let_go < block.life.died;
    numbers.push(blocks.iter().filter(|block| is_pending(block)).count() as u64);
    let mut last = 0;
    for (place, block) in blocks.iter().enumerate().filter(|(_, block)| is_pending(block)) {
        numbers.push((place - last) as u64);
        numbers.push((block.let_go - block.life.born).into());
        last = place;
    }
}

fn push_segments(numbers: &mut Numbers, segments: &[SegmentLife]) {
    numbers.push(segments.len() as u64);
    let mut last = (0, 0);
    for segment in segments {
        let born = u64::from(segment.life.born);
        numbers.push_change(last.0, born);
        numbers.push(span(segment.life));
        numbers.push_change(last.1, segment.at);
        numbers.push(segment.bytes);
        numbers.push(segment.stream.0.into());
        numbers.push(segment.pool.0.into());
        last = (born, segment.at);
    }
}

fn push_times(numbers: &mut Numbers, times_us: &[(EventIndex, u64)]) {
    numbers.push(times_us.len() as u64);
    let mut last = (0, 0);
    for &(event, time) in times_us {
        numbers.push((event - last.0).into());
        numbers.push_change(last.1, time);
        last = (event, time);
    }
}

/// Different texts, each with its place.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
    places: FxHashMap<String, usize>,
}

impl Table {
    fn place(&mut self, text: String) -> usize {
        *self.places.entry(text).or_insert_with_key(|text| {
            self.rows.push(text.clone());
            self.rows.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(born: EventIndex, died: EventIndex, bytes: Bytes) -> BlockLife {
        let life = Life { born, died };
        let at = 4096 + u64::from(born) * 512;
        BlockLife { at, bytes, requested: bytes - 1, life, let_go: died, origin: 0 }
    }

    #[test]
    fn the_smallest_are_left_out_and_told_of() {
        let mut blocks: Vec<BlockLife> =
            (0..2000).map(|n| block(2 * n, 2 * n + 3, 512 + u64::from(n * n % 97))).collect();
        blocks.push(block(4001, Life::NEVER, 1 << 30));
        let history = History { blocks, events: 4002, ..History::default() };
        let (all, text) = lives(&history, usize::MAX);
        assert_eq!((all.left_out, all.blocks), (None, 2001));
        let budget = text.len() / 3;
        let (some, shorter) = lives(&history, budget);
        assert!(shorter.len() <= budget, "{} of {budget}", shorter.len());
        let out = some.left_out.expect("some are left out");
        assert!(out.blocks < 2001 && out.bytes < 1 << 30, "{out:?}");
        // Each is there for three events, and one comes every second event: two at once.
        assert!((out.bytes..=2 * out.bytes).contains(&out.most_bytes), "{out:?}");
        let (none, _) = lives(&history, 1);
        assert_eq!(none.left_out.map(|out| out.blocks), Some(2001));
    }
}
