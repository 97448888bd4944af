//! `sweep`: whose journal it is, what is refused, and what is drawn.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use predicates::str::contains;

use crate::fleet::{gmlake_sim, one_line, put};
use crate::planning_cli::job;

fn sweep(folder: &Path, file: &str, sizes: &str) -> Command {
    let mut run = gmlake_sim();
    run.current_dir(folder).args(["sweep", file, "missing.pickle", "--export-csv", "out.csv"]);
    run.args(["--set", &format!("gmlake.fragment_limit={sizes}")]);
    run
}

#[test]
fn the_journal_of_another_sweep_is_refused_and_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    put("streams", &folder.join("a.pickle.xz"));
    put("graphs", &folder.join("b.pickle.xz"));
    // A file that is missing keeps the results of the other in the journal.
    sweep(folder, "a.pickle.xz", "2MiB,4MiB").assert().code(2);
    let journal = folder.join("out.csv.journal");
    let (noted, table) = (fs::read(&journal).unwrap(), fs::read(folder.join("out.csv")).unwrap());
    let refused = "out.csv.journal: the journal of another sweep, of a.pickle.xz: finish that one";
    let other_version = |run: &mut Command| {
        run.args(["--snapshot", "1"]);
    };
    for (file, sizes, change) in [
        ("b.pickle.xz", "2MiB,4MiB", None),
        ("a.pickle.xz", "2MiB", None),
        ("a.pickle.xz", "8MiB", None),
        ("a.pickle.xz", "2MiB,4MiB", Some(other_version)),
    ] {
        let mut run = sweep(folder, file, sizes);
        change.into_iter().for_each(|change| change(&mut run));
        run.assert().code(2).stderr(one_line(refused)).stdout("");
        assert_eq!(fs::read(&journal).unwrap(), noted, "{file} {sizes}");
        assert_eq!(fs::read(folder.join("out.csv")).unwrap(), table, "{file} {sizes}");
    }
    // The same sweep, under another name of its file, with one more point.
    put("streams", &folder.join("missing.pickle"));
    let again = sweep(folder, "./a.pickle.xz", "2MiB,4MiB,8MiB").assert().success();
    again.stderr(contains("going on with 2 runs of an earlier sweep"));
    assert!(!journal.exists());
}

#[test]
fn what_cannot_be_swept_is_refused_before_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = job(folder.path(), "a.csv", 1, 1);
    let refused = |arguments: &[&str], words: &str| {
        let mut sweep = gmlake_sim();
        let said = sweep.arg("sweep").arg(&file).args(arguments).assert().code(2).stdout("");
        said.stderr(one_line(words));
    };
    for (axis, words) in [
        ("fragment_limit", "write NAME=VALUE"),
        ("speed=2", "write NAME=VALUE"),
        ("a.b=", "a value is empty"),
        ("a.b=1,1", "given twice"),
        ("a.b=1..5", "write a range as"),
        ("a.b=5..1:x2", "ends before it begins"),
        ("a.b=1..5:x1", "a factor is above 1"),
        ("a.b=0..5:x2", "multiplies no zero"),
        ("a.b=1..5:+0", "by more than nothing"),
        ("a.b=1..5:2", "write a range as"),
        ("a.b=few..5GiB:x2", "is not a size"),
        ("a.b=0..1000000:+1", "more than 10,000"),
        ("gmleak.x=1", "no allocator \"gmleak\""),
        ("gmlake.x=1", "gmlake has no option \"x\""),
        ("gmlake.fragment_limit=2MiB,few", "few"),
        ("device-memory=0", "without memory"),
        ("profile=p100", "neither h200 nor"),
        ("alloc-conf=max_split:1", "max_split"),
    ] {
        refused(&["--set", axis], words);
    }
    let limit = "gmlake.fragment_limit=2MiB";
    refused(&["--allocators", "caching", "--set", limit], "not among those");
    refused(&["--allocators", "caching,caching", "--set", "profile=h200"], "listed twice");
    refused(&["--set", "profile=h200", "--set", "profile=h200"], "varied already");
    let (limits, sizes) = (format!("{limit}..16GiB:+2MiB"), "device-memory=1GiB..9TiB:+1GiB");
    refused(&["--set", &limits, "--set", sizes], "more than 1,000,000 points");
}

#[test]
fn a_picture_has_one_axis_or_two() {
    let folder = tempfile::tempdir().unwrap();
    let file = job(folder.path(), "a.csv", 1, 1);
    let memory = ["--set", "device-memory=1GiB,2GiB"];
    let prices = ["--set", "profile=h200,h100"];
    let draw = |axes: &[&str], name: &str| {
        let mut sweep = gmlake_sim();
        sweep.arg("sweep").arg(&file).args(["--set", "vmm.chunk=2MiB,4MiB"]).args(axes);
        sweep.arg("--plot").arg(folder.path().join(name)).assert()
    };
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    draw(&[], "one.svg").success();
    let one = read("one.svg");
    assert!(one.contains("\nvmm.chunk\n") && one.contains("<polyline"), "{one}");
    draw(&memory, "two.svg").success();
    // Four cells and the background.
    assert_eq!(read("two.svg").matches("<rect").count(), 5);
    draw(&[memory, prices].concat(), "three.svg").code(2).stderr(contains("one or two axes"));
}
