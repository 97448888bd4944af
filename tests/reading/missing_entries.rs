//! Recordings that lack some of their entries: no figure is exact and wrong, and no bound lies above the truth.

use std::path::Path;

use crate::common::cli::gmlake_sim;
use crate::common::recordings;
use gmlake::sim::{self, Memory, Opened, Setup, choose, open_bytes};
use gmlake::trace::{
    Action, Bounded, Certainty, Entry, Gap, LoadOptions, Records, load, peak_live_bytes,
    write_snapshot,
};

fn records(name: &str) -> Records {
    load(&recordings::all()[name], &LoadOptions::default()).unwrap().remove(0)
}

fn snapshot(records: &Records) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_snapshot(records, &mut bytes).unwrap();
    bytes
}

fn opened(bytes: &[u8]) -> Opened {
    open_bytes(Path::new("-"), bytes, &LoadOptions::default()).unwrap()
}

/// What is said of a recording: bytes that were live, what PyTorch held, and what two allocators would.
fn figures(opened: &Opened) -> Vec<(String, Bounded)> {
    let certainty = opened.coverage.of_what_was_seen();
    let live = Bounded { bytes: peak_live_bytes(&opened.trace), certainty };
    let setup = Setup { memory: Memory::Unlimited, ..Setup::default() };
    let choices = choose(&["caching".to_owned(), "bound".to_owned()], &[]).unwrap();
    let runs = choices.iter().map(|choice| sim::run(opened, choice, &setup).unwrap());
    let rows = opened.recorded.clone().into_iter().chain(runs);
    let rows = rows.map(|run| (run.allocator.clone(), run.reserved()));
    [("live".to_owned(), live)].into_iter().chain(rows).collect()
}

/// The figures of a part, beside those of the whole.
fn check(what: &str, part: &Opened, whole: &[(String, Bounded)]) {
    for (name, found) in figures(part) {
        let (_, truth) = whole.iter().find(|(other, _)| *other == name).unwrap();
        let holds = match found.certainty {
            Certainty::Exact => found.bytes == truth.bytes,
            Certainty::AtLeast => found.bytes <= truth.bytes,
            Certainty::About => true,
        };
        assert!(holds, "{what}: {name} is {found}, in truth {truth}: {:?}", part.coverage);
    }
}

/// Kinds that `skip_actions` may leave out together.
const KINDS: [&[Action]; 7] = [
    &[Action::Alloc],
    &[Action::FreeRequested],
    &[Action::FreeCompleted],
    &[Action::FreeRequested, Action::FreeCompleted],
    &[Action::SegmentAlloc],
    &[Action::SegmentFree],
    &[Action::SegmentAlloc, Action::SegmentFree],
];

/// Without all entries of a kind, and without each third or seventh of them.
#[test]
fn no_figure_of_a_filtered_recording_is_exact_and_wrong() {
    for name in ["streams", "graphs", "pools"] {
        let records = records(name);
        let whole = figures(&opened(&snapshot(&records)));
        for (kinds, nth) in KINDS.into_iter().flat_map(|kinds| [1, 3, 7].map(|nth| (kinds, nth))) {
            let mut seen = 0;
            let mut part = records.clone();
            part.entries.retain(|entry| {
                let is_one = kinds.contains(&entry.action);
                seen += usize::from(is_one);
                !is_one || seen % nth > 0
            });
            let what = format!("{name} without each {nth}th of {kinds:?}");
            let filtered = opened(&snapshot(&part));
            assert!(nth > 1 || filtered.coverage.is_partial(), "{what} is complete");
            check(&what, &filtered, &whole);
        }
    }
}

/// A stretch in the middle is lost, with the frees in it.
#[test]
fn no_figure_of_a_recording_with_a_hole_is_exact_and_wrong() {
    let records = records("streams");
    let whole = figures(&opened(&snapshot(&records)));
    let (entries, length) = (records.entries.len(), records.entries.len() / 4);
    for from in (entries / 8..entries - length).step_by(entries / 8) {
        let mut part = records.clone();
        part.entries.drain(from..from + length);
        let holed = opened(&snapshot(&part));
        assert!(holed.coverage.is_partial(), "{from}");
        check(&format!("a hole from entry {from}"), &holed, &whole);
    }
}

