//! Convolutions: the workspace of the plan that cuDNN would choose.
//!
//! Tensor cores want channels last. In the usual layout the tensors are therefore copied, and the result is copied
//! back:
//!
//! ```text
//!   x, y, weight  NCHW ─▶ copies as NHWC, channels filled up ─▶ kernel ─▶ sum of partial results (weights only)
//! ```

/// Which of a convolution's three tensors is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The output.
    Forward,
    /// The gradient of the input. A transposed convolution is this one, forwards.
    Data,
    /// The gradient of the weight.
    Weight,
}

/// A convolution as cuDNN gets it. Sizes are those of the tensors: batch, channels, then space.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// What is computed.
    pub direction: Direction,
    /// Bytes of an element.
    pub element: u64,
    /// Whether those are float16, of which cuDNN thinks otherwise than of bfloat16.
    pub is_float16: bool,
    /// Whether channels are the innermost dimension in memory.
    pub channels_last: bool,
    /// Sizes of the input.
    pub input: Vec<u64>,
    /// Sizes of the weight: channels out, channels in of a group, then the taps.
    pub weight: Vec<u64>,
    /// Sizes of the output.
    pub output: Vec<u64>,
    /// Whether every stride is 1 and every padding 0.
    pub plain: bool,
    /// Pixels from one tap to the next.
    pub dilation: u64,
}

/// A tensor of a convolution, to be copied into the kernel's layout.
#[derive(Clone, Copy)]
pub(super) enum Tensor {
    Input,
    Weight,
    Output,
}

impl Convolution {
    /// What `convolutions.csv` has differences from, for the layers that were measured: after a change here it must be
    /// made again. A rule changes less than the tree's answer from one batch to another, so what lies between two that
    /// were measured follows it.
    pub fn by_rule(&self) -> u64 {
        if !self.has_sizes() {
            return 0;
        }
        let weights = self.direction == Direction::Weight;
        match (self.matrix_product(), self.depthwise()) {
            (true, _) if weights => self.product_of_weights(),
            (true, _) if self.is_unaligned() => self.tensors() + 16,
            (_, true) if weights && self.channels_last && self.element == 2 => {
                self.vectors_of_taps()
            }
            (true, _) | (_, true) => 0,
            _ if self.reads_colours() => 0,
            _ => self.wide_groups().unwrap_or_else(|| {
                self.copies() + if weights { self.partial_results(self.tile()) } else { 0 }
            }),
        }
    }

    /// Whether a product copies both tensors, since rows of its pixels are not aligned: an odd number, or for large
    /// products one that 8 does not divide. In 32 bits only odd ones between many channels. For the gradient of the
    /// input an odd number counts in batches of 32, 128 and 256, and rarely in those of 48.
    fn is_unaligned(&self) -> bool {
        let (batch, pixels) = (self.input[0], self.input[2..].iter().product::<u64>());
        let has_many_channels = self.input[1].min(self.weight[0]) >= 512;
        let is_odd = pixels % 2 == 1 && pixels > 1;
        match (self.channels_last, self.element) {
            (true, _) => false,
            (_, 2) if is_odd => self.direction == Direction::Forward || batch.is_multiple_of(32),
            (_, 2) => has_many_channels && !pixels.is_multiple_of(8) && batch * pixels >= 1 << 14,
            _ => is_odd && has_many_channels,
        }
    }

    /// Three channels under a small kernel have a kernel of their own, forwards.
    fn reads_colours(&self) -> bool {
        let is_turned = self.element == 2 || !self.channels_last;
        let is_small = self.input[1] == 3 && self.weight[1] == 3 && self.taps() <= 16;
        self.direction == Direction::Forward && is_small && is_turned
    }

