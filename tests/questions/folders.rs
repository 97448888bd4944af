//! Folders in which pickles lie beside JSON and CSV.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::stacks::{Job, snapshot};
use crate::fleet::{fleet, gmlake_sim, rows};
use crate::planning_cli::job;

const LEFT_OUT: &str = "2 JSON or CSV files beside pickles not read, such as ";

/// A job of two ranks: the pickle needs 184 MiB, the CSV file 30 GiB. Beside them lie settings and an export.
fn mixed(folder: &Path) -> PathBuf {
    let ranks = folder.join("ranks");
    fs::create_dir(&ranks).unwrap();
    fs::write(ranks.join("rank0.pickle"), snapshot(&Job::default())).unwrap();
    fs::write(ranks.join("rank1.csv"), "event,id,size,stream\nalloc,a,30GiB,0\n").unwrap();
    fs::write(ranks.join("rank0.json"), "{}").unwrap();
    fs::write(ranks.join("settings.json"), "{}").unwrap();
    ranks
}

#[test]
fn a_rank_in_another_format_decides_whether_the_job_fits() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = mixed(folder.path());
    let mut fits = gmlake_sim();
    fits.arg("fits").arg(&ranks).args(["--device-memory", "4GiB"]);
    fits.assert().code(1).stdout(contains("rank 1")).stderr(contains(LEFT_OUT));
    let mut compare = gmlake_sim();
    compare.arg("compare").arg(&ranks).assert().success().stdout(contains("30 GiB"));
    let mut named = gmlake_sim();
    named.arg("fits").arg(ranks.join("rank*.[pc]*")).args(["--device-memory", "4GiB"]);
    named.assert().code(1).stderr(contains("not read").not());
}

#[test]
fn a_fleet_reads_every_rank_and_says_what_it_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = mixed(folder.path());
    let out = folder.path().join("out");
    fleet(&ranks, &out).assert().success().stderr(contains(LEFT_OUT));
    let found: Vec<_> = rows(&out, "ranks").iter().map(|row| row["rank"].clone()).collect();
    assert_eq!(found, [0, 1]);
}

/// A folder with one rank that can be read, and a pipe in the place of another.
fn with_a_pipe(folder: &Path) -> PathBuf {
    let ranks = folder.join("ranks");
    fs::create_dir_all(&ranks).unwrap();
    fs::write(ranks.join("rank0.pickle"), snapshot(&Job::default())).unwrap();
    assert!(Process::new("mkfifo").arg(ranks.join("rank1.pickle")).status().unwrap().success());
    ranks
}

#[test]
fn what_is_no_file_in_a_folder_is_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = with_a_pipe(folder.path());
    for input in [ranks.clone(), ranks.join("*.pickle")] {
        for command in [&["compare"][..], &["fits", "--device-memory", "4GiB"]] {
            let mut run = gmlake_sim();
            let said = run.args(command).arg(&input).timeout(Duration::from_secs(60)).assert();
            said.success().stderr(contains("1 special file not read, such as "));
        }
    }
}

/// Links that lead back or nowhere, and pipes: the one recording among them is read, once, by its own name.
#[test]
fn nothing_in_its_folders_ends_a_fleet_or_keeps_it_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("jobs");
    let ranks = with_a_pipe(&root);
    symlink("..", ranks.join("a-way-up")).unwrap();
    symlink("ranks", root.join("again")).unwrap();
    symlink("jobs", folder.path().join("more")).unwrap();
    symlink("../more", root.join("around")).unwrap();
    symlink("nowhere", root.join("gone.pickle")).unwrap();
    let out = folder.path().join("out");
    let said = fleet(&root, &out).timeout(Duration::from_secs(120)).assert().code(2);
    said.stderr(contains("1 special file not read"));
    let files = |table: &str| -> Vec<String> {
        rows(&out, table).iter().map(|row| row["file"].as_str().unwrap().to_owned()).collect()
    };
    let (read, failed) = (files("ranks"), files("errors"));
    assert!(read.len() == 1 && read[0].ends_with("jobs/ranks/rank0.pickle"), "{read:?}");
    assert!(failed.len() == 1 && failed[0].ends_with("jobs/gone.pickle"), "{failed:?}");
}

/// A rank without a recording may need more than all others.
#[test]
fn a_job_that_lacks_ranks_fits_nowhere_for_certain() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, count) in [(0, 10), (1, 30), (3, 20)] {
        job(folder.path(), &format!("net.r{rank}.csv"), 64, count);
    }
    let run = |arguments: &[&str]| {
        let output = gmlake_sim().args(["-q"]).args(arguments).arg(folder.path()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let fits = |memory: &str| {
        let (code, text) = run(&["fits", "--device-memory", memory]);
        let (_, json) = run(&["fits", "--device-memory", memory, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let result = &json["result"];
        assert_eq!(result["fits"], false);
        assert_eq!(result["coverage"]["kind"], "partial");
        (code, text, result["verdict"].as_str().unwrap().to_owned())
    };
    let gaps = |gap: &str, code: i32| {
        let (found, text, verdict) = fits("4GiB");
        assert_eq!((found, &*verdict), (code, "unknown"), "{text}");
        assert!(text.starts_with("unknown: net.r* on 4 GiB with caching: rank 1 holds"), "{text}");
        assert!(text.contains(gap), "{text}");
        let (found, text, verdict) = fits("1GiB");
        assert_eq!((found, &*verdict), (1, "does_not_fit"), "{text}");
        let (_, text) = run(&["plan", "--allocators", "caching"]);
        assert!(text.contains(">= 1.88 GiB") && text.contains("No device can be"), "{text}");
        let (_, text) = run(&["compare", "--allocators", "caching"]);
        let sentence = "worst rank needs: caching >= 1.88 GiB (rank 1). Lower bounds only: ";
        assert!(text.contains(&format!("{sentence}{gap}")), "{text}");
    };
    gaps("no file of rank 2", 3);
    fs::write(folder.path().join("net.r2.csv"), "no trace").unwrap();
    gaps("1 file cannot be read", 2);
}
