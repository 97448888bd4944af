//! Questions: what a program asks a library about a workspace, as a line of text. What was not measured is listed by
//! such lines, and a table of measurements is looked up by them.
//!
//! ```text
//!   predict --unknown list.csv        the questions that were answered by a rule
//!   gmlake measure list.csv           on a GPU: the same questions, with the library's own answers
//!   predict --workspaces table.csv    those answers, in place of the rule's
//! ```

use std::fmt::{self, Display};

/// What can be measured. `python/gmlake/measure/kinds.py` has the same list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// A convolution of cuDNN's.
    Convolution,
    /// A recurrent network of cuDNN's.
    Recurrent,
    /// Batch normalization by cuDNN.
    BatchNorm,
    /// A CTC loss by cuDNN.
    CtcLoss,
    /// A Fourier transform by cuFFT.
    Fourier,
    /// A decomposition of a matrix by cuSOLVER.
    Decomposition,
    /// An operation on sparse matrices by cuSPARSE.
    Sparse,
}

impl Question {
    /// The first column of its lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Convolution => "convolution",
            Self::Recurrent => "recurrent",
            Self::BatchNorm => "batch_norm",
            Self::CtcLoss => "ctc_loss",
            Self::Fourier => "fourier",
            Self::Decomposition => "decomposition",
            Self::Sparse => "sparse",
        }
    }

    /// The line: the kind, and what identifies the question.
    pub fn line(self, arguments: impl Display) -> String {
        format!("{},{arguments}", self.name())
    }
}

/// Arguments as a line has them: `NAME=VALUE`, with blanks between.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a>(pub &'a [(&'a str, i64)]);

impl Display for Pairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, (name, value))| {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { " " })
        })
    }
}

/// Sizes as a line has them: joined by `x`.
pub fn joined<T: ToString>(sizes: &[T]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_kind_and_its_arguments() {
        let pairs = [("sizes", 3), ("batch", -1)];
        assert_eq!(Question::Fourier.line(Pairs(&pairs)), "fourier,sizes=3 batch=-1");
        assert_eq!(joined(&[4, 5]), "4x5");
    }
}
