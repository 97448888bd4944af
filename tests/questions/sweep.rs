//! `sweep`: whose journal it is.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use predicates::str::contains;

use crate::fleet::{gmlake_sim, one_line, put};

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
