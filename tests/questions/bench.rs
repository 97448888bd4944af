//! `bench`: the table of a set, the picture, and submissions that reproduce or do not.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A set of two short recordings.
fn set(folder: &Path) -> PathBuf {
    set_of(folder, &["streams", "graphs"])
}

/// A set of these recordings.
fn set_of(folder: &Path, names: &[&str]) -> PathBuf {
    let line =
        |name: &&str| format!("{name},traces/{name}.pickle.xz,job,recorded,s,v,Apache-2.0\n");
    let lines: String = names.iter().map(line).collect();
    let path = folder.join("set.csv");
    fs::write(&path, format!("name,file,job,made,script,software,licence\n{lines}")).unwrap();
    path
}

fn bench(folder: &Path) -> Command {
    let mut run = results(folder, &[]);
    run.arg("--set").arg(set(folder)).arg("--folder").arg(root());
    run
}

/// `bench` for these submissions.
fn results(folder: &Path, files: &[&str]) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    run.arg("bench").current_dir(folder);
    if !files.is_empty() {
        run.arg("--results").args(files);
    }
    run
}

#[test]
fn every_allocator_has_a_row_and_the_picture_a_point() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = bench(folder.path());
    let run = run.args(["--each", "--export-plot", "front.svg", "--export-markdown", "t.md"]);
    let said = run.assert().success().stderr("").get_output().stdout.clone();
    let said = String::from_utf8(said).unwrap();
    let has_pool = |spec: &&gmlake::allocator::Spec| spec.role != gmlake::allocator::Role::Direct;
    for spec in gmlake::allocator::ALL.iter().filter(has_pool) {
        let begins = |line: &&str| line.split_whitespace().next() == Some(spec.name);
        // The overview and the two traces.
        assert_eq!(said.lines().filter(begins).count(), 3, "{}: {said}", spec.name);
    }
    assert!(said.contains("streams (blind): 212 requests, 9.97 GiB live at the peak"), "{said}");
    let picture = fs::read_to_string(folder.path().join("front.svg")).unwrap();
    let is_named = |name: &str| picture.contains(&format!("\n{name}\n"));
    assert!(is_named("lake") && is_named("caching") && !is_named("bound"), "{picture}");
    assert!(picture.contains("<circle"));
    assert!(fs::read_to_string(folder.path().join("t.md")).unwrap().contains("| caching"));
}

#[test]
fn the_figures_are_those_of_compare() {
    let folder = tempfile::tempdir().unwrap();
    let json = |run: &mut Command| {
        let out = run.arg("--json").assert().success().get_output().stdout.clone();
        serde_json::from_slice::<serde_json::Value>(&out).unwrap()["result"].clone()
    };
    let allocators = ["--allocators", "caching,lake,bound"];
    let found = json(bench(folder.path()).args(allocators));
    let mut compare = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    compare.current_dir(root()).args(["compare", "traces/streams.pickle.xz", "--profile", "h200"]);
    let compared = json(compare.args(allocators).args(["--device-memory", "unlimited"]));
    for row in found["rows"].as_array().unwrap().iter().filter(|row| row["trace"] == "streams") {
        let runs = compared["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["allocator"] == row["allocator"]).unwrap();
        // PyTorch's own gets the recorded addresses in `compare`, and the driver's here.
        if row["allocator"] != "caching" {
            assert_eq!(row["reserved_peak_bytes"], run["reserved_peak_bytes"], "{row}");
        }
        if row["allocator"] == "lake" {
            assert_eq!(row["driver_once_ns"], run["predicted_driver_ns"]["total"], "{row}");
        }
    }
    assert_eq!(found["summaries"].as_array().unwrap().len(), 3);
}

#[test]
fn a_submission_reproduces_and_one_with_better_figures_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let submit = ["--allocators", "lake", "--option", "lake.handle=16MiB", "--submit", "mine.json"];
    bench(folder.path()).args(submit).assert().success();
    let mut check = bench(folder.path());
    let check = check.args(["--check", "mine.json"]).assert().success();
    check.stdout(contains("mine.json: reproduces: 2 rows of 1 allocator on 2 of the 2 traces"));
    let path = folder.path().join("mine.json");
    let text = fs::read_to_string(&path).unwrap();
    let key = "\"reserved_peak_bytes\": 1";
    assert!(text.contains(key));
    fs::write(&path, text.replacen(key, "\"reserved_peak_bytes\": 2", 1)).unwrap();
    let check = bench(folder.path()).args(["--check", "mine.json"]).assert().code(1);
    let head = contains("mine.json: does not reproduce: 1 figure differs");
    check.stdout(head.and(contains("streams: lake: reserved_peak_bytes is 1")));
}

