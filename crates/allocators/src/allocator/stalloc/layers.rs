//! Layers: where STAlloc's planner puts blocks whose lifetimes it knows ("split and fuse", its default).
//!
//! Blocks of one size, the largest size first, are stacked in *layers* one behind the other in time; each layer has
//! addresses of its own. Before a new layer is made, blocks go on top of what lies in the layers that are there, at the
//! times of their lives, as long as they do not reach out of the layer.
//!
//! ```text
//!   memory ▲ ┌────┐
//!          │ │ 2  │   ┌──────┐          layer of size 2:  two blocks of size 2, one after the other
//!          │ ├────┴───┴──┬───┴──┐
//!          │ │     1     │ 3  3 │       layer of size 1:  a block of size 1, and two smaller ones on its floor
//!          └─┴───────────┴──────┴─▶ time
//! ```
//!
//! From `Synthesizer/allocator.py`: `allocate_group(group=False)`, `form_layer`, `NaiveSegmentTree`. What looks like
//! slips there decides, too, and is kept: the attempts that reorder blocks always compare the same sum, so that there
//! are six of them (line "new_layers = form_layer(blocks, cluster_id)"); a block may be counted in several layers while
//! that is done; intervals are compared as if they were sorted (`check_overlap`); and a block lies a moment earlier in
//! its own layer than in those of others (`form_segment_tree`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gmlake_core::units::Bytes;

/// A block to be placed: from its request to its free, both included, in moments; and its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) size: Bytes,
}

/// The iteration that is repeated after the profile: its first moment, and how long it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period {
    pub(super) start: usize,
    pub(super) length: usize,
}

/// Times a round of attempts is made for each size.
const ATTEMPTS: usize = 6;

/// The offset of each block, and the bytes that all of them take. Blocks are in order of their first moments, none of
/// which is 0.
pub(super) fn place(blocks: &[Block], period: Period) -> (Vec<Bytes>, Bytes) {
    let last = blocks.iter().map(|block| block.end).max().unwrap_or(0);
    let mut planner =
        Planner { blocks, period, last, layers: Vec::new(), offsets: vec![0; blocks.len()] };
    let mut by_size: BTreeMap<Bytes, Vec<usize>> = BTreeMap::new();
    for (number, block) in blocks.iter().enumerate() {
        by_size.entry(block.size).or_default().push(number);
    }
    for (size, numbers) in by_size.into_iter().rev() {
        planner.place_size(size, &numbers);
    }
    let height = planner.layers.last().map_or(0, |layer| layer.offset + layer.size);
    (planner.offsets, height)
}

/// How high addresses are taken at each moment: the moments from which on the height is another, and that height.
#[derive(Debug, Clone, Default)]
struct Heights(Vec<(usize, Bytes)>);

impl Heights {
    /// How many changes come before a moment.
    fn before(&self, moment: usize) -> usize {
        self.0.partition_point(|&(at, _)| at < moment)
    }

    /// The greatest height from one moment to another, both included; `None` if it is above `room`.
    fn most(&self, (start, end): (usize, usize), room: Bytes) -> Option<Bytes> {
        let first = self.before(start + 1).saturating_sub(1);
        let mut most = 0;
        for &(_, height) in self.0[first..].iter().take_while(|&&(at, _)| at <= end) {
            most = most.max(height);
            if most > room {
                return None;
            }
        }
        Some(most)
    }

    /// Sets the height from one moment to another, both included.
    fn set(&mut self, (start, end): (usize, usize), height: Bytes) {
        let inside = self.before(start)..self.before(end + 2);
        let behind = inside.end.checked_sub(1).map_or(0, |last| self.0[last].1);
        self.0.splice(inside, [(start, height), (end + 1, behind)]);
    }
}

/// Addresses of one size, and how high they are taken.
#[derive(Debug, Default)]
struct Layer {
    offset: Bytes,
    size: Bytes,
    heights: Heights,
}

impl Clone for Layer {
    fn clone(&self) -> Self {
        Self { heights: self.heights.clone(), ..*self }
    }

    /// Keeps the memory.
    fn clone_from(&mut self, other: &Self) {
        (self.offset, self.size) = (other.offset, other.size);
        self.heights.0.clone_from(&other.heights.0);
    }
}

/// A layer by its number, and which of some blocks it has room for, each by itself.
struct Shelf {
    layer: usize,
    has_room: Vec<bool>,
}

impl Layer {
    /// The lowest place on top of everything in a block's lifetime, if it does not reach out of the layer.
    fn floor(&self, block: &Block) -> Option<Bytes> {
        let room = self.size.checked_sub(block.size)?;
        self.heights.most((block.start, block.end), room)
    }

