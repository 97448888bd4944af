//! The configuration: what is run on every recording, and what is written of it.

use crate::alloc_conf::TorchVersion;
use crate::sim::OpenOptions;
use crate::sim::sweep::Grid;
use crate::units::Bytes;

/// What is run on every recording.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The allocators, with options, devices and settings.
    pub grid: Grid,
    /// The PyTorch that the recordings are read as.
    pub version: TorchVersion,
    /// A recording with more in it, in bytes after decompression, is refused.
    pub max_input: Bytes,
    /// Whether each training step gets a row.
    pub has_steps: bool,
}

impl Config {
    /// How recordings are opened.
    pub(super) fn open(&self) -> OpenOptions {
        let (version, max_input) = (self.version, self.max_input);
        OpenOptions { version, max_input, ..OpenOptions::default() }
    }

    /// All that rows depend on, apart from the recording: a line for each run.
    pub(super) fn lines(&self) -> Vec<String> {
        let steps = if self.has_steps { "with steps" } else { "without steps" };
        let first = format!("PyTorch {}, {steps}", self.version);
        [first].into_iter().chain(self.grid.points.iter().map(|point| point.text())).collect()
    }
}
