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
    let verdict = contains("PyTorch reserved").and(contains("page.html"));
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
    for chart in gmlake::compare::chart::CHARTS {
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

/// Every picture shrinks with the window: none has a size that cannot be less.
#[test]
fn every_svg_scales() {
    let folder = folder();
    let (data, frames) = (by_hand(), trace("opt-1.3b-LR-var.frames"));
    let grid = ["--allocators", "gmlake", "--set", "gmlake.fragment_limit=2MiB,64MiB"];
    let run = |name: &str, command: &str, input: &Path, more: &[&str], option: &str| {
        let out = folder.path().join(format!("{name}.svg"));
        let mut run = gmlake_sim();
        run.arg(command).arg(input).args(more).arg(option).arg(&out);
        run.assert().success();
        let svg = std::fs::read_to_string(&out).unwrap();
        let start = svg.find("<svg ").unwrap();
        let tag = &svg[start..start + svg[start..].find('>').unwrap()];
        assert!(tag.contains("viewBox=\"0 0 ") && tag.contains("max-width:100%"), "{name}: {tag}");
    };
    for chart in ["timeline", "utilization", "map"] {
        run(chart, "plot", &data, &["--chart", chart], "--out");
    }
    run("all", "compare", &data, &[], "--export-plot");
    run("sweep", "sweep", &data, &grid, "--plot");
    run("flame", "blame", &frames, &[], "--export-flamegraph");
}

/// What the time in driver calls is: predicted, of each step, by whose prices.
#[test]
fn the_latency_chart_says_what_it_shows() {
    let folder = folder();
    let out = folder.path().join("latency.svg");
    let mut command = gmlake_sim();
    command.arg("plot").arg(trace("opt-1.3b-N")).args(["--chart", "latency"]);
    command.args(["--device-memory", "8GiB", "--out"]).arg(&out).assert().success();
    let picture = std::fs::read_to_string(&out).unwrap();
    for words in [
        "Predicted time in driver calls, each training step by itself with prices of ",
        "driver time in a step (logarithmic scale)",
        "training step",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    assert!(!picture.contains("a cross marks"), "this chart has no crosses");
}

/// Figures are marked as in the tables, and a line says what the recording lacks.
#[test]
fn pictures_of_parts_say_so() {
    let folder = folder();
    let ring = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/truncated/ring.pickle");
    let draw = |arguments: &[&str], option: &str| {
        let out = folder.path().join("part.svg");
        let mut command = gmlake_sim();
        command.args(arguments).arg(&ring).args(["--allocators", "caching,bound"]).arg(option);
        command.arg(&out).assert().success();
        std::fs::read_to_string(&out).unwrap()
    };
    let lack = "the ring buffer kept only the last 200 entries";
    for (chart, figure) in [
        ("utilization", "87.4 % of ~ 642 MiB"),
        ("timeline", "bound &gt;= 561.23 MiB"),
        ("map", "\n~ 642 MiB"),
        ("latency", "Predicted time"),
    ] {
        let picture = draw(&["plot", "--chart", chart], "--out");
        assert!(picture.contains(lack) && picture.contains(figure), "{chart}: {picture}");
    }
    assert!(draw(&["compare"], "--export-plot").contains("% of ~ 642 MiB"));
    let memory = ["sweep", "--set", "device-memory=7GiB,8GiB"];
    assert!(draw(&memory, "--plot").contains("not the whole job was recorded"));
}

/// One moment has neither a history nor a peak.
#[test]
fn of_one_moment_no_history_is_drawn() {
    let folder = folder();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases/truncated");
    let state = cases.join("state-only.pickle");
    let run = |arguments: &[&str]| {
        let mut command = gmlake_sim();
        command.current_dir(folder.path()).args(["-q", arguments[0]]).arg(&state);
        command.args(["--allocators", "caching,lake"]).args(&arguments[1..]).assert()
    };
    let refusal = "no event history was recorded, so there is no memory over time";
    run(&["plot", "--chart", "timeline", "--out", "x.svg"]).code(2).stderr(one_line(refusal));
    run(&["compare", "--export-timeline", "x.csv"]).code(2).stderr(one_line(refusal));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    run(&["compare", "--export-plot", "x.svg"]).success();
    let picture = std::fs::read_to_string(folder.path().join("x.svg")).unwrap();
    assert!(picture.contains("No event history") && !picture.contains("<polyline"), "{picture}");
    run(&["report", "--out", "x.html"]).success();
    let page = std::fs::read_to_string(folder.path().join("x.html")).unwrap();
    assert!(page.contains("<dl class=\"facts\"></dl>"), "one moment tells what would be enough");
}

/// Names that a file brings along, and the name of the file itself, reach no picture, page or table as they are.
#[cfg(unix)]
#[test]
fn names_of_files_reach_no_picture_page_or_table_unescaped() {
    let folder = folder();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases");
    let job = folder.path().join("jobs/<img src=x>\u{1b}[31m");
    std::fs::create_dir_all(&job).unwrap();
    let input = job.join("<script>alert(1)\u{9b}31m\u{202e}.pickle");
    std::fs::copy(cases.join("damaged/evil-names.pickle"), &input).unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = gmlake_sim();
        command.current_dir(folder.path()).args(arguments).assert().success();
    };
    let file = input.display().to_string();
    for chart in gmlake::compare::chart::CHARTS.iter().filter(|chart| chart.name != "latency") {
        for ending in ["svg", "png"] {
            let out = place(&format!("{}.{ending}", chart.name));
            run(&["plot", &file, "--chart", chart.name, "--out", &out]);
        }
    }
    run(&["plot", &file, "--chart", "sweep", "--allocators", "gmlake", "--out", "sweep.svg"]);
    run(&["compare", &file, "--export-plot", "all.svg", "--export-csv", "all.csv"]);
    run(&["blame", &file, "--export-csv", "blame.csv", "--export-flamegraph", "flame.svg"]);
    run(&["plan", &file, "--allocators", "caching", "--export-csv", "plan.csv"]);
    run(&["export", &file, "--format", "csv", "--out", "trace.csv"]);
    run(&["export", &file, "--format", "perfetto", "--out", "trace.json"]);
    run(&["report", &file, "--out", "page.html"]);
    run(&["fleet", &place("jobs"), "--out", &place("fleet"), "--allocators", "caching"]);
    run(&["fleet", "report", "fleet", "--out", "fleet.html"]);
    let mut seen = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if !path.is_file() || name.ends_with(".png") {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let acts = |letter: char| {
            letter.is_control() && !matches!(letter, '\n' | '\t') || letter == '\u{202e}'
        };
        let near = text.find(acts).map(|at| text[at..].chars().take(60).collect::<String>());
        assert_eq!(near, None, "{name}");
        // A table and JSON hold text, which is no markup.
        let is_markup = name.ends_with(".svg") || name.ends_with(".html");
        for raw in ["<img", "<script>alert"].iter().filter(|_| is_markup) {
            assert!(!text.contains(raw), "{name}: {raw}");
        }
    }
    assert_eq!(seen, 13, "every document was looked at");
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
