//! `gmlake-replay` from outside, on a driver of our own: `mock_libcuda`, which this test compiles.
//!
//! The real program runs, loads the mock as it would load the driver, and is made to fail in many ways. Without a C++
//! compiler these tests say so and pass; what needs no driver is tested in any case.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gmlake::allocator::ALL;
use gmlake::cuda::{Gpu, GpuError};
use gmlake::device::{Amount, Profile};
use gmlake::units::{MIB, Nanos};
use serde_json::Value;

use crate::common::cpp::mock;

pub(crate) const STREAMS: &str = "traces/streams.pickle.xz";
const GRAPHS: &str = "traces/graphs.pickle.xz";

/// One run of the program on the mock.
struct Run {
    output: Output,
    /// What the mock reported at the end.
    report: String,
    /// What the program exported.
    json: Value,
}

impl Run {
    fn code(&self) -> i32 {
        self.output.status.code().unwrap_or(-1)
    }

    fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// Nothing was left behind, no rule was broken, nothing panicked.
    #[track_caller]
    fn assert_tidy(&self) {
        let left = "0 violations; left: 0 reservations, 0 mappings, 0 handles, 0 buffers, \
                    0 streams, 0 events, 0 modules, 0 contexts, 0 bytes";
        assert!(self.report.trim_end().ends_with(left), "{}", self.report);
        assert!(!self.errors().contains("panicked"), "{}", self.errors());
    }
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmlake-replay"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// The program with the mock's settings; `None` without the mock.
fn on_mock(arguments: &[&str], settings: &[(&str, &str)]) -> Option<Run> {
    let folder = mock()?;
    let scratch = tempfile::tempdir().unwrap();
    let (report, json) = (scratch.path().join("report"), scratch.path().join("json"));
    let mut command = program();
    command.args(arguments).arg("--export-json").arg(&json);
    command.env("LD_LIBRARY_PATH", folder).env("MOCK_CUDA_REPORT", &report);
    command.envs(settings.iter().copied());
    let output = command.output().unwrap();
    let json = fs::read_to_string(&json).unwrap_or_default();
    Some(Run {
        output,
        report: fs::read_to_string(&report).unwrap_or_default(),
        json: result(&json, arguments[0]),
    })
}

/// The result in what `command` wrote; null if it wrote nothing.
fn result(json: &str, command: &str) -> Value {
    if json.is_empty() {
        return Value::Null;
    }
    let mut whole: Value = serde_json::from_str(json).unwrap();
    assert_eq!(whole["schema_version"], gmlake::report::SCHEMA_VERSION);
    assert_eq!(whole["command"], command);
    assert_eq!(whole.as_object().unwrap().len(), 4, "{whole}");
    whole["result"].take()
}

fn replay(trace: &str, more: &[&str], settings: &[(&str, &str)]) -> Option<Run> {
    let arguments = [&["run", trace, "--scale", "0.01"], more].concat();
    on_mock(&arguments, settings)
}

/// Whatever writes JSON is run in these tests, and its shape checked by `result`.
#[test]
fn every_command_that_writes_json_is_tried() {
    let help = |arguments: &[&str]| {
        String::from_utf8(program().args(arguments).output().unwrap().stdout).unwrap()
    };
    let all = help(&["--help"]);
    let listed = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty());
    let writes = |name: &&str| *name != "help" && help(&[name, "--help"]).contains("--export-json");
    let found: Vec<&str> = names.filter(writes).collect();
    assert_eq!(found, ["calibrate", "run"]);
}

#[test]
fn without_a_driver_one_clear_line_and_exit_code_2() {
    if !matches!(Gpu::open(0), Err(GpuError::NoDriver)) {
        return eprintln!("skipped: this machine has a driver");
    }
    for arguments in [&["run", "x"][..], &["--device", "0"], &["calibrate"]] {
        let output = program().args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(
            errors,
            "gmlake-replay: no NVIDIA driver: libcuda.so.1 is not on this machine\n"
        );
        assert!(output.stdout.is_empty());
    }
}

