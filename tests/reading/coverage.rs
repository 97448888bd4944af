//! Coverage: what people bring is not always a complete recording, and no answer may claim more than it shows.

use std::path::Path;

use crate::common::cli::gmlake_sim;
use crate::common::recordings::{self, case};
use gmlake::sim::{self, Opened, Setup, choose, open, open_bytes};
use gmlake::trace::{
    Action, Certainty, CoverageKind, Gap, LoadOptions, load, peak_live_bytes, write_snapshot,
};
use serde_json::Value;

fn coverage_of(name: &str) -> Option<(Opened, CoverageKind)> {
    let opened = open(&case(name)?, &LoadOptions::default()).expect("it opens");
    let kind = opened.coverage.kind();
    Some((opened, kind))
}

#[test]
fn each_kind_of_recording_is_recognised() {
    let cases = [
        ("truncated/history-stopped.pickle", CoverageKind::Partial),
        ("truncated/late-annotation.pickle", CoverageKind::StartedLate),
        ("truncated/oom-in-forward.pickle", CoverageKind::OutOfMemory),
        ("truncated/ring.pickle", CoverageKind::TailOnly),
        ("truncated/state-only.pickle", CoverageKind::StateOnly),
        ("truncated/torch20-state.pickle", CoverageKind::StateOnly),
        ("truncated/profiler-late.pt.trace.json", CoverageKind::StartedLate),
        ("stacks/python.pickle", CoverageKind::Complete),
        ("steps/forward.pickle", CoverageKind::Complete),
    ];
    for (name, wanted) in cases {
        let Some((opened, kind)) = coverage_of(name) else { continue };
        assert_eq!(kind, wanted, "{name}: {:?}", opened.coverage);
    }
}

/// The recorded allocator begins with what was live, the others request it: both go through the same steps.
#[test]
fn every_allocator_goes_through_the_steps_of_a_recording_that_began_late() {
    let mut seen = 0;
    for (name, path) in recordings::all().into_iter().filter(|(name, _)| name.contains("ring")) {
        let opened = open(&path, &LoadOptions::default()).unwrap();
        let wanted: Vec<_> =
            opened.trace.steps.iter().map(|step| (step.start as u64, step.end as u64)).collect();
        for choice in choose(&["caching".to_owned(), "lake".to_owned()], &[]).unwrap() {
            let run = sim::run(&opened, &choice, &Setup::default()).unwrap();
            let steps = run.steps.iter().map(|step| (step.start_event, step.end_event));
            assert_eq!(steps.collect::<Vec<_>>(), wanted, "{name}, {}", choice.spec.name);
        }
        seen += wanted.len();
    }
    assert!(seen > 0, "no step in any of them");
}

#[test]
fn complete_recordings_stay_complete() {
    for (name, path) in recordings::all() {
        let kind = open(&path, &LoadOptions::default()).unwrap().coverage.kind();
        let wanted = match name.as_str() {
            name if name.contains("cap") => CoverageKind::OutOfMemory,
            name if name.contains("late") => CoverageKind::StartedLate,
            name if name.contains("ring") => CoverageKind::TailOnly,
            _ => CoverageKind::Complete,
        };
        assert_eq!(kind, wanted, "{name}");
    }
}

#[test]
fn layers_are_no_training_steps() {
    for name in ["steps/forward.pickle", "truncated/state-only.pickle"] {
        let Some((opened, _)) = coverage_of(name) else { continue };
        assert!(opened.trace.steps.is_empty(), "{name}: {:?}", opened.trace.steps);
    }
}

/// 10 GiB were live before the profiler was switched on, and 12 GiB reserved, as its totals say.
#[test]
fn totals_of_a_profiler_are_believed() {
    const MIB: u64 = 1 << 20;
    let Some((opened, _)) = coverage_of("truncated/profiler-late.pt.trace.json") else { return };
    let recorded = opened.recorded.as_ref().unwrap();
    assert_eq!(recorded.reserved_peak_bytes, 12 * 1024 * MIB);
    assert_eq!(recorded.requested_peak_bytes, (10 * 1024 + 1200) * MIB);
    assert_eq!(opened.trace.events[0].size, 10 * 1024 * MIB);
}