    fn put(&mut self, block: &Block, floor: Bytes) {
        self.heights.set((block.start, block.end), floor + block.size);
    }
}

struct Planner<'b> {
    blocks: &'b [Block],
    period: Period,
    last: usize,
    layers: Vec<Layer>,
    offsets: Vec<Bytes>,
}

impl Planner<'_> {
    fn place_size(&mut self, size: Bytes, numbers: &[usize]) {
        let blocks: Vec<usize> = self.rows(numbers).concat();
        let shelves = self.shelves(&blocks);
        let order = self.order(&blocks, &shelves);
        let mut is_placed = vec![false; blocks.len()];
        for shelf in &shelves {
            let layer = &mut self.layers[shelf.layer];
            for &at in order.iter().filter(|&&at| shelf.has_room[at]) {
                let block = &self.blocks[blocks[at]];
                if let Some(floor) = layer.floor(block).filter(|_| !is_placed[at]) {
                    layer.put(block, floor);
                    self.offsets[blocks[at]] = layer.offset + floor;
                    is_placed[at] = true;
                }
            }
        }
        let mut left: Vec<usize> =
            (0..blocks.len()).filter(|&at| !is_placed[at]).map(|at| blocks[at]).collect();
        left.sort_by_key(|&number| self.blocks[number].start);
        for row in self.rows(&left) {
            self.add_layer(size, &row);
        }
    }

    /// The layers that have room for any of the blocks. In the others there is none later, either: heights only grow.
    fn shelves(&self, blocks: &[usize]) -> Vec<Shelf> {
        let shelf = |(layer, one): (usize, &Layer)| {
            let has_room = |&number: &usize| one.floor(&self.blocks[number]).is_some();
            let has_room: Vec<bool> = blocks.iter().map(has_room).collect();
            has_room.contains(&true).then_some(Shelf { layer, has_room })
        };
        self.layers.iter().enumerate().filter_map(shelf).collect()
    }

    /// The order of the blocks after all attempts; once one changes nothing, no later one does.
    fn order(&self, blocks: &[usize], shelves: &[Shelf]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        for _ in 0..ATTEMPTS {
            let next = self.attempt(blocks, shelves, &order);
            if next == order {
                break;
            }
            order = next;
        }
        order
    }

    /// One attempt: the order with the places first that no layer has room for.
    fn attempt(&self, blocks: &[usize], shelves: &[Shelf], order: &[usize]) -> Vec<usize> {
        let mut fits = vec![false; order.len()];
        let mut layer = Layer::default();
        for shelf in shelves {
            layer.clone_from(&self.layers[shelf.layer]);
            for (place, &at) in order.iter().enumerate().filter(|&(_, &at)| shelf.has_room[at]) {
                let block = &self.blocks[blocks[at]];
                if let Some(floor) = layer.floor(block) {
                    layer.put(block, floor);
                    fits[place] = true;
                }
            }
        }
        // Places in the order are taken for blocks here, as they are there.
        let first = (0..order.len()).filter(|&place| !fits[place]);
        first.chain(order.iter().copied().filter(|&at| fits[at])).collect()
    }

    /// Blocks one behind the other in time, in as few rows as come about; those of the period also where they come
    /// again one iteration later.
    fn rows(&self, numbers: &[usize]) -> Vec<Vec<usize>> {
        let mut rows: Vec<Row> = Vec::new();
        // When the last block of each row ends, the latest first.
        let mut tails = BTreeSet::new();
        for &number in numbers {
            let block = &self.blocks[number];
            let mut candidates = tails.range((Reverse(block.start), 0)..).copied();
            let found = candidates.find(|&(_, row): &(_, usize)| !rows[row].overlaps(block));
            let row = match found {
                Some(tail) => {
                    tails.remove(&tail);
                    tail.1
                }
                None => {
                    rows.push(Row::default());
                    rows.len() - 1
                }
            };
            tails.insert((Reverse(block.end), row));
            rows[row].add(number, block, self.again(block));
        }
        rows.into_iter().map(|row| row.blocks).collect()
    }

    /// When a block of the period lives again.
    fn again(&self, block: &Block) -> Option<(usize, usize)> {
        let Period { start, length } = self.period;
        let begin = block.start + length;
        let comes = block.start >= start && begin <= self.last;
        comes.then(|| (begin, (block.end + length).min(self.last)))
    }

    fn add_layer(&mut self, size: Bytes, row: &[usize]) {
        let offset = self.layers.last().map_or(0, |layer| layer.offset + layer.size);
        let mut heights = Heights::default();
        for &number in row {
            let Block { start, end, .. } = self.blocks[number];
            heights.set((start - 1, end - 1), size);
            self.offsets[number] = offset;
        }
        self.layers.push(Layer { offset, size, heights });
    }
}