/// Each allocator makes the calls of its simulation, and every byte that it hands out is its client's alone.
#[test]
fn every_allocator_replays_as_simulated_and_keeps_its_memory_apart() {
    for trace in [STREAMS, GRAPHS] {
        let more = ["--verify", "all", "--allocators", "all"];
        let Some(run) = replay(trace, &more, &[]) else { return };
        assert_eq!(run.code(), 0, "{}{}", run.text(), run.errors());
        run.assert_tidy();
        let summaries = run.json.as_array().unwrap();
        assert_eq!(summaries.len(), ALL.len());
        for (summary, spec) in summaries.iter().zip(ALL) {
            let name = spec.name;
            assert_eq!(summary["allocator"], name);
            assert_eq!(summary["log_difference"], Value::Null, "{name}");
            assert_eq!(summary["verified"]["corrupted_bytes"], 0, "{name}");
            assert!(
                summary["verified"]["checks"].as_u64()
                    >= summary["verified"]["allocations"].as_u64()
            );
            // A plan is one allocation.
            let least = if name == "stalloc" { 1 } else { 20 };
            assert!(summary["compared_calls"].as_u64().unwrap() > least, "{name}");
            assert!(summary["predicted_driver_ns"].as_u64().unwrap() > 0, "{name}");
            let peak = |what: &str| summary[what].as_u64().unwrap();
            let (physical, reserved) = (peak("physical_peak_bytes"), peak("reserved_peak_bytes"));
            // What is asked for in other sizes than whole pages, the driver packs into pages.
            let asks_for_pages =
                !["native", "bound", "rmm-pool", "offline", "stalloc"].contains(&name);
            assert!(physical == reserved || physical > reserved && !asks_for_pages, "{name}");
            assert_eq!(physical, peak("simulated_peak_bytes"), "{name}");
        }
    }
}

#[test]
fn a_sample_of_each_page_is_checked_too() {
    let more = ["--verify", "sample", "--allocators", "gmlake,native", "--background-load", "3"];
    let Some(run) = replay(STREAMS, &more, &[]) else { return };
    assert_eq!(run.code(), 0, "{}{}", run.text(), run.errors());
    run.assert_tidy();
    let waits = |place: usize| run.json[place]["wait_ns"].as_u64().unwrap();
    assert!(waits(1) > 0, "cuMemFree waits for the queue");
}

/// On a GPU that is too small for the cache, allocators flush and retry, and the simulation does the same.
#[test]
fn short_of_memory_replay_and_simulation_still_agree() {
    let Some(run) = replay(STREAMS, &["--verify", "all"], &[("MOCK_CUDA_MEMORY", "112000000")])
    else {
        return;
    };
    run.assert_tidy();
    let summaries = run.json.as_array().unwrap();
    let retries: u64 = summaries.iter().map(|s| s["alloc_retries"].as_u64().unwrap()).sum();
    assert!(retries > 0, "the memory was not short enough");
    for summary in summaries {
        assert_eq!(summary["log_difference"], Value::Null, "{}", summary["allocator"]);
        assert_eq!(summary["verified"]["corrupted_bytes"], 0, "{}", summary["allocator"]);
    }
}

/// Memory that another process takes away in the middle of a stitch, and calls that fail for no reason that we know.
#[test]
fn failing_calls_end_in_order() {
    let calls =
        ["cuMemCreate:9:2", "cuMemMap:9:700", "cuMemSetAccess:9:700", "cuMemAddressReserve:4:2"];
    let names = "vmm,gmlake,gmlake-released,expandable";
    for call in calls {
        let settings = [("MOCK_CUDA_FAIL", call)];
        let more = ["--verify", "all", "--allocators", names];
        let Some(run) = replay(STREAMS, &more, &settings) else { return };
        assert_eq!(run.code(), 1, "{call}: {}{}", run.text(), run.errors());
        run.assert_tidy();
        assert_eq!(run.json.as_array().unwrap().len(), 4, "{call}: results so far are kept");
        let stopped = run.json[0]["stopped"].as_str().unwrap_or_default().to_owned();
        let is_oom = call.ends_with(":2");
        assert_eq!(stopped.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), !is_oom, "{call}: {stopped}");
        assert_eq!(run.json[0]["oom_count"].as_u64() > Some(0), is_oom, "{call}");
    }
}