/// Runs a command, and gives back its exit code and what it printed, both streams.
fn run(arguments: &[&str], file: &Path) -> (i32, String) {
    let output = gmlake_sim().args(arguments).arg(file).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("it was not killed");
    (code, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_job_that_died_in_its_first_step_fits_nowhere_for_certain() {
    let Some(file) = case("truncated/oom-in-forward.pickle") else { return };
    for device in [["--card", "RTX-4090"], ["--device-memory", "8GiB"]] {
        let (code, text) = run(&["fits", device[0], device[1]], &file);
        assert_eq!(code, 3, "{text}");
        assert!(text.starts_with("unknown: "), "{text}");
        let end =
            "the recording ends in an out-of-memory in step 1, before its first backward pass";
        assert!(text.contains("at least 7.25 GiB") && text.contains(end), "{text}");
    }
    assert_eq!(run(&["fits", "--device-memory", "2GiB"], &file).0, 1);
    let (_, text) = run(&["plan"], &file);
    assert!(
        text.contains(">= 7.29 GiB") && text.contains("No device can be recommended"),
        "{text}"
    );
    let (code, text) = run(&["tune"], &file);
    assert_eq!(code, 3, "{text}");
    let (_, text) = run(&["blame", "--at", "oom"], &file);
    assert!(text.contains("No card can be recommended"), "{text}");
    assert!(!text.contains("whole job runs"), "{text}");
}

/// 26.68 GiB are enough for the whole job on `gmlake-released`, which its last 20,000 entries alone do not fit into.
#[test]
fn without_the_beginning_only_live_bytes_exclude_a_device() {
    let recordings = recordings::all();
    let [whole, ring] =
        ["opt-1.3b-LR-var", "opt-1.3b-LR-var.ring20k"].map(|name| &recordings[name]);
    let fits = |memory: &str, file: &Path| {
        run(&["fits", "--allocator", "gmlake-released", "--device-memory", memory], file)
    };
    assert_eq!(fits("27GiB", whole).0, 0);
    let (code, text) = fits("27GiB", ring);
    assert!(code == 3 && text.contains("if the job began as the simulation does"), "{text}");
    let (code, text) = fits("40GiB", ring);
    assert!(code == 3 && text.contains("needs at least 23.51 GiB"), "{text}");
    assert_eq!(fits("23GiB", ring).0, 1);
    let (_, text) = run(&["plan", "--allocators", "gmlake-released"], ring);
    assert!(text.contains("~ 27.36 GiB") && text.contains("unknown"), "{text}");
}

/// The blocks that were live before stand in the export as if they had been requested in it.
#[test]
fn what_is_exported_is_no_more_complete_than_what_it_was_made_from() {
    let recordings = recordings::all();
    let folder = tempfile::tempdir().unwrap();
    for (name, is_partial) in [("opt-1.3b-LR-var.ring20k", true), ("pools", false)] {
        for format in ["snapshot", "csv"] {
            let out = folder.path().join(format!("{name}.{format}"));
            let arguments = ["export", "--format", format, "--out", out.to_str().unwrap()];
            assert_eq!(run(&arguments, &recordings[name]).0, 0);
            let coverage = open(&out, &LoadOptions::default()).unwrap().coverage;
            assert_eq!(coverage.is_partial(), is_partial, "{name}, {format}: {coverage:?}");
            let fits = run(&["fits", "--device-memory", "100GiB"], &out).0;
            assert_eq!(fits, if is_partial { 3 } else { 0 }, "{name}, {format}");
        }
    }
}

/// What no GPU can hold was never allocated: nothing is certain of a recording that says so; beyond any memory, it is
/// none.
#[test]
fn what_has_an_absurd_size_is_not_left_out_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [(40, 1, "does not fit"), (50, 3, "entries are missing"), (60, 2, "any memory")];
    for (bits, code, text) in cases {
        let rows = format!("alloc,1000000,512,0,1,\nalloc,2000000,{},0,2,\n", 1_u64 << bits);
        let json = format!(
            r#"{{"segments": [], "device_traces": [[
            {{"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1}},
            {{"action": "alloc", "addr": 1048576, "size": {}, "stream": 0, "time_us": 2}}]]}}"#,
            1_u64 << bits
        );
        let header = "action,addr,size,stream,time_us,pool\n";
        for (name, content) in [("a.csv", header.to_owned() + &rows), ("a.json", json)] {
            let file = folder.path().join(name);
            std::fs::write(&file, content).unwrap();
            let (found, said) = run(&["fits", "--device-memory", "2GiB"], &file);
            assert!(found == code && said.contains(text), "{name}, {bits}: {found}: {said}");
        }
    }
}

