//! Choice: what cuDNN takes for a convolution of which no layer was measured. It is nearly always a sum of few things,
//! copies of tensors and partial results; a decision tree, grown on what was measured, says of which.
//!
//! ```text
//!   weight <= 529,600 bytes? ──yes──▶ one tap? ──yes──▶ ...  copies of x and y      12 of a hundred take less, 3 more
//!                            └─no───▶ ...
//! ```
//!
//! `convolution_tree.csv` has the tree in preorder: after a question comes the branch of those for which it holds, and
//! `other` lines later the other one. How it was grown, and how good it is: `reports/predict.md`.

use std::sync::LazyLock;

use gmlake_core::units::Bytes;
use serde::Deserialize;

use super::convolution::{Convolution, Tensor};

const TABLE: &str = include_str!("convolution_tree.csv");

static TREE: LazyLock<Vec<Node>> = LazyLock::new(|| {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(TABLE.as_bytes());
    reader.deserialize().flatten().collect()
});

/// A line of the tree: a question, if it has a feature, or else an answer.
#[derive(Deserialize)]
struct Node {
    feature: Option<Feature>,
    /// The branch of the next line is of those that have as much at most.
    most: Option<u64>,
    /// Lines from here to the branch of the others.
    other: Option<usize>,
    copies: String,
    parts: Option<Parts>,
    /// How many of a hundred take less than the answer by more than 512 KiB, and how many take more.
    less: Option<u8>,
    more: Option<u8>,
}

/// What a question is about. Sizes of tensors are in bytes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Feature {
    Direction,
    Kind,
    ChannelsLast,
    Dimensions,
    Batch,
    Outside,
    Inside,
    Groups,
    PixelsIn,
    PixelsOut,
    Taps,
    Plain,
    AlignedIn,
    AlignedOut,
    Input,
    Output,
    Weight,
    Work,
    Special,
}

impl Feature {
    fn of(self, it: &Convolution) -> u64 {
        let pixels = |sizes: &[u64]| sizes[2..].iter().product::<u64>();
        // The largest power of two, up to 16, by which channels can be divided.
        let aligned = |channels: u64| 1 << channels.trailing_zeros().min(4);
        match self {
            Self::Direction => it.direction as u64,
            Self::Kind if it.element != 2 => 0,
            Self::Kind => 1 + u64::from(it.is_float16),
            Self::ChannelsLast => it.channels_last.into(),
            // PyTorch makes one dimension two, of which the first is 1.
            Self::Dimensions if it.weight[2].max(it.input[2]) == 1 => 1,
            Self::Dimensions => it.weight.len() as u64 - 2,
            Self::Batch => it.input[0],
            Self::Outside => it.weight[0],
            Self::Inside => it.weight[1],
            Self::Groups => it.groups(),
            Self::PixelsIn => pixels(&it.input),
            Self::PixelsOut => pixels(&it.output),
            Self::Taps => it.taps(),
            Self::Plain => it.plain.into(),
            Self::AlignedIn => aligned(it.weight[1]),
            Self::AlignedOut => aligned(it.weight[0] / it.groups()),
            Self::Input => it.bytes_of(&it.input),
            Self::Output => it.bytes_of(&it.output),
            Self::Weight => it.bytes_of(&it.weight),
            Self::Special if it.matrix_product() => 1,
            Self::Special => 2 * u64::from(it.depthwise()),
            Self::Work => it.input[0] * pixels(&it.output) * it.weight.iter().product::<u64>(),
        }
    }
}

/// Partial results of a weight's gradient, in 32 bits.
#[derive(Debug, Clone, Copy, Deserialize)]
enum Parts {
    /// As many as keep all multiprocessors at work, with the usual tile.
    #[serde(rename = "tile")]
    Usual,
    /// With 132 tiles of 128 by 128.
    #[serde(rename = "132")]
    Square,
    /// With 132 of 64 by 256.
    #[serde(rename = "wide")]
    Wide,
    /// With 264 of 64 by 128.
    #[serde(rename = "264")]
    Small,
    /// A tile of 128 by 128 for each multiprocessor.
    #[serde(rename = "streamed")]
    Streamed,
    /// A weight for each image.
    #[serde(rename = "images")]
    Images,
    /// A vector of 32 channels for each tap and image.
    #[serde(rename = "depthwise")]
    Depthwise,
}

