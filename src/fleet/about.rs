//! About a folder of tables: the file that says what they are made of, and that they are a fleet's.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What the tables of a folder are made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    /// Version of the tables' columns.
    pub(super) schema_version: u32,
    /// Version of this program.
    pub(super) tool_version: String,
    /// What was listed, as typed.
    pub(super) inputs: Vec<String>,
    /// What is run of each recording: an allocator, and what is varied.
    pub(super) runs: Vec<String>,
    /// A hash of all else that rows depend on.
    pub(super) conditions: String,
}

/// The file that says it.
pub(super) const ABOUT: &str = "fleet.json";

/// Whether a folder holds the results of a fleet, of this version or another.
pub(super) fn holds_results(folder: &Path) -> bool {
    let file = File::open(folder.join(ABOUT)).map(BufReader::new);
    file.is_ok_and(|file| serde_json::from_reader::<_, About>(file).is_ok())
}

impl About {
    /// In what results of the two would differ.
    pub(super) fn difference(&self, other: &Self) -> Option<&'static str> {
        let versions = |about: &Self| (about.schema_version, about.tool_version.clone());
        if versions(self) != versions(other) {
            return Some("versions of gmlake-sim");
        }
        if (&self.runs, &self.conditions) != (&other.runs, &other.conditions) {
            return Some("allocators or settings");
        }
        (self.inputs != other.inputs).then_some("inputs")
    }
}
