//! Folders in which pickles lie beside JSON and CSV.

use std::fs;
use std::path::{Path, PathBuf};

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::stacks::{Job, snapshot};
use crate::fleet::{fleet, gmlake_sim, rows};

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
