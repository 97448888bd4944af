//! `blame` and `diff`, as users meet them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::stacks::{Job, snapshot};
use assert_cmd::Command;
use gmlake::units::MIB;
use predicates::prelude::*;
use predicates::str::{contains, starts_with};

fn gmlake_sim() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
}

fn written(folder: &Path, name: &str, job: Job) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, snapshot(&job)).unwrap();
    path
}

/// Standard output of a command in the folder, which must end well.
fn shown(folder: &Path, arguments: &[&str]) -> String {
    let run = gmlake_sim().current_dir(folder).args(arguments).assert().success();
    String::from_utf8(run.get_output().stdout.clone()).unwrap()
}

#[test]
fn the_tables_are_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "job.pickle", Job { leak: 5 * MIB, ..Job::default() });
    for (name, arguments) in [
        ("line", &["--at", "step:2"][..]),
        ("stack_innermost", &["--by", "stack", "--innermost", "--top", "2"]),
        ("annotation_end", &["--by", "annotation", "--at", "end"]),
        ("fragmentation", &["--fragmentation"]),
        ("growth", &["--growth"]),
        ("oom", &["--at", "oom", "--device-memory", "180MiB"]),
    ] {
        let text = shown(folder.path(), &[&["blame", "job.pickle"], arguments].concat());
        insta::assert_snapshot!(format!("blame_{name}"), text);
    }
}

#[test]
fn a_leak_is_told_from_state() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "leak.pickle", Job { leak: 5 * MIB, ..Job::default() });
    let text = shown(folder.path(), &["blame", "leak.pickle", "--growth"]);
    let verdict = "Leak: +5 MiB per step, most of it requested by train.py:33 step.";
    assert!(text.ends_with(&format!("{verdict}\n")), "{text}");
    written(folder.path(), "tight.pickle", Job::default());
    let text = shown(folder.path(), &["blame", "tight.pickle", "--growth"]);
    assert!(text.contains("No leak:") && text.contains("train.py:10 build  state"), "{text}");
}

/// What a user would write: a list that grows by one tensor in each step, and tensors replaced by larger ones.
#[test]
fn a_list_that_grows_is_a_leak_and_a_tensor_that_is_replaced_is_none() {
    let folder = tempfile::tempdir().unwrap();
    for (leak, replaced, steps) in
        [(0, 3 * MIB, 4), (0, 3 * MIB, 20), (5 * MIB, 3 * MIB, 8), (2 * MIB, 0, 30)]
    {
        written(folder.path(), "job.pickle", Job { leak, replaced, steps, ..Job::default() });
        let text = shown(folder.path(), &["blame", "job.pickle", "--growth"]);
        let of = |line: &str| text.lines().find(|row| row.starts_with(line)).unwrap_or_default();
        let library = of("transformers/cache_utils.py:99 update < train.py:36 step");
        assert_eq!(library.contains(" cache "), replaced > 0, "{text}");
        assert_eq!(of("train.py:33 step").contains(" leak "), leak > 0, "{text}");
        assert_eq!(text.contains("Leak: "), leak > 0, "{text}");
        assert_eq!(text.contains("No leak: "), leak == 0, "{text}");
    }
}

#[test]
fn a_leak_in_a_few_steps_is_found_also_where_it_is_freed_after_the_last() {
    let folder = tempfile::tempdir().unwrap();
    for (steps, leak_every) in [(8, 1), (40, 2), (40, 4), (40, 5), (40, 9), (100, 10)] {
        for frees_leak in [false, true] {
            let job = Job { leak: 9 * MIB, leak_every, frees_leak, steps, ..Job::default() };
            written(folder.path(), "job.pickle", job);
            let text = shown(folder.path(), &["blame", "job.pickle", "--growth"]);
            assert!(text.contains("Leak: +") && !text.contains("No leak"), "{text}");
            let freed = "All of it is freed before the recording ends.";
            assert_eq!(text.contains(freed), frees_leak, "{text}");
        }
    }
}

#[test]
fn without_enough_steps_there_is_no_all_clear() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "job.pickle", Job { leak: 5 * MIB, steps: 2, ..Job::default() });
    let text = shown(folder.path(), &["blame", "job.pickle", "--growth", "--after", "2"]);
    assert!(text.contains("leaks cannot be found: 2 of at least 5 training steps"), "{text}");
    let forward = ["blame", "tests/data/cases/oom/mempool.pickle", "--growth"];
    let text = shown(Path::new("."), &forward);
    assert!(text.contains("leaks cannot be found: 0 of at least 4 training steps"), "{text}");
}

