//! Tuning: only what helps is recommended.

use crate::common::cli::{gmlake_sim, output};
use predicates::prelude::*;
use predicates::str::contains;

/// Growing and shrinking blocks: PyTorch's defaults reserve 218 MiB, and no setting less.
const CYCLES: &str = "tests/data/cases/tune/cycles.pickle";
/// Expandable segments reserve 602 MiB of 642.
const JOB: &str = "tests/data/cases/stacks/python.pickle";

#[test]
fn where_nothing_helps_there_is_no_command_and_the_answer_is_no() {
    gmlake_sim()
        .args(["tune", CYCLES])
        .assert()
        .code(1)
        .stdout(contains("No setting helps: PyTorch's defaults are the best here."))
        .stdout(contains("export ").not().and(contains("unset").not()));
}

/// What came before may have left a cache that a setting avoids: recorded are 642 MiB, the defaults begin without it.
#[test]
fn where_the_beginning_is_missing_nobody_is_told_that_nothing_helps() {
    let run =
        gmlake_sim().args(["tune", "tests/data/cases/truncated/ring.pickle"]).assert().code(3);
    let text = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(
        text.contains("No setting is known to help: PyTorch's defaults are the best for"),
        "{text}"
    );
    let reserved = |row: &str| {
        let line = text.lines().find(|line| line.starts_with(row)).unwrap();
        line.split('~').nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(
        [reserved("as recorded"), reserved("PyTorch's defaults  ")],
        ["642", "574"],
        "{text}"
    );
}

#[test]
fn a_job_that_died_in_its_first_step_gets_no_setting() {
    let died = gmlake_sim().args(["tune", "tests/data/cases/oom/mempool.pickle"]).assert().code(3);
    died.stdout(contains("export ").not());
}

#[test]
fn where_nothing_is_known_the_files_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let mut run = gmlake_sim();
    run.args(["tune", "tests/data/cases/oom/mempool.pickle", "--json", "--export-json"]).arg(&file);
    let printed = run.assert().code(3).get_output().stdout.clone();
    assert_eq!(printed, std::fs::read(file).unwrap());
    let document: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let found = &document["result"][0];
    assert_eq!(found["verdict"], "unknown");
    assert!(found["reason"].as_str().unwrap().contains("no setting can be recommended"), "{found}");
}

#[test]
fn the_command_has_the_name_that_the_version_reads() {
    for (version, name) in [("2.9", "PYTORCH_CUDA_ALLOC_CONF"), ("2.11", "PYTORCH_ALLOC_CONF")] {
        let text = output(&["tune", JOB, "--torch-version", version]);
        assert!(text.contains(&format!("\nexport {name}=")), "{version}: {text}");
    }
}

#[test]
fn no_setting_that_was_tried_beats_what_is_recommended() {
    let found = gmlake_sim().args(["tune", JOB, CYCLES, "--export-json", "-"]).output().unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let costs = |tried: &serde_json::Value| {
        ["reserved_peak_bytes", "alloc_retries", "predicted_driver_ns"]
            .map(|name| tried[name].as_u64().unwrap())
    };
    // Options in brackets belong to one list.
    let options = |tried: &serde_json::Value| {
        let conf = tried["conf"].as_str().unwrap();
        conf.split(['[', ']']).step_by(2).map(|text| text.matches(':').count()).sum::<usize>()
    };
    for tuning in document["result"].as_array().unwrap() {
        let best = costs(&tuning["best"]);
        assert!(best[0] <= costs(&tuning["default"])[0]);
        let is_recommended = tuning["best"]["conf"] != "";
        for tried in tuning["tried"].as_array().unwrap().iter().filter(|_| is_recommended) {
            let other = costs(tried);
            let beats = other != best && other.iter().zip(best).all(|(other, best)| *other <= best);
            let is_as_simple = options(tried) <= options(&tuning["best"]);
            let is_choice = tried["oom_count"] == 0 && (is_as_simple || other[1] < best[1]);
            assert!(!(beats && is_choice), "{} beats {}", tried, tuning["best"]);
            // What more options save is less than they are worth.
            let more = options(tried).saturating_sub(options(&tuning["best"])) as f64;
            let saved = 1.0 - other[0] as f64 / best[0] as f64;
            assert!(!beats || saved < 0.04 * more, "{} is worth it: {}", tried, tuning["best"]);
        }
    }
}
