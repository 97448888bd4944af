//! `fleet report`: what the tables of many recordings add up to.

use std::fs;

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

#[test]
fn a_rank_that_leaves_requests_out_saves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in"), folder.path().join("out"));
    for (name, count) in [("small", 4), ("large", 40)] {
        fs::create_dir_all(input.join(name)).unwrap();
        let blocks = (0..count).map(|block| format!("alloc,b{block},64MiB,0\n"));
        let text = format!("event,id,size,stream\n{}", blocks.collect::<String>());
        fs::write(input.join(name).join("job.csv"), text).unwrap();
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
