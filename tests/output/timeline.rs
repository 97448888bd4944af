//! Memory over time as CSV: every run has its peaks in it.

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

fn gmlake_sim() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
}

/// What a request that failed would have held is held for no longer than an event.
#[test]
fn the_timeline_has_the_peak_of_a_request_that_failed_in_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let all = gmlake::allocator::ALL.iter().map(|spec| spec.name).collect::<Vec<_>>().join(",");
    for case in ["oom/mempool.pickle", "oom/free-yet-refused.pickle"] {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases").join(case);
        let mut run = gmlake_sim();
        run.arg("compare").arg(case).args(["--allocators", &all, "--device-memory", "unlimited"]);
        run.arg("--export-json").arg(path("a.json")).arg("--export-timeline").arg(path("t.csv"));
        run.assert().success();
        let document = std::fs::read(path("a.json")).unwrap();
        let document: Value = serde_json::from_slice(&document).unwrap();
        for run in document["result"]["runs"].as_array().unwrap() {
            peaks_over_time(&path("t.csv"), run);
        }
    }
}

/// The highest value of a column of a run's timeline.
pub(crate) fn most_over_time(timeline: &Path, run: &Value, column: &str) -> Option<u64> {
    let mut csv = csv::Reader::from_path(timeline).unwrap();
    let names = csv.headers().unwrap().clone();
    let place = |name: &str| names.iter().position(|own| own == name).unwrap();
    let rows = csv.records().map(Result::unwrap);
    let own = rows.filter(|row| row[place("allocator")] == *run["allocator"].as_str().unwrap());
    own.map(|row| row[place(column)].parse().unwrap()).max()
}

/// The timeline of a run has its peaks, and covers its length without gaps.
pub(crate) fn peaks_over_time(timeline: &Path, run: &Value) {
    let mut csv = csv::Reader::from_path(timeline).unwrap();
    let names = csv.headers().unwrap().clone();
    let place = |name: &str| names.iter().position(|own| own == name).unwrap();
    let rows: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
    let allocator = run["allocator"].as_str().unwrap();
    let own: Vec<_> = rows.iter().filter(|row| &row[place("allocator")] == allocator).collect();
    let number = |row: &csv::StringRecord, name: &str| row[place(name)].parse::<u64>().unwrap();
    let most = |name: &str| most_over_time(timeline, run, name);
    assert_eq!(most("reserved_high_bytes"), run["reserved_peak_bytes"].as_u64(), "{run}");
    assert_eq!(most("active_high_bytes"), run["active_peak_bytes"].as_u64(), "{run}");
    assert!(own.iter().all(|row| &row[place("unit")] == "us"));
    assert_eq!(number(own[0], "start"), 0);
    assert!(own.windows(2).all(|pair| number(pair[0], "end") == number(pair[1], "start")));
    for row in own {
        assert!(number(row, "reserved_low_bytes") <= number(row, "reserved_high_bytes"));
        assert!(number(row, "active_high_bytes") <= number(row, "reserved_high_bytes"));
    }
}

#[test]
fn memory_over_time_goes_to_standard_output_and_counts_events_without_times() {
    let run = ["compare", "tests/data/by_hand.csv", "--export-timeline", "-"];
    let text = gmlake_sim().args(run).assert().success();
    let mut csv = csv::Reader::from_reader(&text.get_output().stdout[..]);
    let rows: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| &row[4] == "event"), "{rows:?}");
}
