//! The configuration: what is run on every recording, and what is written of it.

use crate::sweep::{Grid, Point};
use crate::trace::LoadOptions;

/// What is run on every recording.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The allocators, with options, devices and settings.
    pub grid: Grid,
    /// How recordings are read.
    pub load: LoadOptions,
    /// Whether each training step gets a row.
    pub has_steps: bool,
}

impl Config {
    /// All that rows depend on, apart from the recording, for keys.
    pub(super) fn conditions(&self) -> String {
        let points: Vec<String> = self.grid.points.iter().map(Point::text).collect();
        let version =
            self.load.torch_version.map_or_else(|| "own".to_owned(), |one| one.to_string());
        let snapshot = self.load.snapshot.map_or_else(String::new, |number| format!(" #{number}"));
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