#[test]
fn a_leak_is_not_denied_before_it_can_be_found() {
    let folder = tempfile::tempdir().unwrap();
    for after in 1..4_u64 {
        let number = after.to_string();
        let growth = ["blame", "job.pickle", "--growth", "--after", &number];
        for steps in after + 1..after + 5 {
            let leaks = Job { leak: 5 * MIB, steps, ..Job::default() };
            written(folder.path(), "job.pickle", leaks);
            let text = shown(folder.path(), &growth);
            let row = text.lines().find(|row| row.starts_with("train.py:33 step")).unwrap();
            let least = after + 3;
            let too_few =
                format!("Leaks cannot be found: {steps} of at least {least} training steps");
            assert_eq!(text.contains(&too_few), steps < least, "{text}");
            assert_eq!(text.contains("Leak: +5 MiB"), steps >= least, "{text}");
            assert!(!row.contains(" state ") && !text.contains("No leak"), "{text}");
        }
    }
}

/// Of a recording without its beginning no figure is a fact about the job, and no setting is promised to help.
#[test]
fn what_an_incomplete_recording_shows_is_marked() {
    let folder = Path::new("tests/data/cases/truncated");
    let text = shown(folder, &["blame", "ring.pickle"]);
    assert!(text.contains("in step 2; >= 561.23 MiB live in 64 blocks"), "{text}");
    let text = shown(folder, &["blame", "ring.pickle", "--at", "end"]);
    assert!(text.contains("; 369.14 MiB live in 40 blocks"), "what was seen then: {text}");
    let text = shown(folder, &["blame", "ring.pickle", "--allocator", "caching"]);
    assert!(text.contains("; 529.15 MiB live in 52 blocks, ~ 642 MiB reserved"), "{text}");
    let text = shown(folder, &["blame", "ring.pickle", "--fragmentation"]);
    assert!(text.contains("~ 642 MiB for 529.15 MiB live") && !text.contains("True"), "{text}");
    assert!(text.contains("left by memory held since the recording began"), "{text}");
    let text = shown(folder, &["blame", "state-only.pickle", "--fragmentation"]);
    assert!(text.ends_with(" is unknown. What a setting would save is unknown.\n"), "{text}");
    let found = shown(folder, &["blame", "ring.pickle", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let of = |name: &str| &found["result"][0][name];
    assert_eq!(of("certainty"), "at_least");
    assert_eq!(of("coverage")["kind"], "tail_only");
}

#[test]
fn every_export_has_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "job.pickle", Job::default());
    let exports = [
        ["--export-json", "b.json"],
        ["--export-csv", "b.csv"],
        ["--export-folded", "b.txt"],
        ["--export-flamegraph", "b.svg"],
    ];
    let text = shown(folder.path(), &[&["blame", "job.pickle"][..], &exports.concat()].concat());
    assert!(text.contains("184 MiB"), "{text}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read("b.json")).unwrap();
    let rows = json["result"][0]["rows"].as_array().unwrap();
    let live = 184 * MIB;
    assert_eq!(json["result"][0]["live_bytes"], live);
    assert_eq!(rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>(), live);
    let last = |line: &str, mark| line.rsplit(mark).next().unwrap().parse::<u64>().unwrap();
    assert_eq!(read("b.txt").lines().map(|line| last(line, ' ')).sum::<u64>(), live);
    let mut csv = csv::Reader::from_reader(fs::File::open(folder.path().join("b.csv")).unwrap());
    let bytes = csv.records().map(|row| row.unwrap()[6].parse::<u64>().unwrap());
    assert_eq!(bytes.sum::<u64>(), live);
    // From a pipe, which can be read once.
    let mut piped = gmlake_sim();
    piped.current_dir(folder.path()).args(["blame", "-", "--export-folded", "-"]);
    let run = piped.write_stdin(fs::read(folder.path().join("job.pickle")).unwrap()).assert();
    assert_eq!(String::from_utf8_lossy(&run.success().get_output().stdout), read("b.txt"));
    let svg = read("b.svg");
    assert!(svg.starts_with("<?xml") && svg.contains("train.py:30 step"));
}

#[test]
fn a_line_that_changed_comes_first_and_a_line_that_moved_does_not() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "a.pickle", Job::default());
    // Line 30 was one of `step` and is one of `build`: the file was changed.
    written(folder.path(), "b.pickle", Job { activations: 96 * MIB, offset: 20, ..Job::default() });
    let diff = |tolerance: &str| {
        let arguments = ["diff", "a.pickle", "b.pickle", "--tolerance", tolerance];
        gmlake_sim().current_dir(folder.path()).args(arguments).assert()
    };
    let text = diff("0%").code(1).get_output().stdout.clone();
    let text = String::from_utf8(text).unwrap();
    let first = text.lines().nth(4).unwrap();
    assert!(first.starts_with("train.py:50 step (was train.py:30)"), "{text}");
    assert!(first.contains("larger") && first.contains("+32 MiB"), "{text}");
    assert!(text.contains("2 unchanged"), "{text}");
    diff("17%").code(1);
    diff("18%").code(0);
    diff("32MiB").code(0);
    diff("31MiB").code(1);
    let same = ["diff", "a.pickle", "a.pickle", "--export-json", "-"];
    let json: serde_json::Value = serde_json::from_str(&shown(folder.path(), &same)).unwrap();
    assert!(json["result"]["rows"].as_array().unwrap().iter().all(|row| row["change"] == "same"));
}