    /// Groups of 33 to 127 channels, in 16 bits: up to 64 channels are computed for eight groups at a time, more for
    /// all groups, filled up to 128.
    fn wide_groups(&self) -> Option<u64> {
        let (groups, channels) = (self.groups(), self.weight[1]);
        let is_square = self.weight[0] == groups * channels;
        if self.element != 2 || groups == 1 || !is_square || !(33..128).contains(&channels) {
            return None;
        }
        let (tensors, weight) = (self.tensors(), self.bytes_of(&self.weight));
        let filled = (tensors + weight) * channels.next_power_of_two() / channels;
        let eight_at_a_time = |bytes: u64| bytes * groups.min(8) / groups;
        match (self.direction, channels <= 64) {
            (Direction::Weight, _) if channels.is_power_of_two() => None,
            (Direction::Weight, true) => Some(eight_at_a_time(filled)),
            (_, true) if self.channels_last => Some(eight_at_a_time(tensors)),
            (_, true) => Some(eight_at_a_time(tensors + weight)),
            (Direction::Data, false) if !self.channels_last => None,
            (_, false) => Some(filled),
        }
    }

    /// Bytes of the input and the output.
    fn tensors(&self) -> u64 {
        self.bytes_of(&self.input) + self.bytes_of(&self.output)
    }

    /// Whether all tensors have channels and pixels. A program may ask before it has said how many.
    pub(super) fn has_sizes(&self) -> bool {
        let least = self.input.len().min(self.weight.len()).min(self.output.len());
        least >= 3 && self.groups() > 0
    }

    /// One tap, stride 1, no padding, one group: cuBLAS computes it, in place.
    pub(super) fn matrix_product(&self) -> bool {
        self.taps() == 1 && self.plain && self.groups() == 1
    }

    /// Each channel on its own.
    pub(super) fn depthwise(&self) -> bool {
        self.groups() > 1 && self.groups() == self.input[1]
    }

    pub(super) fn groups(&self) -> u64 {
        self.input[1] / self.weight[1].max(1)
    }

    pub(super) fn taps(&self) -> u64 {
        self.weight[2..].iter().product()
    }

    pub(super) fn bytes_of(&self, sizes: &[u64]) -> u64 {
        sizes.iter().product::<u64>() * self.element
    }

    /// The weight's gradient as one product for each image, summed afterwards; or, where that is smaller, from copies.
    fn product_of_weights(&self) -> u64 {
        if self.channels_last {
            let single = (128, 128, 132);
            return self.partial_results(if self.element == 2 { self.tile() } else { single });
        }
        let products = self.input[0] * self.input[1] * self.weight[0] * 4;
        products.min(self.tensors())
    }

    /// Channels of a group must fill 16 bytes for the tensor cores.
    fn filled(&self, channels: u64) -> u64 {
        channels.next_multiple_of(16 / self.element.clamp(1, 16))
    }

    /// Bytes of a tensor whose channels are filled up.
    pub(super) fn bytes_filled(&self, tensor: Tensor) -> u64 {
        let groups = self.groups();
        let inner = self.filled(self.weight[1]);
        let outer = self.filled(self.weight[0] / groups);
        let space = |sizes: &[u64]| sizes[2..].iter().product::<u64>();
        let elements = match tensor {
            Tensor::Input => self.input[0] * groups * inner * space(&self.input),
            Tensor::Weight => groups * outer * inner * self.taps(),
            Tensor::Output => self.output[0] * groups * outer * space(&self.output),
        };
        elements * self.element
    }

    /// Bytes of all tensors that are not as the tensor cores want them.
    pub(super) fn copies(&self) -> u64 {
        let (inner, outer) = (self.weight[1], self.weight[0] / self.groups());
        let (odd_inner, odd_outer) = (self.filled(inner) != inner, self.filled(outer) != outer);
        // A weight with one tap is the same in both layouts.
        let turned = !self.channels_last;
        let weight = odd_inner || odd_outer || (turned && self.taps() > 1);
        let all = [
            (turned || odd_inner, Tensor::Input),
            (weight, Tensor::Weight),
            (turned || odd_outer, Tensor::Output),
        ];
        let bytes: u64 =
            all.iter().filter(|(is, _)| *is).map(|(_, it)| self.bytes_filled(*it)).sum();
        if bytes == 0 { 0 } else { bytes + 16 }
    }

    /// Rows and columns of what one multiprocessor computes, and how many such parts run at once.
    pub(super) fn tile(&self) -> (u64, u64, u64) {
        if self.element == 2 { (64, 64, 132) } else { (128, 256, 66) }
    }

