//! Pinned memory: what PyTorch 2.15 pinned, done again and predicted, and the figures of public reports.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use gmlake::alloc_conf::{PinnedConf, TorchVersion};
use gmlake::pinned::{PinnedComparison, PinnedRecording, PinnedRow, tunings};
use gmlake::report::Look;
use gmlake::trace::{CoverageKind, LoadOptions};
use gmlake::units::{GIB, MIB};
use gmlake_allocators::pinned::Pinned;
use proptest::prelude::*;

use crate::common::cli::gmlake_sim;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/pinned").join(name)
}

fn open(name: &str) -> PinnedRecording {
    PinnedRecording::open(&example(name), &LoadOptions::default()).unwrap()
}

fn row<'c>(comparison: &'c PinnedComparison, settings: &str) -> &'c PinnedRow {
    comparison.rows.iter().find(|row| row.settings == settings).unwrap()
}

#[test]
fn every_recorded_decision_is_made_again() {
    for (name, pins) in [("offload.pickle.xz", 1611), ("offload-exact.pickle.xz", 3192)] {
        let found = open(name).verify().unwrap();
        assert_eq!((found.differences, found.unseen, found.foreign), (0, 0, 0), "{name}");
        assert_eq!((found.requests, found.pins), (3192, pins), "{name}");
    }
}

#[test]
fn exact_sizes_tell_what_pytorch_pins_by_default() {
    let rounded = open("offload.pickle.xz").compare(None).unwrap();
    let exact = open("offload-exact.pickle.xz").compare(None).unwrap();
    let (recorded, predicted) = (row(&rounded, "recorded"), row(&exact, "default"));
    assert_eq!(recorded.pinned_peak_bytes, predicted.pinned_peak_bytes);
    assert_eq!((recorded.pins, recorded.unpins), (predicted.pins, predicted.unpins));
    // And what was needed lies between the bounds.
    let least = rounded.needed_peak_least_bytes.unwrap();
    assert!((least..=rounded.needed_peak_bytes).contains(&exact.needed_peak_bytes));
    assert_eq!(rounded.rows.len(), 1, "what is rounded is not rounded again");
    assert!(exact.needed_peak_least_bytes.is_none());
    let at_most = exact.needed_peak_bytes + exact.needed_peak_bytes / 100;
    for one in &exact.rows[2..] {
        assert!(one.pinned_peak_bytes <= at_most, "{one:?}");
    }
}

#[test]
fn a_rank_of_vllm_pins_96_gib_for_50() {
    let found = open("kv-offload.csv").compare(None).unwrap();
    assert_eq!(found.needed_peak_bytes, 24 * 2053 * 1_089_536);
    assert_eq!(row(&found, "default").pinned_peak_bytes, 96 * GIB);
    for setting in ["pinned_max_round_threshold_mb:1", "gmlake.enable(host=True)"] {
        let pinned = row(&found, setting).pinned_peak_bytes;
        assert!(pinned * 100 <= found.needed_peak_bytes * 101, "{setting}: {pinned}");
    }
    assert!(found.rows.iter().all(|row| row.pins == 24));
}

#[test]
fn the_best_setting_pins_what_was_needed_in_the_fewest_calls() {
    for name in ["offload-exact.pickle.xz", "kv-offload.csv"] {
        let tuned = open(name).tune().unwrap();
        let (best, default) = (tuned.best().unwrap(), tuned.default_row().unwrap());
        assert_eq!(best.pins + best.unpins, default.pins + default.unpins, "{name}");
        assert!(best.pinned_peak_bytes * 100 <= tuned.needed_peak_bytes * 101, "{name}: {best:?}");
        for row in tuned.rows.iter().filter(|row| row.since.is_some()) {
            let is_near = row.pinned_peak_bytes * 100 <= best.pinned_peak_bytes * 101;
            assert!(
                !is_near || row.pins + row.unpins >= best.pins + best.unpins,
                "{name}: {row:?} is better than {best:?}"
            );
            assert!(row.pinned_peak_bytes * 101 >= best.pinned_peak_bytes * 100, "{name}: {row:?}");
        }
    }
    // Powers of two need no setting, and what is rounded tells of none.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("even.csv");
    std::fs::write(&file, "event,id,size\nalloc,a,8388608\nalloc,b,4096\n").unwrap();
    let even = PinnedRecording::open(&file, &LoadOptions::default()).unwrap().tune().unwrap();
    assert_eq!(even.best(), None);
    let rounded = open("offload.pickle.xz").tune().unwrap();
    assert_eq!((rounded.best(), rounded.default_row()), (None, None));
}