/// A device that goes away fails every call, those that give back among them.
#[test]
fn a_device_that_disappears_is_reported() {
    for call in ["cuMemUnmap:3:700", "cuCtxSynchronize:1:700", "cuMemFree:2:700"] {
        let more = ["--allocators", "expandable,native"];
        let Some(run) = replay(STREAMS, &more, &[("MOCK_CUDA_FAIL", call)]) else { return };
        assert_eq!(run.code(), 1, "{call}: {}{}", run.text(), run.errors());
        assert!(run.text().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{call}: {}", run.text());
        assert!(!run.errors().contains("panicked"), "{call}: {}", run.errors());
    }
}

#[test]
fn a_byte_that_changes_is_found() {
    let settings = [("MOCK_CUDA_CORRUPT", "30")];
    let more = ["--verify", "all", "--allocators", "caching"];
    let Some(run) = replay(STREAMS, &more, &settings) else { return };
    assert_eq!(run.code(), 1);
    run.assert_tidy();
    assert_eq!(run.json[0]["verified"]["corrupted_bytes"].as_u64().unwrap() % 4, 0);
    assert!(run.text().contains("first corruption: 4 of "), "{}", run.text());
}

#[test]
fn what_cannot_begin_says_why_in_one_line() {
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 7] = [
        (&["run", STREAMS], &[("MOCK_CUDA_DEVICES", "0")], "CUDA_ERROR_NO_DEVICE"),
        (&["run", STREAMS, "--device", "1"], &[], "there is no GPU 1: the driver has 1"),
        (&["run", STREAMS], &[("MOCK_CUDA_NO_VMM", "1")], "has no virtual memory management"),
        (&["run", STREAMS], &[("MOCK_CUDA_MEMORY", "64000000")], "try --scale 0."),
        (&["run", "no-such-file"], &[], "no-such-file"),
        (&["run", STREAMS, "--allocators", "magic"], &[], "there is no allocator \"magic\""),
        (
            &["run", STREAMS, "--profile", "magic"],
            &[],
            "neither h200 nor h100 nor a100-paper nor a file",
        ),
    ];
    for (arguments, settings, expected) in cases {
        let Some(run) = on_mock(arguments, settings) else { return };
        assert_eq!(run.code(), 2, "{arguments:?}: {}", run.errors());
        assert!(run.errors().contains(expected), "{expected:?} is not in {:?}", run.errors());
        assert_eq!(run.errors().lines().count(), 1, "{}", run.errors());
    }
}

/// Ctrl-C: what was found so far is printed, and everything is given back.
#[test]
fn an_interrupt_keeps_the_results() {
    let Some(folder) = mock() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let report = scratch.path().join("report");
    let mut command = program();
    // At the pace of the recording, which is far longer than we wait.
    command.args(["run", "traces/opt-1.3b-LR-var.ring20k.pickle.xz", "--scale", "0.0001"]);
    command.args(["--allocators", "native", "--speed", "as-recorded"]);
    command.env("LD_LIBRARY_PATH", folder).env("MOCK_CUDA_REPORT", &report);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let run = Run { output, report: fs::read_to_string(&report).unwrap(), json: Value::Null };
    assert_eq!(run.code(), 1, "{}", run.errors());
    assert!(run.text().contains("events: interrupted"), "{}", run.text());
    run.assert_tidy();
}

#[test]
fn calibration_writes_a_profile_that_can_be_used() {
    let scratch = tempfile::tempdir().unwrap();
    let profile = scratch.path().join("profile.json");
    let path = profile.to_str().unwrap();
    let times = scratch.path().join("times.csv");
    let times = times.to_str().unwrap();
    let arguments =
        ["calibrate", "--seconds", "1", "--name", "mock", "--out", path, "--call-times", times];
    // Mapping has a price that no other work on this machine hides.
    let settings = [("MOCK_CUDA_MEMORY", "9000000000"), ("MOCK_CUDA_MAP_NS", "20000")];
    let Some(run) = on_mock(&arguments, &settings) else { return };
    assert_eq!(run.code(), 0, "{}{}", run.text(), run.errors());
    run.assert_tidy();
    assert!(!run.text().contains("differs from the model"), "{}", run.text());
    assert!(run.text().contains("Table 1 of the paper"), "{}", run.text());
    let written = Profile::from_json(&fs::read_to_string(&profile).unwrap()).unwrap();
    assert_eq!(written.name, "mock");
    // However a noisy machine's fit divides it: by call, by handle or by MiB.
    let map = written.calls.map[0];
    let ns = map.of(Amount { handles: 1, size: 2 * MIB });
    assert!(ns > 15_000.0, "{map:?}");
    let more = ["--allocators", "gmlake", "--profile", path];
    let run = replay(STREAMS, &more, &[]).unwrap();
    assert_eq!((run.code(), &run.json[0]["profile"]), (0, &Value::from("mock")));
    assert_eq!(fitted_again(&[times, "--profile", path], 0), fs::read_to_string(&profile).unwrap());
    let packed = scratch.path().join("times.csv.gz");
    let mut encoder = flate2::write::GzEncoder::new(
        fs::File::create(&packed).unwrap(),
        flate2::Compression::new(1),
    );
    encoder.write_all(&fs::read(times).unwrap()).unwrap();
    encoder.finish().unwrap();
    let packed = packed.to_str().unwrap();
    let other = fitted_again(&[packed, "--profile", "h200", "--name", "other"], 0);
    let other = Profile::from_json(&other).unwrap();
    assert_eq!((other.name.as_str(), other.calls.map), ("other", written.calls.map));
    let refused = fitted_again(&[path, "--profile", "h200"], 2);
    assert!(refused.contains("calibrate --call-times"), "{refused}");
}

