//! `fleet`, over what is there: recordings that are listed twice, and parts that were damaged.

use std::fs;

use predicates::str::contains;

use crate::fleet::{files, fleet, put, rows, small};

#[test]
fn a_damaged_part_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (small(folder.path()), folder.path().join("out"));
    // One file is no recording, so that there are errors, too.
    fs::write(input.join("2026-11-22/graphs.r9.pickle"), "nothing").unwrap();
    let run = || {
        let mut run = fleet(&input, &out);
        run.arg("--steps").output().unwrap()
    };
    let code = run().status.code();
    let whole = files(&out);
    assert!(whole.len() > 7, "{:?}", whole.keys());
    for (name, content) in whole.iter().filter(|(name, _)| name.ends_with(".parquet")) {
        let damages: [&[u8]; 4] =
            [&[], b"garbage", &content[..content.len() / 2], &content[..content.len() - 1]];
        for damage in damages {
            fs::write(out.join(name), damage).unwrap();
            let again = run();
            let errors = String::from_utf8_lossy(&again.stderr);
            assert_eq!(again.status.code(), code, "{name}: {errors}");
            assert!(files(&out) == whole, "{name} of {} bytes stays", damage.len());
        }
        fs::write(out.join(name), vec![0x5a; content.len()]).unwrap();
        run();
        assert!(files(&out) == whole, "{name}");
    }
    let gone = whole.keys().find(|name| name.starts_with("runs/")).unwrap();
    fs::remove_file(out.join(gone)).unwrap();
    run();
    assert!(files(&out) == whole, "{gone} is still missing");
}

#[test]
fn a_recording_is_counted_once_however_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("x");
    put("pools", &input.join("a/rank0.pickle.xz"));
    put("pools", &input.join("a/rank1.pickle.xz"));
    std::os::unix::fs::symlink(&input, folder.path().join("link")).unwrap();
    let names = ["x", "./x", "x/", "link", "x/a", "x/a/rank0.pickle.xz", "link/*/rank1*"];
    for (at, name) in names.iter().enumerate() {
        let out = folder.path().join(format!("out{at}"));
        let mut run = fleet("x".as_ref(), &out);
        run.current_dir(folder.path())
            .arg(name)
            .assert()
            .success()
            .stdout(contains("2 recordings"));
        let jobs: Vec<_> = rows(&out, "ranks").iter().map(|row| row["job"].clone()).collect();
        assert_eq!(jobs, ["a%2Frank%2A", "a%2Frank%2A"], "{name}");
    }
}