/// Blocks of one size one behind the other.
#[derive(Debug, Default)]
struct Row {
    blocks: Vec<usize>,
    /// When each interval begins, and the latest end up to there.
    intervals: Vec<(usize, usize)>,
}

impl Row {
    /// As `check_overlap` has it: the search ends at the first interval that ends after the block begins.
    fn overlaps(&self, block: &Block) -> bool {
        let met = self.intervals.partition_point(|&(_, latest)| latest <= block.start);
        self.intervals.get(met).is_some_and(|&(start, _)| block.end > start)
    }

    fn add(&mut self, number: usize, block: &Block, again: Option<(usize, usize)>) {
        self.blocks.push(number);
        for (start, end) in std::iter::once((block.start, block.end)).chain(again) {
            let latest = self.intervals.last().map_or(end, |&(_, latest)| latest.max(end));
            self.intervals.push((start, latest));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The order after all attempts, the obvious way: each layer a row of numbers, each block tried in each of them,
    /// all times.
    fn obvious_order(planner: &Planner, blocks: &[usize]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        for _ in 0..ATTEMPTS {
            let mut fits = vec![false; order.len()];
            for layer in &planner.layers {
                let mut row: Vec<Bytes> =
                    (0..100).map(|at| height_at(&layer.heights, at)).collect();
                for (place, &at) in order.iter().enumerate() {
                    let Block { start, end, size } = planner.blocks[blocks[at]];
                    let most = row[start..=end].iter().copied().max().unwrap();
                    if most + size <= layer.size {
                        row[start..=end].fill(most + size);
                        fits[place] = true;
                    }
                }
            }
            let first = (0..order.len()).filter(|&place| !fits[place]);
            order = first.chain(order.iter().copied().filter(|&at| fits[at])).collect();
        }
        order
    }

    /// Blocks, and intervals.
    type PlainRow = (Vec<usize>, Vec<(usize, usize)>);

    /// Rows, the obvious way: sort, and look at every interval.
    fn obvious_rows(planner: &Planner, numbers: &[usize]) -> Vec<Vec<usize>> {
        let mut rows: Vec<PlainRow> = Vec::new();
        let end = |row: &PlainRow| row.0.last().map_or(0, |&n| planner.blocks[n].end);
        for &number in numbers {
            let block = &planner.blocks[number];
            let mut open: Vec<usize> =
                (0..rows.len()).filter(|&row| end(&rows[row]) <= block.start).collect();
            open.sort_by_key(|&row| Reverse(end(&rows[row])));
            let is_free = |&row: &usize| {
                let met = rows[row].1.iter().find(|(_, end)| *end > block.start);
                met.is_none_or(|&(start, _)| block.end <= start)
            };
            let row = open.into_iter().find(is_free).unwrap_or(rows.len());
            if row == rows.len() {
                rows.push((Vec::new(), Vec::new()));
            }
            rows[row].0.push(number);
            rows[row].1.push((block.start, block.end));
            rows[row].1.extend(planner.again(block));
        }
        rows.into_iter().map(|row| row.0).collect()
    }

    fn height_at(heights: &Heights, moment: usize) -> Bytes {
        heights.most((moment, moment), Bytes::MAX).unwrap()
    }

    proptest! {
        #[test]
        fn short_cuts_lead_to_the_same_rows_and_orders(
            rows in prop::collection::vec((1..4usize, 0..20usize, 1..6u64), 1..60),
            from in 0..40usize,
        ) {
            let mut start = 0;
            let block = |&(gap, length, size): &(usize, usize, Bytes)| {
                start += gap % 3;
                Block { start: start + 1, end: start + 1 + length, size }
            };
            let blocks: Vec<Block> = rows.iter().map(block).collect();
            let last = blocks.iter().map(|block| block.end).max().unwrap();
            let period = Period { start: from, length: 7 };
            let offsets = vec![0; blocks.len()];
            let mut planner = Planner { blocks: &blocks, period, last, layers: vec![], offsets };
            for size in (1..6).rev() {
                let of_size = (0..blocks.len()).filter(|&number| blocks[number].size == size);
                let of_size: Vec<usize> = of_size.collect();
                let rows = planner.rows(&of_size);
                prop_assert_eq!(&rows, &obvious_rows(&planner, &of_size));
                let sorted = rows.concat();
                let order = planner.order(&sorted, &planner.shelves(&sorted));
                prop_assert_eq!(order, obvious_order(&planner, &sorted));
                planner.place_size(size, &of_size);
            }
        }
    }
}
