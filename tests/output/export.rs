//! Exports for other tools: simulated runs as snapshots, and lifetimes as tables.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use gmlake::allocator::{ALL, Environment, Options, find};
use gmlake::sim::{Choice, Opened, Setup, open, run, transcribe};
use gmlake::trace::{
    Action, BlockState, CoverageKind, LoadOptions, Records, choose_device, load_bytes,
    peak_live_bytes, write_minimalloc, write_snapshot,
};
use gmlake::verify::verify;
use predicates::str::contains;

fn gmlake_sim() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Streams, private pools, graphs, a memory limit with retries and OOMs, expandable segments, a late beginning, plain.
const TRACES: [&str; 8] = [
    "streams",
    "graphs",
    "pools",
    "detection.expandable-cap20pct",
    "opt-1.3b-LR-var.gc60-cap16pct",
    "opt-1.3b-LR-var.ring20k",
    "opt-1.3b-LR.expandable",
    "opt-1.3b-N",
];

fn opened(name: &str) -> Opened {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    open(&folder.join(format!("{name}.pickle.xz")), &LoadOptions::default()).unwrap()
}

/// The run, written and read back.
fn exported(opened: &Opened, allocator: &str) -> Records {
    let choice = Choice { spec: find(allocator).unwrap(), options: Options::default() };
    let written = transcribe(opened, &choice, &Setup::default()).unwrap();
    let mut bytes = Vec::new();
    write_snapshot(&written, &mut bytes).unwrap();
    let all = load_bytes(&bytes, &LoadOptions::default()).unwrap();
    let read = choose_device(all, None, &PathBuf::from("export")).unwrap();
    assert_eq!((&read.entries, &read.segments), (&written.entries, &written.segments));
    read
}

#[test]
fn pytorchs_allocator_simulated_is_a_recording_of_pytorch() {
    for name in TRACES {
        let opened = opened(name);
        for allocator in ["caching", "expandable"] {
            let records = exported(&opened, allocator);
            let environment = Environment::new(records.settings.clone().unwrap());
            let found = verify(&records, &environment);
            assert_eq!(found.difference_count, 0, "{name} under {allocator}");
        }
    }
}

/// All but the moments of segment events, which a simulation cannot know.
fn decisions(records: &Records) -> Vec<(Action, u64, u64, u16)> {
    let entries = records.entries.iter().filter(|entry| entry.action != Action::Snapshot);
    entries.map(|entry| (entry.action, entry.addr, entry.size, entry.stream.0)).collect()
}

#[test]
fn what_was_recorded_is_exported_as_it_was() {
    for name in ["opt-1.3b-N", "streams", "opt-1.3b-RO"] {
        let opened = opened(name);
        let records = exported(&opened, opened.recorded_by());
        assert!(decisions(&records) == decisions(&opened.records), "{name}: entries");
        assert_eq!(records.annotations, opened.records.annotations);
        assert_eq!(records.segments.len(), opened.records.segments.len());
        for (ours, theirs) in records.segments.iter().zip(&opened.records.segments) {
            assert_eq!(
                (ours.address, ours.size, ours.stream, ours.is_small, ours.is_expandable),
                (theirs.address, theirs.size, theirs.stream, theirs.is_small, theirs.is_expandable),
                "{name}"
            );
            for (ours, theirs) in ours.blocks.iter().zip(&theirs.blocks) {
                assert_eq!(ours.address, theirs.address, "{name}");
                assert_eq!((ours.size, ours.state), (theirs.size, theirs.state), "{name}");
            }
            assert_eq!(ours.blocks.len(), theirs.blocks.len(), "{name}");
        }
    }
}

#[test]
fn every_allocators_snapshot_is_whole() {
    for name in ["streams", "detection.expandable-cap20pct", "opt-1.3b-LR-var.ring20k"] {
        let opened = opened(name);
        for spec in ALL {
            let records = exported(&opened, spec.name);
            let choice = Choice { spec, options: Options::default() };
            let result = run(&opened, &choice, &Setup::default()).unwrap();
            let count = |action| records.entries.iter().filter(|e| e.action == action).count();
            let ooms = count(Action::Oom);
            assert_eq!(
                (count(Action::Alloc) + ooms) as u64,
                opened.trace.requests(),
                "{name} under {}",
                spec.name
            );
            if opened.start.is_empty() {
                assert_eq!(ooms as u64, result.oom_count, "{name} under {}", spec.name);
            }
            // What no PyTorch would do is a difference, and no reason to fail.
            let conf = records.settings.clone().unwrap();
            let found = verify(&records, &Environment::new(conf));
            let is_pytorchs = ["caching", "expandable"].contains(&spec.name);
            assert!(!is_pytorchs || found.difference_count == 0, "{name} under {}", spec.name);
            check_segments(&records, &format!("{name} under {}", spec.name));
        }
    }
}

