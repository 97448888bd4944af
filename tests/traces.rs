//! The real recordings, read and compared with what PyTorch counted. Skipped where they are not at hand.

use std::path::{Path, PathBuf};
use std::time::Instant;

use gmlake::trace::{Action, LoadOptions, Records, choose_device, load};

fn recordings() -> Vec<PathBuf> {
    let Ok(folder) = std::env::var("GMLAKE_TRACES") else {
        eprintln!("GMLAKE_TRACES is not set: skipped");
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).expect("GMLAKE_TRACES is a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".pickle.xz"));
    paths.sort();
    paths
}

fn read(path: &Path) -> Records {
    let records = load(path, &LoadOptions::default()).unwrap();
    choose_device(records, None, path).unwrap()
}

/// The number of `alloc` entries is PyTorch's own counter, unless recording began late.
#[test]
fn every_recording_has_the_allocations_that_pytorch_counted() {
    for path in recordings() {
        let start = Instant::now();
        let records = read(&path);
        let took = start.elapsed();
        let stats = path.to_string_lossy().replace(".pickle.xz", ".stats.json");
        let stats: serde_json::Value =
            serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
        let allocs = records.entries.iter().filter(|e| e.action == Action::Alloc).count() as u64;
        let counted = stats["stats"]["allocation.all.allocated"].as_u64().unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        eprintln!("{name}: {} entries, {allocs} allocs, {took:.0?}", records.entries.len());
        let is_partial = name.contains("late") || name.contains("ring");
        assert!(allocs == counted || is_partial && allocs < counted, "{name}");
        let held: u64 = records.segments.iter().map(|segment| segment.size).sum();
        assert_eq!(Some(held), stats["stats"]["reserved_bytes.all.current"].as_u64(), "{name}");
        assert!(records.warnings.is_empty(), "{:?}", records.warnings);
    }
}
