//! `fleet`, over what is there: recordings that are listed twice, and parts that were damaged.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

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

/// Workers write while the program is told to end.
#[test]
fn ctrl_c_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("x");
    (0..60).for_each(|job| put("pools", &input.join(format!("{job}/rank0.pickle.xz"))));
    let mut stopped = 0;
    // Moments that look random, and are the same in every run.
    for round in 0..30_u64 {
        let out = folder.path().join(format!("out{round}"));
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        command.arg("fleet").arg(&input).arg("--out").arg(&out);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100 + round.wrapping_mul(2_654_435_761) % 97 * 9));
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        stopped += u32::from(child.wait().unwrap().code() == Some(130));
        let all = glob::glob(&out.join("**/*").display().to_string()).unwrap().map(Result::unwrap);
        let all: Vec<_> =
            all.map(|path| path.strip_prefix(&out).unwrap().display().to_string()).collect();
        assert!(!all.iter().any(|path| path.starts_with('.') || path.contains("/.")), "{all:?}");
    }
    assert!(stopped > 3, "it was over before it was stopped");
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