#[test]
fn without_frees_no_device_is_excluded() {
    let mut records = records("streams");
    let frees = [Action::FreeRequested, Action::FreeCompleted];
    records.entries.retain(|entry| !frees.contains(&entry.action));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pickle");
    std::fs::write(&file, snapshot(&records)).unwrap();
    let said = |arguments: &[&str]| {
        let output = gmlake_sim().args(arguments).arg(&file).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), text)
    };
    for memory in ["12GiB", "100GiB"] {
        let (code, text) = said(&["fits", "--device-memory", memory]);
        assert_eq!(code, 3, "{text}");
        assert!(!text.contains("at least"), "{text}");
    }
    let (_, text) = said(&["compare", "--allocators", "bound"]);
    assert!(text.contains("~ 23.66 GiB") && text.contains("about 23.66 GiB are needed"), "{text}");
    assert!(!text.contains(">=") && !text.contains("no allocator can go below"), "{text}");
}

/// The entries as a list in JSON, without the final state.
fn alone(records: &Records) -> Vec<u8> {
    let entry = |entry: &Entry| {
        let Entry { addr, size, time_us, .. } = *entry;
        let place = if entry.action == Action::Oom { "device_free" } else { "addr" };
        let (action, stream) = (entry.action.name(), records.streams[usize::from(entry.stream.0)]);
        format!(
            r#"{{"action": "{action}", "{place}": {addr}, "size": {size}, "stream": {stream},
            "time_us": {time_us}}}"#
        )
    };
    let entries: Vec<String> = records.entries.iter().map(entry).collect();
    format!("[{}]", entries.join(",")).into_bytes()
}

/// Segment entries tell what PyTorch held and when it emptied its cache, also without the final state.
#[test]
fn entries_alone_say_what_pytorch_held_or_that_they_do_not() {
    for (name, is_told) in [("streams", true), ("pools", true), ("graphs", false)] {
        let records = records(name);
        let whole = figures(&opened(&snapshot(&records)));
        let entries = opened(&alone(&records));
        assert_eq!(entries.coverage.is_partial(), !is_told, "{name}: {:?}", entries.coverage);
        assert_eq!(entries.coverage.gaps().contains(&Gap::NoFinalState), !is_told, "{name}");
        assert_eq!(entries.recorded.is_some(), is_told, "{name}");
        check(name, &entries, &whole);
    }
}

/// A trace of PyTorch's profiler: the time, the bytes, and the total after it.
fn profiled(events: &[(u64, i64, u64)]) -> Opened {
    let event = |&(ts, bytes, total): &(u64, i64, u64)| {
        let addr = bytes.unsigned_abs() << 30;
        let args = format!(
            r#"{{"Device Type": 1, "Device Id": 0, "Addr": {addr}, "Bytes": {bytes},
            "Total Allocated": {total}, "Total Reserved": 4096}}"#
        );
        format!(r#"{{"name": "[memory]", "ph": "i", "ts": {ts}, "args": {args}}}"#)
    };
    let events: Vec<String> = events.iter().map(event).collect();
    opened(format!(r#"{{"traceEvents": [{}]}}"#, events.join(",")).as_bytes())
}

#[test]
fn totals_of_a_profiler_that_its_events_do_not_come_to_make_them_estimates() {
    for (events, certainty) in [
        (&[(1, 512, 512), (2, 1024, 1536), (3, -512, 1024)][..], Certainty::Exact),
        // What happened at one time has no order.
        (&[(1, 512, 512), (2, 1024, 3584), (2, 2048, 2560), (3, -512, 3072)], Certainty::Exact),
        (&[(1, 512, 512), (2, 1024, 3584), (3, -512, 3072)], Certainty::About),
        // 512 bytes were freed in between.
        (&[(1, 512, 512), (2, 1024, 1024), (3, -1024, 0)], Certainty::About),
    ] {
        let opened = profiled(events);
        let found = figures(&opened);
        assert!(found.iter().all(|(_, figure)| figure.certainty == certainty), "{found:?}");
        assert_eq!(opened.coverage.is_partial(), certainty == Certainty::About);
    }
}