/// What comes through a pipe cannot be read a second time.
#[test]
fn an_out_of_memory_is_read_once() {
    let Some(file) = case("truncated/oom-in-forward.pickle") else { return };
    let piped = |arguments: &[&str]| {
        let mut command = gmlake_sim();
        let output = command.args(arguments).pipe_stdin(&file).unwrap().output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let compared = piped(&["compare", "-", "--allocators", "caching"]);
    let sentence = "Out of memory in step 1: `transformers/activations.py:103 forward` (called \
                    from `train.py:25 train_step`) requested 88 MiB";
    assert!(compared.contains(sentence), "{compared}");
    for command in [&["plan", "-"][..], &["fits", "-", "--card", "RTX-4090"]] {
        let said = piped(command);
        assert!(said.contains("before its first backward pass"), "{said}");
    }
}

#[test]
fn every_command_warns_of_a_state_without_history() {
    let Some(file) = case("truncated/state-only.pickle") else { return };
    let commands: [&[&str]; 6] = [
        &["compare", "--allocators", "caching"],
        &["plan", "--allocators", "caching"],
        &["fits", "--device-memory", "8GiB"],
        &["blame"],
        &["sweep", "--allocators", "gmlake", "--set", "gmlake.fragment_limit=2MiB"],
        &["inspect"],
    ];
    for command in commands {
        let (_, text) = run(command, &file);
        assert!(text.contains("no event history"), "{command:?}: {text}");
    }
    let arguments = ["fits", "--device-memory", "8GiB", "--json"];
    let output = gmlake_sim().args(arguments).arg(&file).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let answer = &answer["result"];
    assert_eq!(answer["verdict"], "unknown");
    assert_eq!(answer["coverage"]["kind"], "state_only");
    assert_eq!(answer["is_lower_bound"], true);
}

/// Entries of blocks that have a segment each: what is done to the block at so many GiB, of so many MiB.
fn history(steps: &[(&str, u64, u64)]) -> String {
    let entry = |&(action, at, mib): &(&str, u64, u64)| {
        let (at, size) = (at << 30, mib << 20);
        format!(r#"{{"action": "{action}", "addr": {at}, "size": {size}, "stream": 0}}"#)
    };
    steps.iter().map(entry).collect::<Vec<_>>().join(",")
}

fn taken(at: u64, mib: u64) -> [(&'static str, u64, u64); 2] {
    [("segment_alloc", at, mib), ("alloc", at, mib)]
}

fn freed(at: u64, mib: u64) -> [(&'static str, u64, u64); 2] {
    [("free_requested", at, mib), ("free_completed", at, mib)]
}

/// What is held at the end, as the history's own entries leave it or not.
#[test]
fn a_history_that_stopped_is_partial_whatever_the_model_decides() {
    for released in [[40, 30], [30, 40]] {
        let cached = [(30, 200), (40, 64)].map(|(at, mib)| [taken(at, mib), freed(at, mib)]);
        let released = released.map(|at| ("segment_free", at, if at == 30 { 200 } else { 64 }));
        let begin = [&taken(10, 100)[..], &cached.concat().concat(), &released].concat();
        let steps = [begin, taken(50, 8192).to_vec()].concat();
        for (at, mib) in [(10_u64, 100_u64), (10, 8192), (900, 20_480)] {
            let (at, size) = (at << 30, mib << 20);
            let block = format!(
                r#"{{"address": {at}, "size": {size}, "requested_size": {size},
                "state": "active_allocated"}}"#
            );
            let text = format!(
                r#"{{"segments": [{{"address": {at}, "total_size": {size}, "segment_type": "large",
                "blocks": [{block}]}}], "device_traces": [[{}]]}}"#,
                history(&steps)
            );
            let opened =
                open_bytes(Path::new("-"), text.as_bytes(), &LoadOptions::default()).unwrap();
            assert!(opened.coverage.gaps().contains(&Gap::HistoryStopped), "{:?}", opened.coverage);
            let row = opened.recorded.as_ref().unwrap();
            assert_eq!(row.certainty, Certainty::AtLeast);
            assert_eq!((row.reserved_peak_bytes, opened.trace.start_events), (8292 << 20, 0));
        }
    }
}

/// The model loses its way where entries of one kind are missing; the entries that are there still count.
#[test]
fn the_row_of_a_recording_has_all_that_was_live() {
    let recordings = recordings::all();
    for name in ["streams", "graphs"] {
        let records = load(&recordings[name], &LoadOptions::default()).unwrap().remove(0);
        for left_out in [Action::FreeRequested, Action::SegmentAlloc, Action::SegmentFree] {
            let mut records = records.clone();
            records.entries.retain(|entry| entry.action != left_out);
            let mut bytes = Vec::new();
            write_snapshot(&records, &mut bytes).unwrap();
            let opened = open_bytes(Path::new("-"), &bytes, &LoadOptions::default()).unwrap();
            let Some(row) = &opened.recorded else { continue };
            let peaks = [row.requested_peak_bytes, row.active_peak_bytes, row.reserved_peak_bytes];
            assert!(peaks.is_sorted(), "{name} without {left_out:?}: {peaks:?}");
            assert!(peaks[0] >= peak_live_bytes(&opened.trace), "{name} without {left_out:?}");
        }
    }
}
