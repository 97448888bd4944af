//! Cards: what `plan` and `compare` say of them, and what they leave open.

use std::path::Path;

use predicates::str::contains;

use crate::common::cli::gmlake_sim;
use crate::planning_cli::{exported, job, runs_of};

#[test]
fn a_sentence_on_cards_names_what_was_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let path = job(folder.path(), "job.csv", 64, 10);
    let plan = |more: &[&str]| {
        let run = gmlake_sim().arg("plan").arg(&path).args(more).assert().success();
        String::from_utf8(run.get_output().stdout.clone()).unwrap()
    };
    let native = plan(&["--allocators", "native", "--cards", "T4"]);
    assert!(
        native.ends_with("The smallest of these devices that runs job: T4: native.\n"),
        "{native}"
    );
    let bound = plan(&["--allocators", "bound", "--cards", "T4"]);
    assert!(!bound.contains("The smallest of these devices"), "{bound}");
    let small = ["--cards", "none", "--device-memory", "20MiB", "--allocators"];
    let none = plan(&[&small[..], &["caching,lake"]].concat());
    assert!(none.ends_with("None of these devices runs job with caching, lake.\n"), "{none}");
}

#[test]
fn compare_names_the_cards_that_plan_finds() {
    let folder = tempfile::tempdir().unwrap();
    let path = job(folder.path(), "job.csv", 64, 500);
    let common = ["--allocators", "caching,lake"];
    let plan = exported("plan", &path, &common);
    let rank = &plan["jobs"][0]["ranks"][0];
    let targets = rank["targets"].as_array().unwrap();
    let tried =
        |cards| runs_of(&exported("compare", &path, &[&common[..], &["--cards", cards]].concat()));
    let needs = rank["needs"].as_array().unwrap().iter();
    for (need, (run, first)) in needs.zip(tried("all").iter().zip(&tried("smallest"))) {
        let verdicts = need["verdicts"].as_array().unwrap();
        let does = |index: usize| verdicts[index]["trial"]["shortage"].is_null();
        let mut fits: Vec<_> = (0..targets.len()).filter(|&index| does(index)).collect();
        fits.sort_by_key(|&index| targets[index]["capacity_bytes"].as_u64());
        let names: Vec<_> = fits.into_iter().map(|index| &targets[index]["name"]).collect();
        assert_eq!(run["allocator"], need["allocator"]);
        assert_eq!(run["cards"].as_array().unwrap().iter().collect::<Vec<_>>(), names);
        assert!(names.len() < targets.len() && !names.is_empty());
        assert_eq!(first["cards"], serde_json::json!([names[0]]));
    }
    let unlimited = ["--cards", "RTX-5090,A100-40GB", "--device-memory", "unlimited"];
    let text = gmlake_sim().arg("compare").arg(&path).args(common).args(unlimited).assert();
    text.success().stdout(contains("\ncaching runs on A100 40GB\n"));
}

#[test]
fn compare_recommends_no_card_from_a_part_of_a_job() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/truncated");
    let compare = |path: &Path| {
        let mut run = gmlake_sim();
        run.arg("compare").arg(path).args(["--allocators", "caching", "--cards", "smallest"]);
        run.assert().success()
    };
    let unknown = "\ncaching: the card for the whole job is unknown; the recorded part runs on ";
    for case in ["history-stopped", "state-only", "ring"] {
        compare(&cases.join(case).with_extension("pickle")).stdout(contains(unknown));
    }
    // Each rank of a job runs on the card, and all of them are there.
    let folder = tempfile::tempdir().unwrap();
    job(folder.path(), "job.r0.csv", 64, 10);
    job(folder.path(), "job.r1.csv", 64, 500);
    compare(folder.path()).stdout(contains("\n\ncaching runs on A100 40GB\n"));
    job(folder.path(), "job.r3.csv", 64, 10);
    compare(folder.path()).stdout(contains(format!("\n{unknown}A100 40GB\n")));
}