#[test]
fn submissions_stand_together_in_one_table_and_page() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["lake", "caching"] {
        let file = format!("{name}.json");
        bench(folder.path()).args(["--allocators", name, "--submit", &file]).assert().success();
    }
    let both =
        bench(folder.path()).args(["--allocators", "lake,caching", "--json"]).output().unwrap();
    let joined = || results(folder.path(), &["lake.json", "caching.json"]);
    let told = joined().arg("--json").output().unwrap();
    let figures = |text: &[u8]| -> Vec<(String, String, u64)> {
        let text: serde_json::Value = serde_json::from_slice(text).unwrap();
        let mut rows =
            serde_json::from_value::<Vec<gmlake::bench::Row>>(text["result"]["rows"].clone())
                .unwrap();
        rows.sort_by(|a, b| (&a.trace, &a.allocator).cmp(&(&b.trace, &b.allocator)));
        rows.into_iter().map(|row| (row.trace, row.allocator, row.reserved_peak_bytes)).collect()
    };
    assert_eq!(figures(&told.stdout), figures(&both.stdout));
    joined().args(["--export-html", "page.html"]).assert().success();
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("lake") && !page.contains("{{"), "{page}");
    assert!(page.contains("--results lake.json caching.json --export-html page.html"), "{page}");
    let said = results(folder.path(), &["lake.json", "lake.json"]).assert().code(2);
    said.stderr(contains("lake.json: lake is in a file before it, too"));
    for unused in [["--set", "full"], ["--folder", "."], ["--jobs", "1"]] {
        let said = joined().args(unused).assert().code(2);
        said.stderr(contains(unused[0]));
    }
}

#[test]
fn an_allocator_that_refuses_requests_has_no_score_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = ["--allocators", "lake,rmm-pool", "--option", "rmm-pool.maximum=64MiB"];
    let refuses = || [&refuses[..], &["--option", "rmm-pool.initial=2MiB"]].concat();
    let mut run = bench(folder.path());
    run.args(refuses()).args(["--each", "--submit", "mine.json", "--export-plot", "front.svg"]);
    let said = run.arg("--json").assert().success().get_output().stdout.clone();
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    let [lake, pool] = &said["result"]["summaries"].as_array().unwrap()[..] else {
        panic!("{said}")
    };
    assert_eq!((&lake["oom_count"], &lake["is_on_front"]), (&0.into(), &true.into()));
    let refused = pool["oom_count"].as_u64().unwrap();
    assert!(refused > 0 && pool["memory_mean"].is_null() && pool["is_on_front"] == false, "{pool}");
    assert!(pool["driver_once_median_ns"].is_null() && pool["host_median_ns"].is_null(), "{pool}");
    assert!(!fs::read_to_string(folder.path().join("front.svg")).unwrap().contains("rmm-pool"));
    let table = results(folder.path(), &["mine.json"]).assert().success();
    table.stdout(contains("lake *").and(contains("rmm-pool *").not()).and(contains(" OOMs ")));
    let check = bench(folder.path()).args(["--check", "mine.json"]).assert().success();
    check.stdout(contains(format!("; rmm-pool has no score: {refused} OOMs")));
}

