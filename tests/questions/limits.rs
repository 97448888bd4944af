//! Memory limits: what a recording proves, and what it leaves open.

use std::io::Write;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::common::cli::{gmlake_sim, output};

const GIB: u64 = 1 << 30;
const BASE: u64 = 0x7f00_0000_0000;

/// A job in the making: what PyTorch recorded of it.
struct Job {
    entries: Vec<Value>,
    settings: Value,
    time_us: u64,
}

impl Job {
    fn new(conf: &str, max_split_size: i64) -> Self {
        let settings = json!({
            "PYTORCH_CUDA_ALLOC_CONF": conf,
            "max_split_size": max_split_size,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": false,
            "roundup_power2_divisions": {},
            "release_lock_on_cudamalloc": false,
            "graph_capture_record_stream_reuse": false,
        });
        Self { entries: Vec::new(), settings, time_us: 1_700_000_000_000_000 }
    }

    /// An entry of a segment or block that lies `at` GiB behind the first.
    fn entry(&mut self, action: &str, at: u64, gib: u64) -> &mut Self {
        self.time_us += 5;
        let (addr, size) = (BASE + at * GIB, gib * GIB);
        let common = json!({
            "action": action, "size": size, "stream": 0, "time_us": self.time_us,
            "compile_context": "N/A", "user_metadata": "",
        });
        let mut entry = common;
        match action {
            "oom" => entry["device_free"] = json!(at * GIB),
            _ => entry["addr"] = json!(addr),
        }
        self.entries.push(entry);
        self
    }

    fn malloc(&mut self, at: u64, gib: u64) -> &mut Self {
        self.entry("segment_alloc", at, gib).entry("alloc", at, gib)
    }

    fn free(&mut self, at: u64, gib: u64) -> &mut Self {
        self.entry("free_requested", at, gib).entry("free_completed", at, gib)
    }

    /// Frees a block and gives its segment back.
    fn release(&mut self, at: u64, gib: u64) -> &mut Self {
        self.free(at, gib).entry("segment_free", at, gib)
    }

    fn file(&self) -> NamedTempFile {
        let snapshot = json!({
            "segments": [], "device_traces": [self.entries], "allocator_settings": self.settings,
            "external_annotations": [],
        });
        let mut file = NamedTempFile::with_suffix(".json").unwrap();
        file.write_all(snapshot.to_string().as_bytes()).unwrap();
        file
    }
}

fn name(file: &NamedTempFile) -> String {
    file.path().display().to_string()
}

/// What a command says in all.
fn all(arguments: &[&str]) -> String {
    let run = gmlake_sim().args(arguments).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{arguments:?}");
    String::from_utf8([run.stdout, run.stderr].concat()).unwrap()
}

/// It holds 28 GiB when 21 GiB are refused, with `free` GiB left on the device.
fn refused(conf: &str, free: u64) -> NamedTempFile {
    let mut job = Job::new(conf, -1);
    job.malloc(0, 28).entry("oom", free, 21).release(0, 28).file()
}

const FRACTION: &str = "per_process_memory_fraction:0.3";

#[test]
fn a_share_in_the_settings_is_below_what_was_refused() {
    let file = refused(FRACTION, 111);
    let verified = output(&["verify", &name(&file)]);
    assert!(verified.contains("memory limit of 45032964096 bytes"), "{verified}");
    let blamed = all(&["blame", &name(&file), "--at", "oom"]);
    assert!(blamed.contains("comes to about 41.94 GiB"), "{blamed}");
    assert!(blamed.contains("49 GiB would be live, more than the 41.94 GiB"), "{blamed}");
    let compared = all(&["compare", &name(&file), "--allocators", "caching,expandable,lake"]);
    assert!(compared.contains("no allocator gets through"), "{compared}");
}

#[test]
fn a_share_of_another_card_is_a_range() {
    let file = refused(FRACTION, 90);
    let range = "between 35.40 GiB and 49 GiB";
    let compared = all(&["compare", &name(&file), "--allocators", "caching"]);
    let limit = format!("inferred from failed requests: {range}, simulated with 35.40 GiB");
    assert!(compared.contains(&limit), "{compared}");
    assert!(compared.contains(&format!("a memory limit {range} refused requests")), "{compared}");
    let blamed = all(&["blame", &name(&file), "--at", "oom", "--quiet"]);
    assert!(blamed.contains(&format!("Its limit was {range}")), "{blamed}");
    assert!(blamed.contains("more than the limit: no allocator or setting"), "{blamed}");
}

#[test]
fn a_limit_that_no_setting_names_is_a_range() {
    let file = refused("", 111);
    let range = "between 28 GiB and 49 GiB";
    let compared = all(&["compare", &name(&file), "--allocators", "caching"]);
    assert!(compared.contains(&format!("failed requests: {range}")), "{compared}");
    assert!(!compared.contains("28.80"), "{compared}");
    let verified = output(&["verify", &name(&file)]);
    assert!(verified.contains(&format!("memory limit {range}, replayed with")), "{verified}");
    let known =
        all(&["compare", &name(&file), "--allocators", "caching", "--device-memory", "60GiB"]);
    assert!(!known.contains("inferred"), "{known}");
}

#[test]
fn a_share_that_refused_nothing_is_not_inferred() {
    let file = Job::new(FRACTION, -1).malloc(0, 28).release(0, 28).file();
    let compared = gmlake_sim().args(["compare", &name(&file), "--allocators", "caching"]).assert();
    compared.success().stderr(
        contains("inferred").not().and(contains("the memory fraction of 0.3 limits nothing")),
    );
}
