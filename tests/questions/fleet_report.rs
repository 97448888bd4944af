//! `fleet report`: what the tables of many recordings add up to.

use std::fs;
use std::path::Path;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

use crate::fleet::{fleet, gmlake_sim, one_line, put, rows};

#[test]
fn the_report_names_what_is_lost_and_who_is_unlike() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("snapshots"), folder.path().join("out"));
    for rank in 0..5 {
        let name = if rank == 3 { "opt-1.3b-RO" } else { "opt-1.3b-N" };
        put(name, &input.join(format!("opt/rank{rank}.pickle.xz")));
    }
    fs::write(input.join("opt/rank5.pickle"), "no recording").unwrap();
    fs::create_dir_all(input.join("bert")).unwrap();
    fs::write(input.join("bert/rank0.pickle"), "").unwrap();
    fleet(&input, &out).assert().code(2);
    let page = folder.path().join("page.html");
    let mut report = gmlake_sim();
    report.args(["fleet", "report"]).arg(&out).arg("--out").arg(&page);
    report
        .assert()
        .success()
        .stdout(contains("5 ranks in 1 job, ").and(contains("lake would hold")))
        .stdout(contains("OPT").not())
        .stdout(contains("Ranks unlike their peers").and(contains("less in tensors")))
        .stdout(contains("Problems with recordings: 2 cannot be used"));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("data-chart=\"shares\"") && !html.contains("{{"));
    // The one address is the name of a vocabulary, which is not fetched.
    let html = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("src=\""));
    let mut report = gmlake_sim();
    let json = report.args(["fleet", "report", "--json"]).arg(&out).output().unwrap().stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let json = &json["result"];
    let total = |name: &str| {
        let totals = json["totals"].as_array().unwrap();
        totals.iter().find(|total| total["allocator"] == name).unwrap().clone()
    };
    let sum: u64 = rows(&out, "runs")
        .iter()
        .filter(|row| row["allocator"] == "lake")
        .map(|row| row["reserved_peak_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(total("lake")["reserved_bytes"], sum);
    assert_eq!(json["reference"], "recorded");
    assert_eq!(json["unlike"][0]["rank"], 3);
    let mut report = gmlake_sim();
    report.args(["fleet", "report", "--reference", "jemalloc"]).arg(&out);
    report
        .assert()
        .code(2)
        .stderr(one_line("no row \"jemalloc\" to compare with; there are: recorded"));
}

/// A job that is a table of requests.
fn requests(folder: &Path, lines: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("job.csv"), format!("event,id,size,stream\n{lines}")).unwrap();
}

fn report(out: &Path, arguments: &[&str]) -> String {
    let output = gmlake_sim().args(["fleet", "report"]).arg(out).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A cache of 1 GiB is in the way of a request that has no room beside it.
#[test]
fn a_card_that_holds_a_peak_is_enough_and_a_smaller_one_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in"), folder.path().join("out"));
    requests(&input, "alloc,a,1GiB,0\nfree,a,1GiB,0\nalloc,b,2GiB,0\n");
    let memory = "device-memory=unlimited,2.5GiB,1.5GiB";
    fleet(&input, &out).args(["--allocators", "caching", "--set", memory]).assert().success();
    // What is left of a T4's 14.56 GiB is more than 3 GiB, 2.75 GiB, less than 2.5 GiB, less than 2 GiB.
    let (t4, none) = (&[("T4", 1)][..], &[("none", 1)][..]);
    for (reserve, unlimited, flushed) in
        [("11GiB", t4, t4), ("11.8GiB", &[], t4), ("12.2GiB", &[], &[]), ("13GiB", none, none)]
    {
        let json = report(&out, &["--json", "--cards", "T4", "--reserve", reserve]);
        let json: Value = serde_json::from_str(&json).unwrap();
        let refused = if reserve == "13GiB" { none } else { &[] };
        for (at, expected) in [unlimited, flushed, refused].into_iter().enumerate() {
            let total = &json["result"]["totals"][at];
            let cards = total["enough_cards"].as_array().unwrap().iter();
            let cards: Vec<(&str, u64)> = cards
                .map(|card| {
                    (card["card"].as_str().unwrap_or("none"), card["count"].as_u64().unwrap())
                })
                .collect();
            assert_eq!(cards, expected, "{reserve}: {total}");
            assert_eq!(total["unknown_cards"], u64::from(cards.is_empty()), "{reserve}: {total}");
        }
    }
    let text = report(&out, &["--cards", "T4"]);
    assert!(text.contains("; a smaller one may do, which 'gmlake-sim plan' finds out"), "{text}");
    assert!(
        text.contains(", ran out of memory or held") && !text.contains("none of them"),
        "{text}"
    );
}