/// A recording that was cut off is a part of its job, which may need more.
#[test]
fn of_parts_of_jobs_diff_says_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let cut = |name: &str, job: Job| {
        let whole = snapshot(&job);
        fs::write(folder.path().join(name), &whole[..whole.len() * 7 / 10]).unwrap();
    };
    let large = Job { activations: 96 * MIB, ..Job::default() };
    written(folder.path(), "small.pickle", Job::default());
    written(folder.path(), "large.pickle", large);
    cut("small-part.pickle", Job::default());
    cut("large-part.pickle", large);
    for (files, code, share, is_partial) in [
        (["small", "large-part"], 1, "184 MiB to >= 216 MiB (growth >= +32 MiB)", [false, true]),
        (["large", "small-part"], 3, "216 MiB to >= 184 MiB (growth unknown)", [false, true]),
        (["small-part", "large"], 3, ">= 184 MiB to 216 MiB (growth <= +32 MiB)", [true, false]),
        (["large-part", "small"], 0, ">= 216 MiB to 184 MiB (growth <= -32 MiB)", [true, false]),
        (["small-part", "large-part"], 3, ">= 184 MiB to >= 216 MiB (growth unknown)", [true; 2]),
    ] {
        let files = files.map(|file| format!("{file}.pickle"));
        let diff = |more: &[&str]| {
            let mut command = gmlake_sim();
            command.current_dir(folder.path()).args(["-q", "diff"]).args(&files).args(more);
            command.assert().code(code).get_output().stdout.clone()
        };
        let text = String::from_utf8(diff(&[])).unwrap();
        assert!(text.contains(share) && text.contains("lower bounds only"), "{text}");
        let step = text.lines().find(|line| line.contains("train.py:30 step")).unwrap();
        assert!(step.contains(" ~ "), "{text}");
        let json: serde_json::Value = serde_json::from_slice(&diff(&["--json"])).unwrap();
        let coverage = &json["result"]["coverage"];
        assert_eq!([0, 1].map(|at| coverage[at]["is_lower_bound"] == true), is_partial);
    }
}

/// A line that is missing in a part of a job may come later.
#[test]
fn what_a_part_does_not_show_is_not_gone() {
    let folder = tempfile::tempdir().unwrap();
    let whole = snapshot(&Job::default());
    fs::write(folder.path().join("part.pickle"), &whole[..whole.len() * 7 / 10]).unwrap();
    written(folder.path(), "leak.pickle", Job { leak: 5 * MIB, ..Job::default() });
    for files in [["leak.pickle", "part.pickle"], ["part.pickle", "leak.pickle"]] {
        let mut command = gmlake_sim();
        command.current_dir(folder.path()).args(["diff", files[0], files[1]]);
        command.assert().stdout(
            contains("train.py:33 step  unknown")
                .and(contains(" gone ").or(contains(" new ")).not()),
        );
    }
}

#[test]
fn lines_of_a_file_that_may_be_unchanged_stay_two_lines() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "a.pickle", Job { leak: MIB, ..Job::default() });
    let job = Job { activations: 96 * MIB, leak: MIB, offset: 7, ..Job::default() };
    written(folder.path(), "b.pickle", job);
    let arguments = ["diff", "a.pickle", "b.pickle", "--tolerance", "1GiB"];
    let text = shown(folder.path(), &arguments);
    assert!(!text.contains("(was"), "{text}");
    let rows: Vec<&str> = text.lines().skip(4).collect();
    assert!(rows[0].starts_with("train.py:37 step") && rows[0].contains(" new "), "{text}");
    assert!(rows[1].starts_with("train.py:30 step") && rows[1].contains(" gone "), "{text}");
    assert!(rows[2].starts_with("2 on another line of the same function"), "{text}");
    assert!(rows[2].contains(" 0 B "), "{text}");
}

