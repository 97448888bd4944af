//! Every format that we read, from small files of `tests/data` that another program wrote.

use std::path::Path;

use crate::common::cli::gmlake_sim;
use gmlake::trace::{
    Action, BlockState, EventKind, Labels, LoadOptions, Records, Stacks, StreamId, TraceFormat,
    WarningKind, choose_device, ingest, load, load_bytes, write_csv, write_snapshot,
};
use gmlake::units::{GIB, MIB};
use predicates::str::contains;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name))
        .expect("the fixture is there")
}

fn with_stacks() -> LoadOptions {
    LoadOptions { stacks: true, ..LoadOptions::default() }
}

fn only(bytes: &[u8], options: &LoadOptions) -> Records {
    let mut all = load_bytes(bytes, options).expect("a good file");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::fast());
    std::io::Read::read_to_end(&mut encoder, &mut out).expect("memory suffices");
    out
}

#[test]
fn all_protocols_and_json_say_the_same() {
    let expected = only(&data("snapshot.4.pickle"), &with_stacks());
    check_snapshot(&expected);
    for name in ["snapshot.2.pickle", "snapshot.3.pickle", "snapshot.5.pickle", "snapshot.json"] {
        let records = only(&data(name), &with_stacks());
        assert_eq!(format!("{records:?}"), format!("{expected:?}"), "{name}");
    }
}

/// What `tests/data/make.py` wrote.
fn check_snapshot(records: &Records) {
    assert_eq!(records.device, 1);
    assert_eq!(records.streams, [0, 0x50, u64::MAX - 15]);
    assert_eq!(records.pools, [(0, 0)]);
    assert!(records.has_segments && !records.has_pools);
    let actions: Vec<&str> = records.entries.iter().map(|entry| entry.action.name()).collect();
    assert_eq!(actions.len(), 10);
    assert_eq!(actions[8..], ["oom", "free_requested"]);
    let (map, oom) = (records.entries[3], records.entries[8]);
    assert_eq!((map.addr, map.size, map.stream), (0x7f00_0020_0000, 8 * MIB, StreamId(2)));
    assert_eq!((oom.addr, oom.size, oom.stream, oom.time_us), (4096, 1 << 40, StreamId(1), 1009));
    let stacks: Vec<u32> = records.entries[..4].iter().map(|entry| entry.stack).collect();
    assert_eq!(stacks, [0, 0, 1, u32::MAX]);
    let lines =
        |stack| records.stacks.frames_of(stack).map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(lines(0), ["model.py:12 forward", "train.py:3 main"]);
    assert_eq!(lines(1), ["train.py:3 main"]);
    let [segment] = &records.segments[..] else { panic!("{:?}", records.segments) };
    assert!(segment.is_small && !segment.is_expandable && segment.size == 2 * MIB);
    let states: Vec<BlockState> = segment.blocks.iter().map(|block| block.state).collect();
    assert_eq!(states, [BlockState::Allocated, BlockState::PendingFree, BlockState::Inactive]);
    assert_eq!(segment.blocks[1].requested, 1000);
    assert_eq!(records.annotations.len(), 2);
    assert!(records.annotations[0].is_start && records.annotations[1].time_us == 1005);
    let settings = records.settings.as_ref().expect("settings are in the file");
    assert_eq!((settings.large_segment_size, settings.max_split_size), (64 * MIB, None));
    assert!(settings.expandable_segments && settings.garbage_collection_threshold == 0.5);
    assert_eq!(records.unknown_actions, 1);
    assert_eq!(records.warnings[0].kind, WarningKind::UnknownAction);
    assert!(records.warnings[0].first.contains("annotate"), "{}", records.warnings[0]);
}

/// The same recording, whose out-of-memory is an action that nobody knows.
fn without_oom(mut bytes: Vec<u8>) -> Vec<u8> {
    for at in 0..bytes.len() - 2 {
        if bytes[at..].starts_with(b"oom") {
            bytes[at + 2] = b'o';
        }
    }
    bytes
}