#[test]
fn the_first_sentence_says_what_was_compared_and_how_well_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in");
    put("streams", &input.join("rank0.pickle.xz"));
    let first = |more: &[&str], reference: &[&str]| {
        let out = folder.path().join(more.concat().replace('/', ""));
        fleet(&input, &out).args(more).assert().success();
        report(&out, reference).split(". ").next().unwrap().to_owned()
    };
    let alone = "PyTorch reserved 10.27 GiB at the peaks of all ranks";
    assert_eq!(first(&["--allocators", "caching"], &[]), alone);
    let both = ["--allocators", "caching,lake"];
    let least = "lake reserves 10.02 GiB at the peaks of all ranks; caching needs no less";
    assert_eq!(first(&both, &["--reference", "lake"]), least);
    let all = first(&["--allocators", "caching,expandable,lake"], &["--reference", "lake"]);
    assert!(all.ends_with("; none of caching, expandable needs less"), "{all}");
    // With less memory less is held, which saves nothing.
    let short = ["--allocators", "caching", "--set", "device-memory=4GiB,unlimited"];
    let same = format!("{alone}; caching device-memory=unlimited needs no less");
    assert_eq!(first(&short, &[]), same);
    let cut = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/truncated/ring.pickle");
    let out = folder.path().join("cut");
    fleet(&cut, &out).assert().success();
    let estimate = report(&out, &["--reference", "lake"]);
    assert!(estimate.starts_with("lake reserves about "), "{estimate}");
    assert!(report(&out, &[]).contains("PyTorch reserved at least "));
}

#[test]
fn no_page_takes_the_place_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in"), folder.path().join("out"));
    requests(&input, "alloc,a,1GiB,0\n");
    fleet(&input, &out).assert().success();
    let pattern = out.join("runs/*/*/part-*.parquet").display().to_string();
    let part = glob::glob(&pattern).unwrap().next().unwrap().unwrap();
    for target in [out.join("fleet.json"), part] {
        let before = fs::read(&target).unwrap();
        let mut report = gmlake_sim();
        report.args(["fleet", "report"]).arg(&out).arg("--out").arg(&target);
        report.assert().code(2).stderr(one_line("is read, and would be overwritten"));
        assert_eq!(fs::read(&target).unwrap(), before);
    }
    report(&out, &["--out", &out.join("fleet.html").display().to_string()]);
    fleet(&input, &out).assert().success().stdout(contains("1 recording, 1 of them done before"));
}

#[test]
fn a_rank_that_leaves_requests_out_saves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in"), folder.path().join("out"));
    for (name, count) in [("small", 4), ("large", 40)] {
        let blocks = (0..count).map(|block| format!("alloc,b{block},64MiB,0\n"));
        requests(&input.join(name), &blocks.collect::<String>());
    }
    let memory = "device-memory=unlimited,1GiB,8MiB";
    fleet(&input, &out).args(["--allocators", "caching", "--set", memory]).assert().success();
    let mut report = gmlake_sim();
    report.args(["fleet", "report"]).arg(&out);
    let none = r"caching device-memory=8MiB +0 B +100.0 % +- +- +2 ";
    let one = r"caching device-memory=1GiB +1.25 GiB +100.0 % +0 B +0.0 % +2 ";
    report
        .assert()
        .success()
        .stdout(contains("at their peaks; saved: on ranks that serve the same requests"))
        .stdout(predicate::str::is_match(none).unwrap())
        .stdout(predicate::str::is_match(one).unwrap());
}

/// The numbers say that a rank has no file; a file that cannot be read is one of a rank, too.
#[test]
fn no_card_is_counted_for_a_job_that_lacks_a_rank() {
    for (name, content) in
        [("rank3", None), ("rank2", Some("no recording")), ("rank3", Some("no recording"))]
    {
        let folder = tempfile::tempdir().unwrap();
        let (input, out) = (folder.path().join("in"), folder.path().join("out"));
        put("streams", &input.join("job/rank0.pickle.xz"));
        put("streams", &input.join("job/rank1.pickle.xz"));
        match content {
            None => put("streams", &input.join(format!("job/{name}.pickle.xz"))),
            Some(text) => fs::write(input.join(format!("job/{name}.pickle")), text).unwrap(),
        }
        put("streams", &input.join("whole/rank0.pickle.xz"));
        fleet(&input, &out).args(["--allocators", "caching"]).assert().code(if content.is_some() {
            2
        } else {
            0
        });
        let json: Value = serde_json::from_str(&report(&out, &["--json"])).unwrap();
        let json = &json["result"];
        let (missing, ranks) = match content {
            Some(_) => (1 + u64::from(name == "rank3"), 2),
            None => (1, 3),
        };
        assert_eq!(json["missing_ranks"], missing, "{name}");
        for total in json["totals"].as_array().unwrap() {
            assert_eq!(total["unknown_cards"], ranks, "{total}");
            assert_eq!(total["enough_cards"][0]["count"], 1, "{total}");
        }
        for job in json["worst_jobs"].as_array().unwrap() {
            assert_eq!(job["is_lower_bound"], job["job"].as_str().unwrap().starts_with("job"));
        }
        let text = report(&out, &[]);
        assert!(text.contains("no recording that can be read") && text.contains(">= "), "{text}");
    }
}
