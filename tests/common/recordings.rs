//! The real recordings that the tests replay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Those of `traces/`, by name.
fn shipped() -> BTreeMap<String, PathBuf> {
    let found = in_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("traces"));
    assert!(found.len() >= 15, "the recordings of traces/ are missing");
    found
}

/// The same, and those that lie next to the checkout (`../shared/traces`) or in the folder that `GMLAKE_TRACES` names.
pub(crate) fn all() -> BTreeMap<String, PathBuf> {
    let more = std::env::var_os("GMLAKE_TRACES").map(PathBuf::from);
    let shared = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces");
    let mut found = in_folder(&more.unwrap_or_else(shared));
    found.extend(shipped());
    found
}

fn in_folder(folder: &Path) -> BTreeMap<String, PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    let named = files.filter_map(|file| {
        let path = file.expect("it can be listed").path();
        let name = path.file_name()?.to_string_lossy().strip_suffix(".pickle.xz")?.to_owned();
        Some((name, path))
    });
    named.collect()
}

/// A case of `tests/data/cases`, or of the larger ones next to the checkout; `None`, said aloud, where these are not
/// at hand.
pub(crate) fn case(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("tests/data/cases"), root.join("../shared/cases")];
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not here");
    }
    found
}