/// A setting that a version lacks, or that is not safe in it, is no advice for that version.
#[test]
fn each_version_is_told_what_it_has() {
    let tuned = |minor| {
        let torch_version = Some(TorchVersion { major: 2, minor });
        let options = LoadOptions { torch_version, ..LoadOptions::default() };
        PinnedRecording::open(&example("kv-offload.csv"), &options).unwrap().tune().unwrap()
    };
    for (minor, best) in [
        (6, None),
        (12, None),
        (13, Some("pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:1")),
        (14, Some("pinned_max_round_threshold_mb:1")),
    ] {
        let found = tuned(minor);
        assert_eq!(found.best().map(|row| row.settings.as_str()), best, "2.{minor}");
        let has_own = found.rows.iter().any(|row| row.settings == "gmlake.enable(host=True)");
        assert_eq!(has_own, minor >= 9, "2.{minor}");
        let text = tunings(&[found], Look::default());
        let is_later =
            text.contains(&format!("No setting of PyTorch 2.{minor} pins less. From 2.1"));
        assert_eq!(is_later, best.is_none(), "{text}");
        assert_eq!(text.contains("export PYTORCH_ALLOC_CONF="), best.is_some(), "{text}");
    }
}

/// wtdcode/vllm-backport#67 measured 4.008, 2.000 and 1.000 GiB for them.
#[test]
fn experts_that_are_offloaded_take_1_78_times_their_size() {
    let sizes = [2304, 1152, 576].map(|mib| mib * MIB);
    let pinned = |mut host: Pinned| {
        for bytes in sizes {
            let _ = host.alloc(bytes);
        }
        host.driver().1.peak as u64
    };
    let default = pinned(Pinned::new(PinnedConf::default(), TorchVersion::NEWEST));
    assert_eq!(default, (4 + 2 + 1) * GIB);
    assert_eq!(default * 100 / sizes.iter().sum::<u64>(), 177);
}