#[test]
fn two_snapshots_of_one_file_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let dump = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::read(root.join("tests/data").join(name)).unwrap()
    };
    let (small, large) = (dump("snapshot.4.pickle"), dump("cases/oom/mempool.pickle"));
    std::fs::write(folder.path().join("two.pickle"), [&small[..], &large].concat()).unwrap();
    std::fs::write(folder.path().join("small.pickle"), small).unwrap();
    std::fs::write(folder.path().join("large.pickle"), large).unwrap();
    let diff = |files: [&str; 2], snapshot: &[&str]| {
        let mut command = gmlake_sim();
        command.current_dir(folder.path()).arg("diff").args(files).arg("--json");
        let arguments = snapshot.iter().flat_map(|numbers| ["--snapshot", numbers]);
        let output = command.args(arguments).args(["--by", "size"]).output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["result"]["live_bytes"].clone()
    };
    let expected = diff(["small.pickle", "large.pickle"], &[]);
    assert_eq!(diff(["two.pickle"; 2], &["1,2"]), expected);
    let last = diff(["two.pickle"; 2], &[]);
    assert_eq!(last, serde_json::json!([expected[1], expected[1]]));
    assert_eq!(diff(["two.pickle"; 2], &["1"]), serde_json::json!([expected[0], expected[0]]));
    for (numbers, text) in [("1,2,3", "3 numbers; expected one"), ("3", "no number 3")] {
        let mut command = gmlake_sim();
        let files = ["diff", "two.pickle", "two.pickle", "--snapshot", numbers];
        command.current_dir(folder.path()).args(files).assert().code(2).stderr(contains(text));
    }
}

#[test]
fn ranks_of_a_job_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let activations = (64 + 8 * (rank % 2)) * MIB;
        written(
            folder.path(),
            &format!("job.r{rank}.pickle"),
            Job { activations, ..Job::default() },
        );
    }
    let text = shown(folder.path(), &["blame", "job.r*.pickle"]);
    assert!(text.contains("3 ranks") && text.contains("rank 1 has most live"), "{text}");
    let difference = text.lines().rfind(|line| line.starts_with("train.py:30 step")).unwrap();
    assert!(difference.contains("8 MiB  64 MiB (rank 0)  72 MiB (rank 1)"), "{text}");
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "job.pickle", Job::default());
    fs::write(folder.path().join("job.csv"), "event,id,size\nalloc,a,1MiB\n").unwrap();
    for (arguments, words) in [
        (
            &["blame", "job.pickle", "--at", "noon"][..],
            "invalid moment \"noon\"; expected peak, oom, end",
        ),
        (&["blame", "job.pickle", "--at", "step:9"], "no step 9; the recording has 4 steps"),
        (&["blame", "job.pickle", "--at", "event:999"], "no event 999; the last one is"),
        (&["blame", "job.pickle", "--at", "oom"], "memory never ran out"),
        (&["blame", "job.pickle", "--by", "colour"], "line, own, function, module, stack"),
        (&["blame", "job.csv", "--by", "line"], "no call stacks in it for --by line"),
        (&["blame", "job.pickle", "--allocator", "magic"], "there is no allocator \"magic\""),
        (&["diff", "job.pickle", "job.pickle", "--tolerance", "x"], "x"),
        (&["diff", "job.pickle", "absent.pickle"], "absent.pickle"),
    ] {
        let line = predicate::function(|text: &str| text.lines().count() == 1);
        let run = gmlake_sim().current_dir(folder.path()).args(arguments).assert().code(2);
        run.stderr(starts_with("gmlake-sim: ").and(contains(words)).and(line));
    }
    let run = gmlake_sim().current_dir(folder.path()).args(["blame", "job.csv"]).assert().success();
    run.stdout(contains("1 MiB")).stderr(contains("listed by size"));
}

#[test]
fn entries_that_cannot_be_used_are_not_called_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    fs::write(&file, "action,addr,size\nalloc,4096,0\nalloc,8192,0\n").unwrap();
    let refused = gmlake_sim().arg("blame").arg(&file).assert().code(2);
    refused.stderr(contains("no entry of the recording can be used"));
}