impl Parts {
    fn bytes(self, it: &Convolution) -> Bytes {
        match self {
            Self::Usual => it.partial_results(it.tile()),
            Self::Square => it.partial_results((128, 128, 132)),
            Self::Wide => it.partial_results((64, 256, 132)),
            Self::Small => it.partial_results((64, 128, 264)),
            Self::Streamed => 132 * 128 * 128 * 4,
            Self::Images => it.input[0] * it.weight.iter().product::<u64>() * 4,
            Self::Depthwise => it.vectors_of_taps(),
        }
    }
}

impl Convolution {
    /// Bytes of workspace by the tree; how many of a hundred take less, and how many take more, by more than 512 KiB.
    pub fn chosen(&self) -> (Bytes, (u8, u8)) {
        if !self.has_sizes() {
            return (0, (0, 0));
        }
        let mut line = 0;
        while let Node { feature: Some(feature), most: Some(most), other: Some(other), .. } =
            TREE[line]
        {
            line += if feature.of(self) <= most { 1 } else { other };
        }
        let Node { copies, parts, less, more, .. } = &TREE[line];
        let bytes = self.copied(copies) + parts.map_or(0, |parts| parts.bytes(self));
        (bytes, (less.unwrap_or(0), more.unwrap_or(0)))
    }

    /// Bytes of copies in the kernel's layout, by their letters: `x`, `w` and `y`, capitals without fill; or `all`.
    fn copied(&self, letters: &str) -> Bytes {
        if letters == "all" {
            return self.copies();
        }
        let of = |letter: char| {
            let (tensor, sizes) = match letter.to_ascii_lowercase() {
                'x' => (Tensor::Input, &self.input),
                'w' => (Tensor::Weight, &self.weight),
                _ => (Tensor::Output, &self.output),
            };
            if letter.is_lowercase() { self.bytes_filled(tensor) } else { self.bytes_of(sizes) }
        };
        let bytes: Bytes = letters.chars().map(of).sum();
        if letters.is_empty() { 0 } else { bytes + 16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Direction;
    use proptest::prelude::*;

    #[test]
    fn every_line_of_the_tree_is_read_and_each_is_reached_by_one_way() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1).count();
        assert_eq!(TREE.len(), lines);
        let mut reached = vec![0; lines];
        let mut open = vec![0];
        while let Some(line) = open.pop() {
            reached[line] += 1;
            let node = &TREE[line];
            match (node.feature, node.most, node.other) {
                (Some(_), Some(_), Some(other)) => open.extend([line + 1, line + other]),
                _ => assert!(node.feature.is_none() && node.less.is_some() && node.more.is_some()),
            }
        }
        assert!(reached.iter().all(|&times| times == 1));
    }

    proptest! {
        #[test]
        fn an_answer_is_a_sum_and_its_chances_are_shares(
            (batch, inner, outer, side) in (1..300_u64, 1..600_u64, 1..600_u64, 1..300_u64),
            (taps, groups, direction) in (1..8_u64, 1..5_u64, 0..3_usize),
            (is_wide, is_float16, channels_last) in any::<(bool, bool, bool)>(),
        ) {
            let directions = [Direction::Forward, Direction::Data, Direction::Weight];
            let convolution = Convolution {
                direction: directions[direction],
                element: if is_wide { 4 } else { 2 },
                is_float16: !is_wide && is_float16,
                channels_last,
                input: vec![batch, inner * groups, side, side],
                weight: vec![outer * groups, inner, taps, taps],
                output: vec![batch, outer * groups, side, side],
                plain: false,
                dilation: 1,
            };
            let (bytes, (less, more)) = convolution.chosen();
            prop_assert!(less + more <= 100);
            let tensors = [Tensor::Input, Tensor::Weight, Tensor::Output];
            let most: u64 = tensors.iter().map(|it| convolution.bytes_filled(*it)).sum();
            let parts = [Parts::Usual, Parts::Square, Parts::Wide, Parts::Small, Parts::Streamed]
                .into_iter().chain([Parts::Images, Parts::Depthwise]);
            let parts = parts.map(|it| it.bytes(&convolution)).max().unwrap_or(0);
            let most = most + 16 + if direction == 2 { parts } else { 0 };
            prop_assert!(bytes <= most);
        }
    }
}