#[test]
fn a_recording_that_is_not_of_a_whole_job_has_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let partial = [
        ("opt-1.3b-LR-var.ring20k", "the ring buffer kept only the last 20000 entries"),
        ("opt-1.3b-LR-var.gc60-cap16pct", "the recording ends in an out-of-memory in step"),
    ];
    for (name, reason) in partial {
        set_of(folder.path(), &["streams", name]);
        let mut run = results(folder.path(), &[]);
        run.args(["--set", "set.csv", "--folder"]).arg(root()).args(["--allocators", "bound"]);
        fails(&mut run, &format!("not the recording of a whole job: {reason}"));
    }
}

#[test]
fn no_list_trace_or_price_list_of_a_benchmark_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let row = "event,id,size\nalloc,w,4MiB\nfree,w,\n";
    write("by_hand.csv", row);
    write("set.csv", "name,file,job,made,script,software,licence\na,by_hand.csv,j,m,s,s,l\n");
    write("prices.json", "{}");
    let run = |line: &str| {
        let mut run = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        run.current_dir(folder.path()).args(line.split(' '));
        run
    };
    for line in [
        "bench --set set.csv --submit set.csv",
        "bench --set set.csv --export-markdown ./set.csv",
        "bench --set set.csv --submit by_hand.csv",
        "bench --set set.csv --profile prices.json --submit prices.json",
        "compare by_hand.csv --profile prices.json --export-json prices.json",
        "sweep by_hand.csv --set profile=h200,prices.json --export-json prices.json",
    ] {
        fails(&mut run(line), "is read, and would be overwritten");
    }
    run("bench --set set.csv --allocators lake --submit new.json").assert().success();
}

/// A command that ends with exit code 2 and one line.
fn fails(run: &mut Command, expected: &str) {
    let said = run.assert().code(2).get_output().stderr.clone();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
}

#[test]
fn a_check_that_checks_nothing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let submit = ["--allocators", "lake", "--submit", "a.json"];
    bench(folder.path()).args(submit).assert().success();
    let mut run = results(folder.path(), &["a.json"]);
    run.assert().success();
    let mut check = results(folder.path(), &[]);
    fails(check.args(["--check", "a.json"]), "set.csv: give that with --set FILE");
    set_of(folder.path(), &["streams"]);
    let mut blind = results(folder.path(), &[]);
    blind.args(["--set", "set.csv", "--folder"]).arg(root());
    fails(blind.args(["--part", "public"]), "set.csv: no trace of the set is public");
    let mut other = results(folder.path(), &[]);
    other.args(["--set", "set.csv", "--folder"]).arg(root());
    fails(other.args(["--check", "a.json"]), "graphs: no trace of the set set.csv; expected");
    let path = folder.path().join("a.json");
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let row = text["rows"][0].clone();
    text["rows"].as_array_mut().unwrap().push(row);
    fs::write(&path, text.to_string()).unwrap();
    fails(&mut run, "a.json: a row too many, of lake on streams");
    text["rows"] = serde_json::json!([]);
    fs::write(&path, text.to_string()).unwrap();
    fails(bench(folder.path()).args(["--check", "a.json"]), "the row of lake on graphs is missing");
    text["traces"] = serde_json::json!({});
    fs::write(&path, text.to_string()).unwrap();
    fails(bench(folder.path()).args(["--check", "a.json"]), "the submission has no rows");
}

#[test]
fn what_is_wrong_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    bench(folder.path()).args(["--allocators", "lake", "--submit", "a.json"]).assert().success();
    let path = folder.path().join("a.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"lake\"", "\"mine\"")).unwrap();
    fails(bench(folder.path()).args(["--check", "a.json"]), "mine is a plug-in; give its library");
    let hash = text.split("\"streams\": \"").nth(1).unwrap().split('"').next().unwrap();
    fs::write(&path, text.replace(hash, "0")).unwrap();
    fails(bench(folder.path()).args(["--check", "a.json"]), "streams: the file is not the one");
    fs::write(&path, "{}").unwrap();
    fails(bench(folder.path()).args(["--check", "a.json"]), "a.json: no submission of");
    let mut elsewhere = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    elsewhere.current_dir(folder.path()).arg("bench");
    fails(&mut elsewhere, "no such trace of the set small; run this in a clone of the repository");
}