/// The profile that `gmlake-replay fit` writes, or its one line of refusal; on a machine without a GPU.
fn fitted_again(arguments: &[&str], code: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmlake-replay"));
    let done = command.arg("fit").args(arguments).args(["--out", "-"]).output().unwrap();
    let (text, errors) = (done.stdout, String::from_utf8(done.stderr).unwrap());
    assert_eq!(done.status.code(), Some(code), "{errors}");
    if code != 0 {
        assert_eq!(errors.lines().count(), 1, "{errors}");
        return errors;
    }
    let text = String::from_utf8(text).unwrap();
    text[text.find('{').unwrap()..].to_owned()
}

/// What lies between tags, after a check that every tag that is opened is closed in order.
#[track_caller]
fn texts_of(svg: &str) -> Vec<String> {
    let (mut open, mut texts) = (Vec::new(), Vec::new());
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        texts.extend(Some(text.trim().to_owned()).filter(|text| !text.is_empty()));
    }
    assert!(svg.starts_with("<svg ") && open.is_empty(), "{open:?} is not closed");
    texts
}

#[test]
fn calibration_is_drawn_beside_the_paper() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| scratch.path().join(name);
    let draw = |path: &Path, memory: &str| {
        let path = path.to_str().unwrap();
        let arguments = ["calibrate", "--seconds", "0.5", "--export-plot", path];
        on_mock(&arguments, &[("MOCK_CUDA_MEMORY", memory)])
    };
    let Some(run) = draw(&file("large.svg"), "9000000000") else { return };
    assert_eq!(run.code(), 0, "{}{}", run.text(), run.errors());
    run.assert_tidy();
    let texts = texts_of(&fs::read_to_string(file("large.svg")).unwrap());
    let is_drawn = |wanted: &str| texts.iter().any(|text| text.contains(wanted));
    let paper = "the paper: over 100 cuMemAllocs in chunks of 2 MiB";
    let gpu = run.json["gpu"].as_str().unwrap();
    for wanted in [gpu, paper, "115.4", "size of the chunks", "512 MiB = ", "set_access"] {
        assert!(is_drawn(wanted), "{wanted:?} is not in {texts:?}");
    }
    // What one cuMemAlloc took is in the picture as it is in the measurements.
    let samples = run.json["samples"].as_array().unwrap();
    let is_unit = |one: &&Value| one["call"] == "mem_alloc" && one["size"] == 2_u64 << 30;
    let ns = samples.iter().find(is_unit).unwrap()["p50_ns"].as_u64().unwrap();
    let label = format!("2 GiB: {}", Nanos(ns as f64));
    assert!(is_drawn(&label), "{label:?} is not in {texts:?}");
    // A GPU without room for it: one panel says so, the other shows what there was room for.
    let run = draw(&file("small.svg"), "2300000000").unwrap();
    assert_eq!(run.code(), 0, "{}{}", run.text(), run.errors());
    let texts = texts_of(&fs::read_to_string(file("small.svg")).unwrap());
    assert!(texts.iter().any(|text| text.starts_with("512 MiB: ")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("it needs 8 GiB")), "{texts:?}");
    let run = draw(&file("small.png"), "2300000000").unwrap();
    assert_eq!(run.code(), 0, "{}{}", run.text(), run.errors());
    assert!(fs::read(file("small.png")).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn a_picture_that_cannot_be_drawn_is_refused_before_the_gpu_is_touched() {
    let scratch = tempfile::tempdir().unwrap();
    let cases = [("cost.pdf", ".svg or .png"), ("gone/cost.svg", "cannot write"), ("-", ".svg")];
    for (name, expected) in cases {
        for command in [&["calibrate"][..], &["--device", "0"]] {
            let mut program = program();
            program.current_dir(scratch.path()).args(command).args(["--export-plot", name]);
            let output = program.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{name}: {errors}");
            assert!(errors.contains(expected), "{expected:?} is not in {errors:?}");
            assert_eq!((errors.lines().count(), output.stdout.len()), (1, 0), "{errors}");
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left");
}

/// The log that is written is that of the simulation too, so it can be read without knowing any address.
#[test]
fn the_call_log_is_canonical() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let more = ["--allocators", "expandable", "--call-log", log.to_str().unwrap()];
    let Some(run) = replay(STREAMS, &more, &[]) else { return };
    assert_eq!(run.code(), 0);
    let log = fs::read_to_string(&log).unwrap();
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some("# traces/streams.pickle.xz expandable"));
    assert!(lines.next().unwrap().starts_with("address_reserve r0 "), "{log}");
    assert!(log.contains("\nmap r0 h0\nset_access r0 "), "{log}");
}
