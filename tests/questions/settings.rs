//! Settings as PyTorch reads them: `--alloc-conf`, sizes and lists as people type and paste them.

use crate::common::cli::{gmlake_sim, output};
use predicates::prelude::*;
use predicates::str::contains;

/// PyTorch 2.11 reserved 642 MiB for it, and 602 MiB with expandable segments.
const JOB: &str = "tests/data/cases/stacks/python.pickle";
const EXPANDABLE: &str = "expandable_segments:True";

/// Each row's allocator, and what it holds at most in MiB.
fn rows(arguments: &[&str]) -> Vec<(String, u64)> {
    let text = output(&[arguments, &["--export-csv", "-", "--quiet"]].concat());
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let heading = table.headers().unwrap().clone();
    let column = |name: &str| heading.iter().position(|column| column == name).unwrap();
    let (name, bytes) = (column("allocator"), column("reserved_peak_bytes"));
    let row =
        |row: csv::StringRecord| (row[name].to_owned(), row[bytes].parse::<u64>().unwrap() >> 20);
    table.records().map(|found| row(found.unwrap())).collect()
}

fn runs(arguments: &[&str]) -> Vec<(String, u64)> {
    rows(&[&["compare", JOB], arguments].concat())
}

fn owned(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|&(name, mib)| (name.to_owned(), mib)).collect()
}

#[test]
fn pytorch_with_expandable_segments_is_the_row_expandable() {
    let found = runs(&["--allocators", "caching", "--alloc-conf", EXPANDABLE]);
    assert_eq!(found, owned(&[("recorded", 642), ("expandable", 602)]));
    let found = runs(&["--allocators", "caching, expandable", "--alloc-conf", EXPANDABLE]);
    assert_eq!(found, owned(&[("recorded", 642), ("expandable", 602)]));
    let off = "expandable_segments:False";
    let found = runs(&["--allocators", "caching , expandable", "--alloc-conf", off]);
    assert_eq!(found, owned(&[("recorded", 642), ("caching", 642), ("expandable", 602)]));
    gmlake_sim()
        .args(["compare", JOB, "--allocators", "caching", "--alloc-conf", EXPANDABLE])
        .args(["--reference", "caching"])
        .assert()
        .success()
        .stderr(contains("PyTorch is the row expandable"))
        .stdout(contains("against expandable"));
}

#[test]
fn every_command_takes_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).display().to_string();
    let (snapshot, page) = (out("export.pickle"), out("page.html"));
    let cases: [(&[&str], &str); 6] = [
        (&["fits", JOB, "--device-memory", "620Mi"], "with expandable: holds at most 602 MiB"),
        (&["plan", JOB, "--allocators", "caching", "--cards", " H200 , B200"], "\nexpandable "),
        (&["sweep", JOB, "--allocators", "caching", "--set", "device-memory=1Gi"], "expandable"),
        (&["blame", JOB, "--fragmentation"], "expandable"),
        (&["report", JOB, "--allocators", "caching", "--out", &page], "602 MiB"),
        (&["export", JOB, "--out", &snapshot], ""),
    ];
    for (command, words) in cases {
        let arguments = [command, &["--alloc-conf", EXPANDABLE, "--quiet"]].concat();
        gmlake_sim().args(&arguments).assert().success().stdout(contains(words));
    }
    let text = output(&["compare", &snapshot, "--allocators", "expandable", "--quiet"]);
    assert!(text.contains("recorded     602 MiB"), "{text}");
}

#[test]
fn a_sweep_of_settings_runs_what_pytorch_would() {
    let axis = format!("alloc-conf=;{EXPANDABLE};backend:cudaMallocAsync");
    let found = rows(&["sweep", JOB, "--allocators", "caching", "--set", &axis]);
    assert_eq!(found, owned(&[("caching", 642), ("expandable", 602), ("cuda-async", 640)]));
}

#[test]
fn a_pasted_line_is_its_value() {
    for line in [
        "export PYTORCH_CUDA_ALLOC_CONF=\"expandable_segments:True\"",
        "PYTORCH_ALLOC_CONF='expandable_segments:True, max_split_size_mb:128MB'",
        "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True python train.py",
    ] {
        let found = runs(&["--allocators", "caching", "--alloc-conf", line]);
        assert_eq!(found.last().unwrap(), &("expandable".to_owned(), 602), "{line}");
    }
}

#[test]
fn an_option_is_refused_by_the_versions_that_refuse_it() {
    let throw = ["compare", JOB, "--alloc-conf", "throw_on_cudamalloc_oom:True"];
    gmlake_sim().args(throw).assert().code(2).stderr(
        contains("PyTorch 2.11 has no option \"throw_on_cudamalloc_oom\": it came with 2.12")
            .and(predicate::function(|text: &str| text.matches("2.12").count() == 1)),
    );
    gmlake_sim().args(throw).args(["--torch-version", "2.12"]).assert().success();
    gmlake_sim()
        .args(["compare", JOB, "--alloc-conf", "pinned_num_register_threads:3"])
        .assert()
        .code(2)
        .stderr(contains("is 3, but must be a power of two up to 128"));
}

#[test]
fn recorded_settings_are_as_pytorch_reads_them() {
    for (file, words) in [
        ("mb", ""),
        ("throw", "it came with 2.12"),
        ("async", "the events are of PyTorch's own allocator"),
    ] {
        let path = format!("tests/data/cases/settings/{file}.pickle");
        gmlake_sim().args(["verify", &path]).assert().success().stdout(contains("Exact: all 586"));
        let shown = gmlake_sim().args(["compare", &path, "--allocators", "caching"]).assert();
        shown.success().stdout(contains("caching     642 MiB")).stderr(contains(words));
    }
    let quiet = ["compare", "tests/data/cases/settings/mb.pickle", "--allocators", "caching"];
    gmlake_sim().args(quiet).assert().success().stderr("");
}