    /// A vector of 32 channels for each tap and image.
    pub(super) fn vectors_of_taps(&self) -> u64 {
        self.input[0] * self.input[1].next_multiple_of(32) * self.taps() * 32
    }

    /// A weight has few tiles, so each is computed in several parts, in 32 bits, that are added up.
    pub(super) fn partial_results(&self, (rows, columns, at_once): (u64, u64, u64)) -> u64 {
        let groups = self.groups();
        let tiles = groups
            * (self.weight[0] / groups).div_ceil(rows)
            * (self.weight[1] * self.taps()).div_ceil(columns);
        let parts = at_once / tiles.max(1);
        if parts > 1 { parts * 4 * self.weight.iter().product::<u64>() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `fdw`, bytes of an element, layout, input, weight, output, plain; measured under PyTorch.
    type Row = (char, u64, bool, &'static [u64], &'static [u64], &'static [u64], bool, u64);

    const EXACT: &[Row] = &[
        ('w', 2, false, &[32, 512, 32, 32], &[128, 512, 1, 1], &[32, 128, 32, 32], true, 8_388_608),
        (
            'w',
            4,
            false,
            &[16, 2048, 13, 21],
            &[256, 2048, 1, 1],
            &[16, 256, 13, 21],
            true,
            33_554_432,
        ),
        (
            'w',
            2,
            false,
            &[32, 768, 1, 3000],
            &[768, 768, 1, 3],
            &[32, 768, 1, 1500],
            false,
            224_722_960,
        ),
        ('w', 2, true, &[8, 576, 14, 14], &[576, 1, 5, 5], &[8, 576, 7, 7], false, 3_686_400),
        ('d', 2, false, &[1, 128, 14, 14], &[128, 128, 3, 3], &[1, 128, 14, 14], false, 395_280),
        ('f', 2, false, &[32, 128, 64, 64], &[8, 128, 3, 3], &[32, 8, 64, 64], false, 35_670_032),
        ('d', 4, false, &[32, 32, 14, 14], &[128, 32, 3, 3], &[32, 128, 14, 14], false, 4_161_552),
        ('f', 4, false, &[2, 128, 4, 4], &[256, 128, 1, 1], &[2, 256, 2, 2], false, 24_592),
        ('f', 2, true, &[16, 512, 60, 60], &[21, 512, 1, 1], &[16, 21, 60, 60], true, 0),
        ('f', 2, false, &[32, 512, 7, 7], &[2048, 512, 1, 1], &[32, 2048, 7, 7], true, 8_028_176),
        ('f', 2, false, &[32, 3, 224, 224], &[32, 3, 3, 3], &[32, 32, 112, 112], false, 0),
        (
            'f',
            2,
            false,
            &[32, 2048, 14, 14],
            &[2048, 64, 3, 3],
            &[32, 2048, 7, 7],
            false,
            8_617_984,
        ),
    ];

    fn convolution(row: &Row) -> Convolution {
        let direction = match row.0 {
            'f' => Direction::Forward,
            'd' => Direction::Data,
            _ => Direction::Weight,
        };
        let (input, weight, output) = (row.3.to_vec(), row.4.to_vec(), row.5.to_vec());
        let (element, channels_last, plain) = (row.1, row.2, row.6);
        Convolution {
            direction,
            element,
            is_float16: false,
            channels_last,
            input,
            weight,
            output,
            plain,
            dilation: 1,
        }
    }

    #[test]
    fn convolutions_need_what_was_measured() {
        for row in EXACT {
            assert_eq!(convolution(row).by_rule(), row.7, "{row:?}");
        }
    }

    #[test]
    fn a_convolution_without_sizes_needs_nothing() {
        assert_eq!(convolution(&('f', 4, false, &[], &[], &[], true, 0)).workspace(), 0);
        let channels = convolution(&('w', 4, false, &[1, 0, 5], &[0, 0, 1], &[1, 0, 5], true, 0));
        assert_eq!(channels.workspace(), 0);
    }
}
