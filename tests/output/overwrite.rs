//! Overwriting: no command writes over what it reads, over a recording, or two results into one file.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::common::cli::{gmlake_sim, output};
use predicates::str::contains;

/// The options of a command that name a file, from its help.
fn file_options(command: &str) -> Vec<String> {
    let help = output(&["help", command]);
    let lines = help.lines().map(str::trim).filter(|line| line.starts_with("--"));
    let named = lines.filter_map(|line| {
        line.strip_suffix(" <FILE>").or_else(|| line.split_once(" <FILE> ").map(|(name, _)| name))
    });
    named.map(str::to_owned).collect()
}

#[test]
fn no_page_or_table_replaces_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let packed = |content: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    };
    let json = br#"{"segments": [], "device_traces": [[]]}"#;
    let recordings: [(&str, Vec<u8>); 5] = [
        ("snapshot.pickle", b"\x80\x04}.".to_vec()),
        ("snapshot.pickle.gz", packed(b"\x80\x04}.")),
        ("snapshot.json", json.to_vec()),
        ("snapshot.json.gz", packed(json)),
        ("damaged.xz", b"\xfd7zXZ\0damaged".to_vec()),
    ];
    for (name, content) in recordings {
        let recording = folder.path().join(name);
        fs::write(&recording, &content).unwrap();
        for (command, option) in [("report", "--out"), ("compare", "--export-json")] {
            let mut run = gmlake_sim();
            run.args([command, "tests/data/by_hand.csv", option]).arg(&recording);
            run.assert().code(2).stderr(contains("is a recording, and would be overwritten"));
            assert_eq!(fs::read(&recording).unwrap(), content, "{command} {name}");
        }
    }
}

#[test]
fn results_can_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let results = [
        ("compare", "--export-csv", "runs.csv"),
        ("compare", "--export-json", "runs.json"),
        ("blame", "--export-csv", "blame.csv"),
        ("blame", "--export-json", "blame.json"),
        ("inspect", "--export-json", "inspect.json"),
        ("plan", "--export-json", "plan.json"),
        ("report", "--out", "page.html"),
    ];
    for (command, option, name) in results {
        for ending in ["", ".gz", ".xz"] {
            let out = folder.path().join(format!("{name}{ending}"));
            for _ in 0..2 {
                let mut run = gmlake_sim();
                run.args([command, "tests/data/by_hand.csv", option]).arg(&out);
                run.assert().success();
            }
        }
    }
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"event,id,size\nalloc,w,4MiB\nfree,w,\n";
    let names = ["own.csv", "own.svg", "own.pickle"];
    let mut checked = 0;
    for command in [
        "compare", "plan", "sweep", "tune", "report", "plot", "inspect", "blame", "diff", "verify",
        "export",
    ] {
        for option in file_options(command).iter().filter(|option| *option != "--catalogue") {
            for name in names {
                let own = folder.path().join(name);
                fs::write(&own, content).unwrap();
                // The same file under another name.
                let again = folder.path().join(".").join(name);
                let extra: &[&str] = match command {
                    "sweep" => &["--set", "gmlake.fragment_limit=2MiB"],
                    "plot" => &["--chart", "map"],
                    "diff" => &["tests/data/by_hand.csv"],
                    _ => &[],
                };
                let mut run = gmlake_sim();
                run.arg(command).arg(&own).args(extra).arg(option).arg(&again);
                run.assert().code(2).stderr(contains("is read, and would be overwritten"));
                assert_eq!(fs::read(&own).unwrap(), content, "{command} {option}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 3 * 20, "{checked}");
    let (own, link) = (folder.path().join("own.csv"), folder.path().join("link.csv"));
    std::os::unix::fs::symlink(&own, &link).unwrap();
    let export = |from: &Path, to: &Path| {
        let mut run = gmlake_sim();
        run.arg("export").arg(from).arg("--out").arg(to).assert()
    };
    export(&own, &link).code(2);
    let pattern = folder.path().join("own.c*");
    let mut run = gmlake_sim();
    run.arg("compare").arg(&pattern).arg("--export-csv").arg(&own).assert().code(2);
    export(&own, &folder.path().join("other.pickle")).success();
    assert_eq!(fs::read(&own).unwrap(), content);
}

#[test]
fn two_results_are_not_written_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let (one, same) = (folder.path().join("one.csv"), folder.path().join(".").join("one.csv"));
    let compare = || {
        let mut run = gmlake_sim();
        run.args(["compare", "tests/data/by_hand.csv", "--export-csv"]);
        run
    };
    let refused = compare().arg(&one).arg("--export-json").arg(&same).assert().code(2);
    refused.stderr(contains("give each a file of its own"));
    assert!(!one.exists());
    compare().args(["/dev/null", "--export-json", "/dev/null"]).assert().success();
}

#[test]
fn what_a_link_leads_to_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file.csv"), folder.path().join("link.csv"));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let mut run = gmlake_sim();
    run.args(["compare", "tests/data/by_hand.csv", "--export-csv"]).arg(&link).assert().success();
    assert!(link.is_symlink() && fs::read_to_string(&file).unwrap().starts_with("file,"));
}