fn snapshot(entries: &str) -> Result<PinnedRecording, gmlake::pinned::PinnedError> {
    read(&format!(r#"{{"segments": [], "device_traces": [[]], "host_traces": [{entries}]}}"#))
}

fn read(text: &str) -> Result<PinnedRecording, gmlake::pinned::PinnedError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot.json");
    std::fs::write(&file, text).unwrap();
    PinnedRecording::open(&file, &LoadOptions::default())
}

/// A job that takes a block of 4 KiB where none is, and else gives it back; and the blocks that it has in the end.
fn job(places: &[u64]) -> (Vec<(&'static str, u64, u64)>, BTreeSet<u64>) {
    let (mut actions, mut live) = (Vec::new(), BTreeSet::new());
    for &place in places {
        let at = (1 + place) << 20;
        let names = match live.insert(at) {
            true => ["segment_alloc", "alloc"],
            false => ["free_completed", "segment_free"],
        };
        if names[0] == "free_completed" {
            live.remove(&at);
        }
        actions.extend(names.map(|name| (name, at, 4096)));
    }
    (actions, live)
}

/// What of a job is recorded, from some entry on, with the state at its end.
fn recorded(actions: &[(&str, u64, u64)], live: &BTreeSet<u64>) -> String {
    let segment = |at: &u64| {
        format!(
            r#"{{"device": -1, "address": {at}, "total_size": 4096, "stream": 0, "blocks":
            [{{"address": {at}, "size": 4096, "requested_size": 4096,
            "state": "active_allocated"}}]}}"#
        )
    };
    let segments = live.iter().map(segment).collect::<Vec<_>>().join(", ");
    let entries = entries(actions);
    format!(r#"{{"host_segments": [{segments}], "host_traces": [{entries}]}}"#)
}

proptest! {
    #[test]
    fn what_a_recording_lacks_is_told(
        places in prop::collection::vec(0_u64..6, 1..20),
        from in 0_usize..40,
        cut in 0_usize..4000,
    ) {
        let (actions, live) = job(&places);
        let from = from.min(actions.len() - 1);
        let mut held = BTreeSet::new();
        for (name, at, _) in &actions[..from] {
            match *name {
                "segment_alloc" => drop(held.insert(*at)),
                "segment_free" => drop(held.remove(at)),
                _ => {}
            }
        }
        let needed = |one: &PinnedRecording| one.compare(None).unwrap().needed_peak_bytes;
        let whole = read(&recorded(&actions, &live)).unwrap();
        prop_assert!(!whole.coverage().is_partial() && whole.notes().is_empty());
        let text = recorded(&actions[from..], &live);
        let late = read(&text).unwrap();
        let compared = late.compare(None).unwrap();
        prop_assert_eq!(compared.coverage.is_partial(), !held.is_empty());
        prop_assert_eq!(compared.unseen_bytes, 4096 * held.len() as u64);
        prop_assert!(compared.needed_peak_bytes <= needed(&whole));
        if let Ok(part) = read(&text[..cut.min(text.len() - 1)]) {
            prop_assert!(part.coverage().is_partial() && needed(&part) <= needed(&whole));
        }
    }
}

/// The state at the end stands before the entries, so that it is there where these are cut off.
#[test]
fn a_snapshot_that_is_cut_off_is_a_bound() {
    let packed = std::fs::File::open(example("offload-exact.pickle.xz")).unwrap();
    let mut bytes = Vec::new();
    liblzma::read::XzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.pickle");
    let mut seen = 0;
    for share in 1..10 {
        std::fs::write(&file, &bytes[..bytes.len() * share / 10]).unwrap();
        match PinnedRecording::open(&file, &LoadOptions::default()) {
            Ok(part) => {
                let found = part.compare(None).unwrap();
                assert_eq!(found.coverage.kind(), CoverageKind::Partial, "{share}");
                assert_eq!(found.unseen_bytes, 0, "{share}");
                seen += 1;
            }
            Err(error) => assert!(error.to_string().contains("copy the file again"), "{error}"),
        }
    }
    assert!((1..9).contains(&seen), "{seen}");
}

#[test]
fn a_recording_that_lacks_something_is_a_bound_and_strictly_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (actions, live) = job(&[0, 1, 2, 1]);
    let text = recorded(&actions, &live);
    let late = recorded(&actions[2..], &live);
    for (name, text, code, why) in [
        ("late.json", &late[..], 0, "started late, when 4 KiB were in use"),
        ("cut.json", &text[..text.len() - 90], 0, "the file ends"),
        ("early.json", &text[..text.find("host_traces").unwrap() - 4], 2, "copy the file again"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
        for command in ["compare", "tune", "verify"] {
            let run = |more: &[&str]| {
                let mut run = gmlake_sim();
                let run = run.current_dir(folder.path()).args([command, "--host", name]).args(more);
                let output = run.output().unwrap();
                let texts = [output.stdout, output.stderr];
                (output.status.code(), texts.map(|text| String::from_utf8(text).unwrap()))
            };
            let (found, [said, warned]) = run(&[]);
            let unknown = if code == 0 && command == "tune" { 3 } else { code };
            assert_eq!(found, Some(unknown), "{command} {name}: {said}{warned}");
            assert!(warned.contains(why), "{command} {name}: {warned}");
            let is_bound = code == 2 || command == "verify" || said.contains("needed at least ");
            assert!(is_bound, "{command} {name}: {said}");
            let (found, [said, refused]) = run(&["--strict"]);
            assert_eq!((found, said.as_str()), (Some(2), ""), "{command} {name}");
            assert!(refused.contains(why), "{command} {name}: {refused}");
        }
    }
}

fn entries(actions: &[(&str, u64, u64)]) -> String {
    let one = |(action, addr, size): &(&str, u64, u64)| {
        format!(r#"{{"action": "{action}", "addr": {addr}, "size": {size}, "stream": 0}}"#)
    };
    actions.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn other_decisions_than_pytorchs_are_differences() {
    let (one, two) = ([("segment_alloc", 64, 8), ("alloc", 64, 8)], ("free_completed", 64, 8));
    let again = [("segment_alloc", 128, 8), ("alloc", 128, 8)];
    let verify = |actions: &[(&str, u64, u64)]| snapshot(&entries(actions)).unwrap().verify();
    let found = verify(&[one[0], one[1], again[0], again[1]]).unwrap();
    assert_eq!((found.requests, found.pins, found.differences), (2, 2, 0));
    let found = verify(&[one[0], one[1], two, again[0], again[1]]).unwrap();
    assert_eq!(found.differences, 1, "there was a free block");
    assert_eq!(found.first_differences[0].recorded, "pins a new block");
    // What the program pins by itself has another size than PyTorch's blocks, and what was there before is not known.
    let found = verify(&[("segment_alloc", 64, 9), ("alloc", 64, 9), ("alloc", 256, 8)]).unwrap();
    assert_eq!((found.foreign, found.unseen, found.differences), (1, 1, 0));
    let freed = [("free_completed", 256, 8), ("segment_free", 256, 8)];
    let found = snapshot(&entries(&freed)).unwrap().compare(None).unwrap();
    assert_eq!((found.unseen_bytes, found.rows[0].unpins, found.rows.len()), (8, 0, 1));
}

#[test]
fn a_file_without_pinned_memory_says_how_it_is_recorded() {
    let error = snapshot("").unwrap_err().to_string();
    assert!(error.contains("record_pinned_host_memory=True"), "{error}");
    let gpu = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/streams.pickle.xz");
    let error = PinnedRecording::open(&gpu, &LoadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("record_pinned_host_memory=True"), "{error}");
    let all = [64, 1 << 60, 1 << 61].map(|at| ("alloc", at, 1 << 59));
    let error = snapshot(&entries(&all)).unwrap_err().to_string();
    assert!(error.contains("expected at most"), "{error}");
    let error = open("kv-offload.csv").verify().unwrap_err().to_string();
    assert!(error.contains("no decisions"), "{error}");
}
