//! Words: values that are typed wrongly, and sentences with one of something.

use std::fs;

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::cli::gmlake_sim;

const JOB: &str = "traces/pools.pickle.xz";

#[test]
fn a_negative_value_gets_the_message_of_its_option() {
    for (arguments, words) in [
        (&["compare", JOB, "--device-memory", "-5GiB"][..], "\"-5GiB\" is not a size"),
        (&["tune", JOB, "--device-memory", "-.5"], "\"-.5\" is not a size"),
        (&["compare", JOB, "--max-input", "-1"], "\"-1\" is not a size"),
        (&["diff", JOB, JOB, "--tolerance", "-1%"], "invalid tolerance \"-1%\""),
        (&["blame", JOB, "--top", "-5"], "'-5'"),
        (&["compare", JOB, "--jobs", "-2"], "'-2'"),
    ] {
        let is_one_line = predicate::function(|text: &str| text.lines().count() == 1);
        let expected = contains(words).and(contains("unexpected").not()).and(is_one_line);
        gmlake_sim().args(arguments).assert().code(2).stderr(expected);
    }
    for arguments in [&["compare", JOB, "-5"][..], &["compare", JOB, "--json", "-5"]] {
        gmlake_sim().args(arguments).assert().code(2).stderr(contains("unexpected argument '-5'"));
    }
}

#[test]
fn shares_are_percentages_or_numbers() {
    let tune = |worth: &str| {
        let mut tune = gmlake_sim();
        tune.args(["tune", "tests/data/by_hand.csv", "--json", "--worth", worth]);
        tune.output().unwrap()
    };
    assert_eq!(tune("3%").stdout, tune("0.03").stdout);
    let wrong = String::from_utf8(tune("3 per cent").stderr).unwrap();
    assert!(wrong.contains("is not a share: write a percentage such as 3%"), "{wrong}");
    let wrong = String::from_utf8(tune("300%").stderr).unwrap();
    assert!(wrong.contains("must be a share from 0 to 1"), "{wrong}");
    let mut half = gmlake_sim();
    half.args(["compare", JOB, "--device-memory", "1GiB", "--memory-fraction", "50%"]);
    half.assert().success();
}

#[test]
fn one_block_is_one_block_at_an_event_that_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.csv");
    fs::write(&path, "event,id,size,stream\nalloc,a,1.5GiB,0\nalloc,b,64MiB,1\n").unwrap();
    for (at, text) in [
        ("event:0", "device 0: after event 0; 1.50 GiB live in 1 block\n"),
        ("peak", "device 0: peak of live memory, event 1; 1.56 GiB live in 2 blocks\n"),
    ] {
        let mut blame = gmlake_sim();
        blame.args(["blame", "--at", at]).arg(&path);
        blame.assert().success().stdout(contains(text).and(contains("\n1.50 GiB  1.50 GiB")));
    }
}

#[test]
fn where_nothing_was_requested_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.csv");
    fs::write(&path, "event,id,size\nalloc,a,0\nfree,a,\n").unwrap();
    let mut compare = gmlake_sim();
    compare.arg("compare").arg(&path).assert().success().stdout(
        contains("empty: nothing was requested.")
            .and(contains("no allocator can go").not())
            .and(contains("fit together").not())
            .and(contains("Lower bounds").not()),
    );
}

#[test]
fn counts_of_none_are_not_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.csv");
    fs::write(&path, "event,id,size,stream\nalloc,a,3GiB,0\n").unwrap();
    let sweep = |memory: &str, line: &'static str| {
        let mut run = gmlake_sim();
        run.arg("sweep").arg(&path).args(["--allocators", "lake,bound", "--only-fitting"]);
        run.args(["--set", memory]).assert().success().stderr(contains(line))
    };
    let left_out = "gmlake-sim: 0 runs; 2 points left out, with less memory than is live at once\n";
    sweep("device-memory=1GiB", left_out);
    // A lower bound makes no driver calls.
    let bound = predicate::str::is_match(r"\nbound +4GiB +3 GiB +0 +100.0 % +- +-\n").unwrap();
    sweep("device-memory=4GiB", "").stdout(bound);
}

#[test]
fn what_holds_no_decisions_is_not_exact() {
    let state = "tests/data/cases/truncated/state-only.pickle";
    let nothing = contains("there is nothing to verify: no decision was recorded");
    gmlake_sim().args(["verify", state]).assert().code(2).stdout("").stderr(nothing);
}

#[test]
fn a_chart_without_content_is_no_trouble_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut plot = gmlake_sim();
    plot.args(["plot", "tests/data/by_hand.csv", "--chart", "latency", "--out"]);
    let words = contains("no training steps were found").and(contains("help files").not());
    plot.arg(folder.path().join("p.svg")).assert().code(2).stderr(words);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