#[test]
fn stacks_are_skipped_unless_wanted() {
    for name in ["snapshot.4.pickle", "snapshot.2.pickle", "snapshot.json"] {
        let ran_out = data(name);
        assert!(!only(&ran_out, &LoadOptions::default()).stacks.is_empty(), "{name}: of an OOM");
        let content = without_oom(ran_out);
        let mut with = only(&content, &with_stacks());
        let without = only(&content, &LoadOptions::default());
        assert!(without.stacks.is_empty(), "{name}");
        with.stacks = Stacks::default();
        with.live_stacks.clear();
        with.entries.iter_mut().for_each(|entry| entry.stack = u32::MAX);
        assert_eq!(format!("{with:?}"), format!("{without:?}"), "{name}");
    }
}

#[test]
fn what_the_program_noted_is_kept_beside_the_stack() {
    let entry = r#"{"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1"#;
    let json = format!(
        r#"{{"segments": [], "device_traces": [[
            {entry}, "compile_context": "0/1", "user_metadata": "epoch 3", "frames": []}},
            {entry}, "compile_context": "N/A", "user_metadata": ""}}]]}}"#
    );
    let records = only(json.as_bytes(), &with_stacks());
    assert_eq!(records.entries[1].stack, u32::MAX);
    let mut pickle = Vec::new();
    write_snapshot(&records, &mut pickle).expect("memory suffices");
    for records in [&records, &only(&pickle, &with_stacks())] {
        let noted = records.stacks.get(records.entries[0].stack).expect("it has labels");
        assert!(noted.frames.is_empty());
        assert_eq!(noted.compile_context.as_deref(), Some("0/1"));
        assert_eq!(noted.user_metadata.as_deref(), Some("epoch 3"));
    }
}

#[test]
fn compressed_files_are_told_by_their_content() {
    let plain = data("snapshot.4.pickle");
    let expected = format!("{:?}", only(&plain, &LoadOptions::default()));
    let zstd = zstd::encode_all(&plain[..], 3).expect("memory suffices");
    let mut xz = Vec::new();
    let mut encoder = liblzma::read::XzEncoder::new(&plain[..], 6);
    std::io::Read::read_to_end(&mut encoder, &mut xz).expect("memory suffices");
    // Two members one after the other are one file, for gzip and zstd alike.
    let (front, back) = plain.split_at(100);
    let members = [gzip(front), gzip(back)].concat();
    for packed in [gzip(&plain), zstd, xz, members] {
        let records = only(&packed, &LoadOptions::default());
        assert_eq!(format!("{records:?}"), expected);
    }
}

#[test]
fn a_chrome_trace_has_the_memory_events_of_the_gpu_in_order() {
    let records = only(&data("chrome.json"), &LoadOptions::default());
    let entries: Vec<_> =
        records.entries.iter().map(|e| (e.action.name(), e.addr, e.size, e.time_us)).collect();
    let expected = [
        ("alloc", 4096, 1024, 10),
        ("free_requested", 4096, 1024, 20),
        ("free_completed", 4096, 1024, 20),
        ("oom", 0, GIB, 30),
    ];
    assert_eq!(entries, expected);
    assert!(!records.has_segments);
    let none = br#"{"traceEvents": [{"ph": "X", "name": "aten::mm"}]}"#;
    let error = load_bytes(none, &LoadOptions::default()).expect_err("no memory events");
    assert!(error.to_string().contains("profile_memory=True"), "{error}");
}

#[test]
fn csv_in_both_forms() {
    let records = only(&data("recorded.csv"), &LoadOptions::default());
    assert_eq!(records.entries.len(), 7);
    assert_eq!((records.streams.len(), &records.pools[..]), (2, &[(0, 0), (1, 0)][..]));
    assert!(records.has_pools);
    let by_hand = only(&data("by_hand.csv"), &LoadOptions::default());
    let trace = ingest(&by_hand, &Labels::default());
    let events: Vec<_> = trace.events.iter().map(|event| (event.kind, event.size)).collect();
    let expected = [
        (EventKind::Malloc, GIB),
        (EventKind::Malloc, 300 * MIB),
        (EventKind::Free, 300 * MIB),
        (EventKind::Trim, 0),
        (EventKind::Malloc, 400 * MIB),
        (EventKind::Free, 400 * MIB),
        (EventKind::Free, GIB),
    ];
    assert_eq!(events, expected);
    assert!(trace.warnings.is_empty());
}

