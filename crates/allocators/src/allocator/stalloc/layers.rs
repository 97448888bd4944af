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

use std::collections::BTreeMap;

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
struct Heights(BTreeMap<usize, Bytes>);

impl Heights {
    fn at(&self, moment: usize) -> Bytes {
        self.0.range(..=moment).next_back().map_or(0, |(_, &height)| height)
    }

    /// The greatest height from one moment to another, both included; `None` if it is above `room`.
    fn most(&self, (start, end): (usize, usize), room: Bytes) -> Option<Bytes> {
        let inside = self.0.range(start..=end).map(|(_, &height)| height);
        let mut most = 0;
        for height in std::iter::once(self.at(start)).chain(inside) {
            most = most.max(height);
            if most > room {
                return None;
            }
        }
        Some(most)
    }

    /// Sets the height from one moment to another, both included.
    fn set(&mut self, (start, end): (usize, usize), height: Bytes) {
        let behind = self.at(end + 1);
        let old: Vec<usize> = self.0.range(start..=end).map(|(&at, _)| at).collect();
        for at in old {
            self.0.remove(&at);
        }
        self.0.insert(start, height);
        self.0.insert(end + 1, behind);
    }
}

/// Addresses of one size, and how high they are taken.
#[derive(Debug)]
struct Layer {
    offset: Bytes,
    size: Bytes,
    heights: Heights,
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
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        for _ in 0..ATTEMPTS {
            order = self.attempt(&blocks, order);
        }
        let mut is_placed = vec![false; blocks.len()];
        for layer in self.layers.iter_mut().filter(|layer| layer.size >= size) {
            for &at in &order {
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

    /// One attempt: the order with the places first that no layer has room for.
    fn attempt(&mut self, blocks: &[usize], order: Vec<usize>) -> Vec<usize> {
        let mut fits = vec![false; order.len()];
        for layer in &mut self.layers {
            let before = layer.heights.clone();
            for (place, &at) in order.iter().enumerate() {
                let block = &self.blocks[blocks[at]];
                if let Some(floor) = layer.floor(block) {
                    layer.put(block, floor);
                    fits[place] = true;
                }
            }
            layer.heights = before;
        }
        // Places in the order are taken for blocks here, as they are there.
        let first = (0..order.len()).filter(|&place| !fits[place]);
        first.chain(order.iter().copied().filter(|&at| fits[at])).collect()
    }

    /// Blocks one behind the other in time, in as few rows as come about; those of the period also where they come
    /// again one iteration later.
    fn rows(&self, numbers: &[usize]) -> Vec<Vec<usize>> {
        let mut rows: Vec<Row> = Vec::new();
        for &number in numbers {
            let block = &self.blocks[number];
            let mut candidates: Vec<usize> =
                (0..rows.len()).filter(|&row| rows[row].tail <= block.start).collect();
            candidates.sort_by_key(|&row| std::cmp::Reverse(rows[row].tail));
            let found = candidates.into_iter().find(|&row| !rows[row].overlaps(block));
            let row = found.unwrap_or_else(|| {
                rows.push(Row::default());
                rows.len() - 1
            });
            let again = self.again(block);
            rows[row].add(number, block, again);
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
    intervals: Vec<(usize, usize)>,
    tail: usize,
}

impl Row {
    /// As `check_overlap` has it: the search ends at the first interval that begins after the block.
    fn overlaps(&self, block: &Block) -> bool {
        let met = self.intervals.iter().find(|(_, end)| *end > block.start);
        met.is_some_and(|&(start, _)| block.end > start)
    }

    fn add(&mut self, number: usize, block: &Block, again: Option<(usize, usize)>) {
        self.blocks.push(number);
        self.intervals.push((block.start, block.end));
        self.intervals.extend(again);
        self.tail = block.end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heights_are_those_of_a_row_of_numbers(
            changes in prop::collection::vec((0..40usize, 0..12usize, 1..9u64), 1..40),
        ) {
            let (mut heights, mut row) = (Heights::default(), vec![0; 60]);
            for (start, length, height) in changes {
                let end = start + length;
                let most = row[start..=end].iter().copied().max().unwrap();
                prop_assert_eq!(heights.most((start, end), 4), (most <= 4).then_some(most));
                heights.set((start, end), height);
                row[start..=end].fill(height);
                let is_same = row.iter().enumerate().all(|(at, &height)| heights.at(at) == height);
                prop_assert!(is_same);
            }
        }
    }
}
