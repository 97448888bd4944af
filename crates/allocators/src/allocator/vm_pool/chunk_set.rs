//! A set of chunks of one segment: one bit a chunk, 64 chunks (128 MiB) a step.

#[derive(Debug, Clone, Default)]
pub(super) struct ChunkSet {
    words: Vec<u64>,
}

impl ChunkSet {
    /// The empty set, for a segment of `chunks` chunks.
    pub(super) fn new(chunks: u32) -> Self {
        Self { words: vec![0; chunks.div_ceil(64) as usize] }
    }

    /// Adds the chunks from `start` to before `end`.
    #[inline]
    pub(super) fn add(&mut self, start: u32, end: u32) {
        for (word, mask) in masks(start, end) {
            self.words[word] |= mask;
        }
    }

    /// Takes the chunks from `start` to before `end` out.
    #[inline]
    pub(super) fn remove(&mut self, start: u32, end: u32) {
        for (word, mask) in masks(start, end) {
            self.words[word] &= !mask;
        }
    }

    /// The first member from `start` to before `end`.
    #[inline]
    pub(super) fn first(&self, start: u32, end: u32) -> Option<u32> {
        masks(start, end).find_map(|(word, mask)| {
            let bits = self.words[word] & mask;
            (bits != 0).then(|| word as u32 * 64 + bits.trailing_zeros())
        })
    }
}

/// The words that hold the chunks from `start` to before `end` (at least one), each with the bits of those chunks.
#[inline]
fn masks(start: u32, end: u32) -> impl Iterator<Item = (usize, u64)> {
    debug_assert!(start < end, "{start}..{end} is empty");
    let (first, last) = ((start / 64) as usize, ((end - 1) / 64) as usize);
    (first..=last).map(move |word| {
        let low = if word == first { u64::MAX << (start % 64) } else { u64::MAX };
        let high = if word == last { u64::MAX >> (63 - (end - 1) % 64) } else { u64::MAX };
        (word, low & high)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_array_finds(
            steps in prop::collection::vec((0u32..300, 1u32..300, any::<bool>()), 0..30),
            (start, len) in (0u32..300, 1u32..300),
        ) {
            let mut set = ChunkSet::new(300);
            let mut plain = [false; 300];
            for (start, len, is_added) in steps {
                let end = (start + len).min(300);
                plain[start as usize..end as usize].fill(is_added);
                if is_added {
                    set.add(start, end);
                } else {
                    set.remove(start, end);
                }
            }
            let end = (start + len).min(300);
            let expected = (start..end).find(|&chunk| plain[chunk as usize]);
            prop_assert_eq!(set.first(start, end), expected);
        }
    }
}