/// Blocks cover their segments, and what is active in the end was handed out and not completed.
fn check_segments(records: &Records, label: &str) {
    let mut live = std::collections::BTreeMap::new();
    for entry in &records.entries {
        match entry.action {
            Action::Alloc => assert_eq!(live.insert(entry.addr, entry.size), None, "{label}"),
            Action::FreeCompleted => {
                assert_eq!(live.remove(&entry.addr), Some(entry.size), "{label}");
            }
            _ => {}
        }
    }
    let mut end = 0;
    for segment in &records.segments {
        assert!(segment.address >= end, "{label}: segments overlap");
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "{label}: a gap");
            at += block.size;
            if block.state != BlockState::Inactive {
                assert_eq!(live.remove(&block.address), Some(block.requested), "{label}");
            }
        }
        end = segment.address + segment.size;
        assert_eq!(at, end, "{label}: blocks do not fill their segment");
    }
    assert!(live.is_empty(), "{label}: live, and in no segment: {live:?}");
}

#[test]
fn lifetimes_add_up_to_the_lower_bound() {
    let opened = opened("opt-1.3b-N");
    let mut text = Vec::new();
    write_minimalloc(&opened.trace, &mut text).unwrap();
    let mut changes = Vec::new();
    let mut reader = csv::Reader::from_reader(&text[..]);
    assert_eq!(reader.headers().unwrap(), vec!["id", "lower", "upper", "size"]);
    for row in reader.records() {
        let row = row.unwrap();
        let number = |place: usize| row[place].parse::<i64>().unwrap();
        assert!(number(1) < number(2) && number(3) > 0);
        // A place may be used again from `upper` on: what ends goes first.
        changes.push((number(1), number(3)));
        changes.push((number(2), -number(3)));
    }
    changes.sort_unstable();
    let (mut live, mut peak) = (0, 0);
    for (_, change) in changes {
        live += change;
        peak = peak.max(live);
    }
    let bound = Choice { spec: find("bound").unwrap(), options: Options::default() };
    let bound = run(&opened, &bound, &Setup::default()).unwrap();
    assert_eq!(peak as u64, bound.reserved_peak_bytes);
}

