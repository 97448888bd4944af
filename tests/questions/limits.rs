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
    assert!(blamed.contains("The driver had 111 GiB free: raise the limit"), "{blamed}");
    let compared = all(&["compare", &name(&file), "--allocators", "caching,expandable,lake"]);
    assert!(compared.contains("no allocator here gets through"), "{compared}");
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

/// It holds 2 GiB, and has 10 GiB in its cache that are given back before it requests 12 GiB, by these lines and after
/// this time.
fn emptied(max_split_size: i64, lines: Option<[&str; 3]>, pause_us: u64) -> NamedTempFile {
    let mut job = Job::new("max_split_size_mb:128", max_split_size);
    job.malloc(0, 2).malloc(2, 10).free(2, 10).entry("segment_free", 2, 10);
    job.time_us += pause_us;
    job.malloc(12, 12).release(12, 12).release(0, 2);
    let [step, by, eval] = lines.unwrap_or_default();
    for (number, entry) in job.entries.iter_mut().enumerate().filter(|_| lines.is_some()) {
        let line = match number {
            0..6 => step,
            6 => by,
            _ => eval,
        };
        entry["frames"] = json!([{"name": line, "filename": "train.py", "line": 1}]);
    }
    job.file()
}

const SPLIT: i64 = 128 << 20;

/// The words of `compare` and `verify` on this file.
fn compared_and_verified(file: &NamedTempFile) -> (String, String) {
    let allocators = ["--allocators", "caching,expandable"];
    let compared = all(&[&["compare", &name(file)][..], &allocators].concat());
    (compared, all(&["verify", &name(file)]))
}

fn retries(file: &NamedTempFile) -> u64 {
    let json = output(&["compare", &name(file), "--allocators", "caching", "--json", "--quiet"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let text = json.to_string();
    let (_, rest) = text.split_once("\"alloc_retries\":").unwrap();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn an_emptying_that_may_be_the_programs_is_no_refusal() {
    for split in [SPLIT, -1] {
        for (lines, pause) in [
            (None, 0),
            (None, 5_000_000),
            (Some(["step", "cleanup", "eval"]), 0),
            // Without stacks of emptyings PyTorch writes that of the segment.
            (Some(["step", "step", "eval"]), 0),
            (Some(["step", "step", "step"]), 0),
        ] {
            let file = emptied(split, lines, pause);
            let (compared, verified) = compared_and_verified(&file);
            assert!(verified.contains("Exact") && !verified.contains("refused"), "{verified}");
            assert!(!compared.contains("inferred"), "{split} {lines:?} {pause}: {compared}");
            assert_eq!(retries(&file), 0, "{split} {lines:?} {pause}");
        }
    }
}

#[test]
fn an_emptying_by_the_malloc_that_stacks_prove_is_a_refusal() {
    for split in [SPLIT, -1] {
        let file = emptied(split, Some(["step", "eval", "eval"]), 0);
        let (compared, verified) = compared_and_verified(&file);
        assert!(verified.contains("Exact") && verified.contains("refused more"), "{verified}");
        let range = "failed requests: between 14 GiB and 24 GiB, simulated with 14 GiB";
        assert!(compared.contains(range), "{compared}");
        assert_eq!(retries(&file), 1, "{split}");
        let late = emptied(split, Some(["step", "eval", "eval"]), 5_000_000);
        assert_eq!(retries(&late), 0, "{split}");
    }
}

/// Entries alone tell of no limit. Whatever is offered there was tried in unlimited memory.
#[test]
fn without_a_known_memory_nothing_is_said_to_serve_the_request() {
    let table = "action,addr,size\nalloc,0x700000000,1073741824\noom,DEVICE_FREE,2147483648\n\
                 free,0x700000000,1073741824\n";
    for free in ["0", "1000000", "123456789012"] {
        let mut file = NamedTempFile::with_suffix(".csv").unwrap();
        file.write_all(table.replace("DEVICE_FREE", free).as_bytes()).unwrap();
        let blamed = all(&["blame", &name(&file), "--at", "oom"]);
        assert!(blamed.contains("what would have served the request is unknown"), "{blamed}");
        assert!(!blamed.contains("expandable") && !blamed.contains(" lake"), "{blamed}");
        let with_limit = ["blame", &name(&file), "--at", "oom", "--device-memory", "2.5GiB"];
        let blamed = all(&with_limit);
        assert!(blamed.contains("3 GiB would be live, more than the 2.50 GiB"), "{blamed}");
    }
}

/// Held are 20.77 GiB or more, and 14.90 live with 5.71 requested: a limit in the range may be too low for any.
#[test]
fn what_serves_a_request_within_a_range_is_said_of_one_limit() {
    let job = "traces/opt-1.3b-LR-var.gc60-cap16pct.pickle.xz";
    let blamed = output(&["blame", job, "--at", "oom"]);
    assert!(blamed.contains("between 20.77 GiB and 23.63 GiB, simulated with 22.37"), "{blamed}");
    assert!(blamed.contains("If the limit was 22.37 GiB, expandable (PYTORCH"), "{blamed}");
    assert!(!blamed.contains("In the same memory"), "{blamed}");
}
