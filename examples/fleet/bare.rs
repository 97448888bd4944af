//! The bare loop that `gmlake-sim fleet` is measured against: the same recordings through the same allocators, on as many
//! threads, and nothing written.
//!
//! ```sh
//! cargo run --release --example bare_fleet -- FOLDER
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gmlake::fleet::list;
use gmlake::sim::{Scenario, Setup, choose, open_all};
use gmlake::trace::LoadOptions;

const ALLOCATORS: [&str; 3] = ["caching", "expandable", "lake"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let files = list(&folders, None)?.files;
    let choices = choose(&ALLOCATORS.map(str::to_owned), &[])?;
    let setup = Setup { cache: Some(Arc::default()), ..Setup::default() };
    let (next, held) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            for opened in open_all(&file.path, &LoadOptions::default()).into_iter().flatten() {
                for choice in &choices {
                    let scenario = Scenario::new(&opened, choice.clone(), setup.clone());
                    let bytes = scenario.run().map_or(0, |run| run.reserved_peak_bytes);
                    held.fetch_add(bytes, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    println!("{} recordings, {} bytes held", files.len(), held.into_inner());
    Ok(())
}