#[test]
fn what_is_written_as_csv_is_read_back_as_it_was() {
    for name in ["snapshot.4.pickle", "recorded.csv", "chrome.json"] {
        let mut records = only(&data(name), &LoadOptions::default());
        records.entries.iter_mut().for_each(|entry| entry.stack = u32::MAX);
        let mut csv = Vec::new();
        write_csv(&records, &mut csv).expect("memory suffices");
        let again = only(&csv, &LoadOptions::default());
        assert_eq!(
            (&again.entries, &again.streams),
            (&records.entries, &records.streams),
            "{name}"
        );
    }
}

#[test]
fn each_format_knows_its_own_files_and_no_other() {
    let files = [
        ("pickle", "snapshot.4.pickle"),
        ("pickle", "snapshot.2.pickle"),
        ("json", "snapshot.json"),
        ("chrome", "chrome.json"),
        ("csv", "recorded.csv"),
        ("csv", "by_hand.csv"),
    ];
    for (format, name) in files {
        assert_eq!(TraceFormat::detect(&data(name)).expect("known").name, format, "{name}");
    }
    for unknown in [&b"<!DOCTYPE html>"[..], b"{\"a\": 1}", b"\0\0\0", b"hello"] {
        let error = TraceFormat::detect(unknown).expect_err("no trace").to_string();
        assert!(
            error.contains("formats are: pickle, json, chrome, rmm, minimalloc, csv"),
            "{error}"
        );
    }
}

/// They speak of segments and of memory that ran out.
#[test]
fn what_gmlake_wrote_is_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, picture, answer) = (file("a.html"), file("a.svg"), file("a.json"));
    let job = "tests/data/cases/oom/mempool.pickle";
    for command in [
        &["report", job, "--out", &page][..],
        &["plot", job, "--chart", "map", "--out", &picture],
        &["inspect", job, "--export-json", &answer],
    ] {
        gmlake_sim().args(command).assert().success();
    }
    for (written, what) in
        [(page, "gmlake wrote"), (picture, "a picture"), (answer, "gmlake wrote")]
    {
        gmlake_sim().args(["compare", &written]).assert().code(2).stderr(contains(what));
    }
}

#[test]
fn a_bare_list_of_segments_is_a_state_without_events() {
    let list = br#"[{"device": 0, "address": 4096, "total_size": 1024, "stream": 0, "segment_type":
        "large", "blocks": [{"size": 512, "state": "inactive"}, {"size": 512, "state":
        "active_allocated", "history": [{"addr": 4608, "real_size": 500}]}]}]"#;
    let records = only(list, &LoadOptions::default());
    let blocks = &records.segments[0].blocks;
    assert_eq!((blocks[1].address, blocks[1].requested), (4608, 500));
    let path = Path::new("a.json");
    let chosen = choose_device(vec![records.clone()], None, path).expect("a state is enough");
    assert_eq!(chosen.segments, records.segments);
    let nothing = Records { segments: Vec::new(), ..records };
    let error = choose_device(vec![nothing], None, path).expect_err("no events");
    assert!(error.to_string().starts_with("a.json: no events: recording was never"), "{error}");
}

#[test]
fn devices_are_chosen_or_listed() {
    let one = only(&data("snapshot.4.pickle"), &LoadOptions::default());
    let (path, other) = (Path::new("x"), Records { device: 3, ..one.clone() });
    assert_eq!(choose_device(vec![one.clone()], None, path).map(|r| r.device), Ok(1));
    let both = || vec![one.clone(), other.clone()];
    assert_eq!(choose_device(both(), Some(3), path).map(|r| r.device), Ok(3));
    for (wanted, text) in [(None, "several devices"), (Some(0), "no events of device 0")] {
        let error = choose_device(both(), wanted, path).map(|r| r.device).expect_err("unclear");
        let error = error.to_string();
        assert!(error.contains(text), "{error}");
        assert!(error.contains("device 1 (10 entries), device 3 (10 entries)"), "{error}");
    }
}

#[test]
fn a_file_is_read_by_its_path() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/snapshot.4.pickle");
    let from_file = load(&path, &LoadOptions::default()).expect("a good file");
    let allocs = from_file[0].entries.iter().filter(|e| e.action == Action::Alloc).count();
    assert_eq!(allocs, 3);
}
