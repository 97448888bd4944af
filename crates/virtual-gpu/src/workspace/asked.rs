//! Asked: a convolution as a program asks for it, with all that decides what cuDNN takes for it.

use std::fmt;

use super::convolution::{Convolution, Direction};
use super::question::joined;

/// A convolution, with all that decides what cuDNN takes for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    /// Its tensors, and what is computed.
    pub convolution: Convolution,
    /// Pixels from one output to the next, in each dimension.
    pub stride: Vec<u64>,
    /// Zeros around the input, in each dimension.
    pub padding: Vec<u64>,
    /// Pixels from one tap to the next, in each dimension.
    pub dilation: Vec<u64>,
}

impl fmt::Display for Asked {
    /// The arguments of its line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Convolution { direction, element, is_float16, channels_last, .. } = self.convolution;
        let direction = match direction {
            Direction::Forward => "forward",
            Direction::Data => "data",
            Direction::Weight => "weight",
        };
        let kind = match (element, is_float16) {
            (2, true) => "float16",
            (2, false) => "bfloat16",
            (8, _) => "float64",
            _ => "float32",
        };
        write!(f, "direction={direction} type={kind} channels_last={}", u8::from(channels_last))?;
        let Convolution { input, weight, output, .. } = &self.convolution;
        [
            ("input", input),
            ("weight", weight),
            ("output", output),
            ("stride", &self.stride),
            ("padding", &self.padding),
            ("dilation", &self.dilation),
        ]
        .iter()
        .try_for_each(|(name, list)| write!(f, " {name}={}", joined(list)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_is_told_by_its_sizes() {
        let convolution = Convolution {
            direction: Direction::Data,
            element: 2,
            is_float16: true,
            channels_last: false,
            input: vec![16, 64, 1, 24000],
            weight: vec![128, 64, 1, 7],
            output: vec![16, 128, 1, 24000],
            plain: false,
            dilation: 1,
        };
        let asked =
            Asked { convolution, stride: vec![1, 1], padding: vec![0, 3], dilation: vec![1, 1] };
        let expected = "direction=data type=float16 channels_last=0 input=16x64x1x24000 \
                        weight=128x64x1x7 output=16x128x1x24000 \
                        stride=1x1 padding=0x3 dilation=1x1";
        assert_eq!(asked.to_string(), expected);
    }
}
