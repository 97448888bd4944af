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
fn a_card_that_is_named_twice_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = job(folder.path(), "job.csv", 64, 10);
    let plan = |cards: &str| {
        let cards = ["--allocators", "native", "--cards", cards];
        exported("plan", &path, &cards)["jobs"][0]["ranks"][0]["targets"].clone()
    };
    assert_eq!(plan("T4,t4,T4"), plan("T4"));
    assert_eq!(plan("T4,L4,T4"), plan("T4,L4"));
}

/// A job that needs less at a larger value does not stop fitting at any.
#[test]
fn where_a_need_does_not_grow_no_value_is_the_last_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let limits = |counts: [u64; 3]| {
        let mut plan = gmlake_sim();
        plan.args([
            "plan",
            "--allocators",
            "native",
            "--cards",
            "none",
            "--device-memory",
            "400MiB",
        ]);
        plan.args(["--by", "x=1,2,3"]);
        for (name, count) in ["a", "b", "c"].into_iter().zip(counts) {
            plan.arg(job(folder.path(), &format!("{name}.csv"), 64, count));
        }
        let text = plan.assert().success().get_output().stdout.clone();
        let text = String::from_utf8(text).unwrap();
        text.lines().rfind(|line| line.starts_with("400 MiB ")).unwrap().to_owned()
    };
    assert!(limits([2, 5, 8]).ends_with("2 to 3, near 2"), "{}", limits([2, 5, 8]));
    assert!(limits([7, 8, 9]).ends_with("not at 1"));
    for falls in [[8, 8, 2], [2, 8, 2], [8, 2, 8]] {
        assert!(limits(falls).ends_with(" -"), "{falls:?}: {}", limits(falls));
    }
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

/// The standard output of a command in a folder, with its exit code.
fn told(folder: &Path, args: &[&str]) -> (String, Option<i32>) {
    let run = gmlake_sim().current_dir(folder).args(args).output().unwrap();
    (String::from_utf8(run.stdout).unwrap(), run.status.code())
}

/// Two ranks exchange data by NCCL, which takes more of a card than a rank alone.
#[test]
fn every_command_leaves_room_on_a_card_for_the_ranks_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, end: &str| {
        let text = format!("event,id,size,stream\nalloc,a,13.1GiB,0\n{end},a,,\n");
        std::fs::write(folder.join(name), text).unwrap();
    };
    std::fs::create_dir(folder.join("job")).unwrap();
    ["job/j.r0.csv", "job/j.r1.csv", "solo.csv"].iter().for_each(|name| write(name, "free"));
    let files = ["job/j.r0.csv", "job/j.r1.csv"];
    assert_eq!(told(folder, &["fits", "solo.csv", "--card", "T4"]).1, Some(0));
    assert_eq!(told(folder, &["fits", "job", "--card", "T4"]).1, Some(1));
    let smallest = ["--cards", "smallest", "--allocators", "caching"];
    for files in [&["job"][..], &files] {
        let (text, _) = told(folder, &[&["compare"], files, &smallest].concat());
        assert!(text.contains("V100 16GB") && !text.contains("T4"), "{text}");
    }
    let all = ["plan", "solo.csv", files[0], files[1], "--allocators", "caching"];
    let (text, _) = told(folder, &all);
    for (job, card) in [("solo", "T4"), ("j.r*", "V100 16GB")] {
        let sentence = format!("The smallest of these devices that runs {job}: {card}: caching.");
        assert!(text.contains(&sentence), "{text}");
    }
    told(folder, &["fleet", "job", "--out", "tables"]);
    let (text, _) = told(folder, &["fleet", "report", "tables"]);
    assert!(text.contains("V100 16GB") && !text.contains("T4"), "{text}");
}

/// PyTorch's limit is a share of the whole card; what others hold of it is outside of that.
#[test]
fn a_memory_fraction_is_a_share_of_the_whole_card() {
    let folder = tempfile::tempdir().unwrap();
    // Half of a T4's 14.56 GiB is 7.28 GiB; half of what is left for the job would be 6.8.
    for (size, code) in [("7GiB", 0), ("7.4GiB", 1)] {
        let text = format!("event,id,size,stream\nalloc,a,{size},0\nfree,a,,\n");
        std::fs::write(folder.path().join("job.csv"), text).unwrap();
        let half = ["--alloc-conf", "per_process_memory_fraction:0.5"];
        let fits = ["fits", "job.csv", "--card", "T4"];
        assert_eq!(
            told(folder.path(), &[fits, ["--allocator", "caching", half[0], half[1]]].concat()).1,
            Some(code),
            "{size}"
        );
    }
}

/// Expandable segments were recorded: what the job ran with is what is asked about.
#[test]
fn fits_asks_about_the_allocator_that_was_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = "traces/opt-1.3b-LR.expandable.pickle.xz";
    let fits = ["fits", file, "--card", "A100-40GB"];
    let (text, code) = told(root, &fits);
    assert!(code == Some(0) && text.contains("with expandable: "), "{text}");
    let (text, code) = told(root, &[&fits[..], &["--allocator", "caching"]].concat());
    assert!(code == Some(1) && text.contains("with caching: "), "{text}");
}
