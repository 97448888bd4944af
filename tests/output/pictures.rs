//! `gmlake-sim report` and `gmlake-sim plot` from outside: what they write, and what they say of bad input.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn gmlake_sim() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
}

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(format!("{name}.pickle.xz"))
}

fn by_hand() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/by_hand.csv")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is a place for temporary files")
}

/// The error is one line that begins with the program's name.
fn one_line(text: &str) -> impl Predicate<str> {
    contains(text.to_owned())
        .and(predicate::str::starts_with("gmlake-sim: "))
        .and(predicate::function(|text: &str| text.lines().count() == 1))
}

#[test]
fn a_page_holds_everything_and_asks_for_nothing() {
    let folder = folder();
    let out = folder.path().join("page.html");
    let verdict = contains("PyTorch held").and(contains("page.html"));
    let mut command = gmlake_sim();
    command.arg("report").arg(trace("graphs")).arg("--out").arg(&out);
    command.assert().success().stdout(verdict);
    let page = std::fs::read_to_string(&out).unwrap();
    for text in [
        "<!doctype html>",
        "caching",
        "gmlake-released",
        "split remainders",
        "Content-Security-Policy",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let addresses = ["http://", "https://", "<link rel=\"stylesheet", "@import", "src=\""];
    // The one address is the name of a vocabulary, which is not fetched.
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for text in addresses {
        assert!(!page.contains(text), "{text}");
    }
}

#[test]
fn a_page_is_the_same_each_time_and_goes_through_a_pipe() {
    let page = || {
        let mut command = gmlake_sim();
        command.args(["report", "-", "--out", "-", "--allocators", "caching,gmlake"]);
        let out = command.write_stdin(std::fs::read(by_hand()).unwrap()).output().unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stdout).unwrap()
    };
    let first = page();
    assert!(first.starts_with("<!doctype html>") && first.contains("standard input"));
    assert_eq!(first, page());
}

#[test]
fn every_chart_is_a_picture_in_both_formats() {
    let folder = folder();
    for chart in gmlake::report::CHARTS {
        for ending in ["svg", "png"] {
            let out = folder.path().join(format!("{}.{ending}", chart.name));
            let mut command = gmlake_sim();
            command.arg("plot").arg(trace("opt-1.3b-N")).args(["--chart", chart.name]);
            command.arg("--out").arg(&out).assert().success();
            let picture = std::fs::read(&out).unwrap();
            let start: &[u8] = if ending == "svg" { b"<svg" } else { b"\x89PNG" };
            assert!(picture.starts_with(start), "{}", out.display());
            let is_named = String::from_utf8_lossy(&picture).contains("expandable");
            assert!(ending == "png" || is_named, "{}", out.display());
        }
    }
}

#[test]
fn bad_input_is_one_clear_line_and_leaves_nothing_behind() {
    let folder = folder();
    let out = folder.path().join("x.html");
    let missing = ["report", "no-such-file.pickle", "--out"];
    gmlake_sim().args(missing).arg(&out).assert().code(2).stderr(one_line("no-such-file.pickle"));
    let trace = trace("graphs");
    let run = |args: &[&str]| {
        let mut command = gmlake_sim();
        command.current_dir(folder.path()).arg(args[0]).arg(&trace).args(&args[1..]);
        command.assert().code(2)
    };
    run(&["report", "--out", "nowhere/x.html"]).stderr(one_line("cannot write nowhere/x.html"));
    run(&["report", "--out", "."]).stderr(one_line("it is a directory"));
    run(&["report", "--profile", "b300"]).stderr(one_line("profile \"b300\""));
    run(&["report", "--allocators", "cachin"]).stderr(one_line("there is no allocator \"cachin\""));
    run(&["report", "--device-memory", "much"]).stderr(one_line("much"));
    run(&["report", "--reference", "gone"]).stderr(one_line("there is no row \"gone\""));
    run(&["plot", "--chart", "map", "--out", "x.pdf"]).stderr(one_line(".svg or .png"));
    run(&["plot", "--chart", "pie", "--out", "x.svg"]).stderr(one_line("pie"));
    run(&["plot", "--chart", "sweep", "--set", "gmlake.lid=1,2", "--out", "x.svg"])
        .stderr(one_line("lid"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