#[test]
fn the_command_writes_what_the_other_commands_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pickle");
    let out = out.to_str().unwrap();
    let from = "traces/streams.pickle.xz";
    gmlake_sim().args(["export", from, "--out", out]).assert().success();
    gmlake_sim().args(["verify", out]).assert().success().stdout(contains("Exact"));
    let allocator = ["--allocator", "gmlake", "--set", "gmlake.fragment_limit=2MiB"];
    let stitched = gmlake_sim().args(["export", from, "--out", out]).args(allocator).assert();
    stitched.success().stderr(contains("gmlake may map memory at more than one address"));
    gmlake_sim().args(["compare", out, "--allocators", "caching"]).assert().success();
    gmlake_sim().args(["export", from, "--out", out, "--allocator", "native"]).assert().success();
    gmlake_sim().args(["compare", out, "--allocators", "caching"]).assert().success();
    let csv = gmlake_sim().args(["export", from, "--out", "-", "--format", "csv"]).assert();
    csv.success().stdout(contains("action,addr,size,stream,time_us,pool\n"));
    let csv = gmlake_sim().args(["export", from, "--out", "-", "--format", "minimalloc"]).assert();
    csv.success().stdout(contains("id,lower,upper,size\nb0,0,"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing half-written stays");
}

/// Addresses that an allocator would have mapped are no memory that PyTorch held.
#[test]
fn a_simulation_of_another_allocator_is_no_recording_of_pytorch() {
    let folder = tempfile::tempdir().unwrap();
    let live = peak_live_bytes(&opened("streams").trace);
    for (allocator, ending, is_pytorchs) in [
        ("lake", "pickle.xz", false),
        ("native", "pickle", false),
        ("lake", "csv", false),
        ("expandable", "pickle", true),
        ("caching", "csv", true),
    ] {
        let out = folder.path().join(format!("{allocator}.{ending}"));
        let from = ["export", "traces/streams.pickle.xz", "--allocator", allocator, "--out"];
        gmlake_sim().args(from).arg(&out).assert().success();
        let opened = open(&out, &LoadOptions::default()).unwrap();
        assert_eq!(opened.coverage.kind(), CoverageKind::Complete, "{allocator}.{ending}");
        assert_eq!(peak_live_bytes(&opened.trace), live, "{allocator}.{ending}");
        let verified = gmlake_sim().arg("verify").arg(&out).assert();
        verified.code(if is_pytorchs { 0 } else { 2 });
        assert_eq!(opened.recorded.is_some(), is_pytorchs, "{allocator}.{ending}");
    }
}

#[test]
fn what_cannot_be_exported_is_refused_in_one_line() {
    let from = "traces/streams.pickle.xz";
    let cases: [(&[&str], &str); 5] = [
        (&["--out", "-", "--format", "minimalloc", "--allocator", "gmlake"], "lifetimes"),
        (&["--out", "-", "--allocator", "lagoon"], "there is no allocator \"lagoon\""),
        (&["--out", "-", "--set", "gmlake.chunk=2MiB"], "not among those"),
        (&["--out", "/no/such/folder/x"], "cannot write"),
        (&["--out", "-", "--alloc-conf", "no_such:1"], "no_such"),
    ];
    for (arguments, words) in cases {
        let assert = gmlake_sim().args(["export", from]).args(arguments).assert();
        let assert = assert.code(2).stderr(contains(words));
        let text = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        assert!(assert.get_output().stdout.is_empty());
    }
}

/// The events of a Perfetto export.
fn tracks(recording: &str, arguments: &[&str]) -> serde_json::Value {
    let mut run = gmlake_sim();
    run.args(["export", recording, "--format", "perfetto", "--out", "-"]).args(arguments);
    let assert = run.assert().success();
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

#[test]
fn perfettos_counters_are_the_run_and_its_segments_add_up() {
    for name in
        ["streams", "graphs", "opt-1.3b-LR-var.gc60-cap16pct", "detection.expandable-cap20pct"]
    {
        let recording = format!("traces/{name}.pickle.xz");
        let opened = opened(name);
        let names = ["caching", "expandable", "gmlake", "lake"];
        let trace = tracks(&recording, &["--allocator", &names.join(",")]);
        let events = trace["traceEvents"].as_array().unwrap();
        let base_us = trace["baseTimeNanoseconds"].as_u64().unwrap() / 1000;
        for (place, allocator) in names.into_iter().enumerate() {
            let label = format!("{name} under {allocator}");
            let process = (1 << 30) + 1 + place as u64;
            let ours: Vec<_> = events.iter().filter(|e| e["pid"] == process).collect();
            assert_eq!(ours[0]["args"]["name"], allocator);
            let of = |kind: &str, name: &str| {
                let right = |e: &&&serde_json::Value| e["ph"] == kind && e["name"] == name;
                ours.iter().filter(right).copied().collect::<Vec<_>>()
            };
            let choice = Choice { spec: find(allocator).unwrap(), options: Options::default() };
            let run = run(&opened, &choice, &Setup::default()).unwrap();
            let highest = |key: &str| {
                of("C", "memory").iter().map(|e| e["args"][key].as_u64().unwrap()).max().unwrap()
            };
            if opened.start.is_empty() {
                assert_eq!(highest("reserved"), run.reserved_peak_bytes, "{label}");
                assert_eq!(highest("active"), run.active_peak_bytes, "{label}");
                assert_eq!(of("i", "flush").len() as u64, run.alloc_retries, "{label}");
                assert_eq!(of("i", "out of memory").len() as u64, run.oom_count, "{label}");
            }
            for free in of("C", "largest free") {
                assert!(free["args"]["bytes"].as_u64().unwrap() <= run.reserved_peak_bytes);
            }
            let first = opened.records.entries[0].time_us - base_us;
            let last = first + opened.trace.span_us();
            let times = ours.iter().filter(|e| e["ph"] != "M").map(|e| e["ts"].as_u64().unwrap());
            assert!(times.clone().all(|ts| (first..=last).contains(&ts)), "{label}");
            check_slices(
                &ours,
                highest("reserved"),
                ["caching", "expandable"].contains(&allocator),
                &label,
            );
        }
    }
}

/// Slices of one track do not overlap, and at no time do all of them hold more than was ever reserved.
fn check_slices(events: &[&serde_json::Value], reserved: u64, is_held_once: bool, label: &str) {
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let slices: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(!slices.is_empty(), "{label}");
    let mut by_track = std::collections::BTreeMap::<u64, Vec<(u64, u64)>>::new();
    let mut changes = Vec::new();
    for slice in slices {
        let (begin, bytes) = (number(&slice["ts"]), number(&slice["args"]["bytes"]));
        let end = begin + number(&slice["dur"]);
        by_track.entry(number(&slice["tid"])).or_default().push((begin, end));
        // Within a microsecond, what goes back makes room for what comes.
        changes.push((end, 0, bytes));
        if begin < end {
            changes.push((begin, 1, bytes));
        } else {
            changes.pop();
        }
    }
    for track in by_track.values_mut() {
        track.sort_unstable();
        assert!(track.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{label}: slices overlap");
    }
    changes.sort_unstable();
    let mut held = 0;
    for (_, is_more, bytes) in changes {
        held = if is_more == 1 { held + bytes } else { held - bytes };
        assert!(!is_held_once || held <= reserved, "{label}: {held} of {reserved}");
    }
    assert_eq!(held, 0, "{label}");
}

#[test]
fn perfetto_shows_a_table_without_times_event_by_event() {
    let trace = tracks("tests/data/by_hand.csv", &[]);
    let events = trace["traceEvents"].as_array().unwrap();
    let counters = events.iter().filter(|e| e["ph"] == "C" && e["name"] == "memory");
    let times: Vec<u64> = counters.map(|e| e["ts"].as_u64().unwrap()).collect();
    assert!(times.len() > 3 && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    assert!(events.iter().any(|e| e["name"] == "empty_cache"));
    let several = ["export", "tests/data/by_hand.csv", "--out", "-", "--allocator", "lake,caching"];
    gmlake_sim().args(several).assert().code(2).stderr(contains("only --format perfetto"));
}
