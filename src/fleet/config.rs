//! The configuration: what is run on every recording, and what is written of it.

use std::num::NonZeroUsize;

use crate::alloc_conf::TorchVersion;
use crate::sim::OpenOptions;
use crate::sweep::{Grid, Point};
use crate::units::Bytes;

/// What is run on every recording.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The allocators, with options, devices and settings.
    pub grid: Grid,
    /// The PyTorch that the recordings are read as; `None`: the one that wrote each, as its keys tell.
    pub version: Option<TorchVersion>,
    /// A recording with more in it, in bytes after decompression, is refused.
    pub max_input: Bytes,
    /// Which snapshot of recordings that hold several; see [`OpenOptions::snapshot`].
    pub snapshot: Option<NonZeroUsize>,
    /// Whether each training step gets a row.
    pub has_steps: bool,
}

impl Config {
    /// How recordings are opened.
    pub(super) fn open(&self) -> OpenOptions {
        let Self { version, max_input, snapshot, .. } = *self;
        OpenOptions { version, max_input, snapshot, ..OpenOptions::default() }
    }

    /// All that rows depend on, apart from the recording, for keys.
    pub(super) fn conditions(&self) -> String {
        let points: Vec<String> = self.grid.points.iter().map(Point::text).collect();
        let version = self.version.map_or_else(|| "own".to_owned(), |one| one.to_string());
        let snapshot = self.snapshot.map_or_else(String::new, |number| format!(" #{number}"));
        format!("{version}{snapshot} {}\n{}", self.has_steps, points.join("\n"))
    }

    /// What is run, for people: an allocator, and what is varied.
    pub(super) fn runs(&self) -> Vec<String> {
        let words = |point: &Point| {
            let settings = point.settings.iter().map(|set| format!(" {}={}", set.name, set.value));
            format!("{}{}", point.choice.spec.name, settings.collect::<String>())
        };
        self.grid.points.iter().map(words).collect()
    }
}
