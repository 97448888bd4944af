//! What people stumble over who use the command line for the first time: each stumbling block, and that it is gone.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use assert_cmd::Command;
use gmlake::trace::{LoadOptions, Records, load, load_bytes};
use predicates::prelude::*;
use predicates::str::contains;

fn gmlake_sim() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// What a command prints, which must succeed.
fn output(arguments: &[&str]) -> String {
    let assert = gmlake_sim().args(arguments).assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// Every recording that is at hand: those that are shipped, and those in the folder that `GMLAKE_TRACES` names.
fn recordings() -> Vec<PathBuf> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let folders = std::env::var_os("GMLAKE_TRACES").map(PathBuf::from).into_iter().chain([shipped]);
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths.filter(|path| path.to_string_lossy().ends_with(".pickle.xz")).collect()
}

/// The files that `export` writes of a recording, as a snapshot and as a table.
fn both_exports(recording: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    let (pickle, csv) = (folder.join("export.pickle"), folder.join("export.csv"));
    for (out, format) in [(&pickle, "snapshot"), (&csv, "csv")] {
        let mut run = gmlake_sim();
        run.arg("export").arg(recording).arg("--out").arg(out).args(["--format", format]);
        run.assert().success();
    }
    (pickle, csv)
}

fn records(path: &Path) -> Records {
    let mut all = load(path, &LoadOptions::default()).unwrap();
    all.retain(|records| !records.entries.is_empty());
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn an_exported_table_says_all_that_the_exported_snapshot_says() {
    let folder = tempfile::tempdir().unwrap();
    for recording in recordings() {
        let (pickle, csv) = both_exports(&recording, folder.path());
        let (pickle, csv) = (records(&pickle), records(&csv));
        let name = recording.display();
        assert!(pickle.entries == csv.entries, "{name}: entries");
        assert!(pickle.segments == csv.segments, "{name}: segments");
        assert_eq!(pickle.annotations, csv.annotations, "{name}");
        assert_eq!(pickle.settings, csv.settings, "{name}");
        assert_eq!(
            (pickle.streams, pickle.pools, pickle.has_pools, pickle.has_segments),
            (csv.streams, csv.pools, csv.has_pools, csv.has_segments),
            "{name}"
        );
    }
}

#[test]
fn an_exported_table_has_the_peaks_of_the_exported_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let names =
        ["streams", "detection.expandable-cap20pct", "opt-1.3b-LR-var.gc60-cap16pct", "graphs"];
    for name in names {
        let recording = format!("traces/{name}.pickle.xz");
        let (pickle, csv) = both_exports(Path::new(&recording), folder.path());
        let rows = |file: &Path| {
            let file = file.to_str().unwrap();
            let allocators = "caching,expandable,gmlake,lake,bound";
            let text = output(&["compare", file, "--allocators", allocators, "--export-csv", "-"]);
            let mut table = csv::Reader::from_reader(text.as_bytes());
            let heading = table.headers().unwrap().clone();
            let rows = table.records().map(Result::unwrap).map(move |row| {
                let cells = heading.iter().zip(&row);
                let timed = ["file", "host_ns_per_event"];
                let cells = cells.filter(|(column, _)| !timed.contains(column));
                cells.map(|(_, cell)| cell.to_owned()).collect::<Vec<_>>()
            });
            rows.collect::<Vec<_>>()
        };
        let expected = rows(&pickle);
        assert_eq!(
            expected.len(),
            6,
            "{name}: a row for the recording, and one for each allocator"
        );
        assert_eq!(rows(&csv), expected, "{name}");
    }
}

fn only(bytes: &[u8]) -> Records {
    load_bytes(bytes, &LoadOptions::default()).unwrap().remove(0)
}

#[test]
fn tables_are_read_as_spreadsheets_and_people_write_them() {
    let plain = only(b"action,addr,size\nalloc,0x100,512\nfree,256,512\n");
    assert_eq!(plain.entries.len(), 3);
    let others: [&[u8]; 7] = [
        b"\"action\",\"addr\",\"size\"\n\"alloc\",\"0x100\",\"512\"\n\"free\",\"256\",\"512\"\n",
        b"\xef\xbb\xbfaction,addr,size\r\nalloc,0x100,512\r\nfree,256,512\r\n",
        b"\xef\xbb\xbf# a comment\n\"Action\" , \"Addr\" , \"Size\"\nalloc,0x100,512\nfree,256,512\n",
        b"action;addr;size\nalloc;0x100;512\nfree;256;512\n",
        b"ACTION\tADDR\tSIZE\nAlloc\t0x100\t512\nFREE\t256\t512\n",
        b"step,action,addr,size,tensor\n1,alloc,0x100,512,w\n2,free,256,512,\n",
        b"action,addr,size\nalloc,0x100,512,too,many\nfree,256,512,\n",
    ];
    for text in others {
        let shown = String::from_utf8_lossy(text);
        assert_eq!(only(text).entries, plain.entries, "{shown}");
    }
    let by_hand = only(b"Event;ID;Size\nAlloc;w;1GiB\nEMPTY_CACHE;;\nfree;w;\n");
    assert_eq!((by_hand.entries.len(), &by_hand.trims[..]), (3, &[1][..]));
}

#[test]
fn a_column_that_means_nothing_is_told_of() {
    let read = only(b"action,addr,size,tensor,shape\nalloc,0x100,512,w,3\n");
    let [warning] = &read.warnings[..] else { panic!("{:?}", read.warnings) };
    assert_eq!(warning.to_string(), "2 x column that we do not know: left out; first: \"tensor\"");
    assert!(only(b"action,addr,size,pool,time_us,stream\nalloc,1,512,,,\n").warnings.is_empty());
}

#[test]
fn a_file_is_compressed_as_its_name_says() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.pickle");
    let export = |out: &Path| {
        let mut run = gmlake_sim();
        run.args(["export", "traces/graphs.pickle.xz", "--out"]).arg(out).assert().success();
    };
    export(&plain);
    let expected = fs::read(&plain).unwrap();
    let kinds: [(&str, &[u8]); 3] =
        [("gz", &[0x1f, 0x8b]), ("xz", b"\xfd7zXZ\0"), ("zst", &[0x28, 0xb5, 0x2f, 0xfd])];
    for (ending, head) in kinds {
        let packed = folder.path().join(format!("packed.pickle.{ending}"));
        export(&packed);
        let bytes = fs::read(&packed).unwrap();
        assert!(bytes.starts_with(head) && bytes.len() < expected.len() / 4, "{ending}");
        let mut unpacked = Vec::new();
        let mut decoder: Box<dyn Read> = match ending {
            "gz" => Box::new(flate2::read::GzDecoder::new(&bytes[..])),
            "xz" => Box::new(liblzma::read::XzDecoder::new(&bytes[..])),
            _ => Box::new(zstd::stream::read::Decoder::new(&bytes[..]).unwrap()),
        };
        decoder.read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == expected, "{ending}");
        gmlake_sim().arg("verify").arg(&packed).assert().success();
    }
    let packed = folder.path().join("runs.json.gz");
    let export = ["compare", "tests/data/by_hand.csv", "--export-json"];
    gmlake_sim().args(export).arg(&packed).assert().success();
    let text =
        std::io::read_to_string(flate2::read::GzDecoder::new(fs::File::open(&packed).unwrap()));
    assert!(text.unwrap().starts_with('{'));
}

#[test]
fn whoever_stops_reading_ends_the_program_quietly() {
    let large = "traces/opt-1.3b-N.pickle.xz";
    let commands: [&[&str]; 9] = [
        &["export", large, "--out", "-"],
        &["export", large, "--out", "-", "--format", "csv"],
        &["export", large, "--out", "-", "--format", "minimalloc"],
        &["compare", large, "--allocators", "caching", "--export-json", "-"],
        &["report", "traces/graphs.pickle.xz", "--allocators", "caching", "--out", "-"],
        &["allocators"],
        &["inspect", large],
        &["inspect", large, "--export-json", "-"],
        &[
            "sweep",
            "traces/graphs.pickle.xz",
            "--set",
            "gmlake.fragment_limit=2MiB,4MiB",
            "--export-csv",
            "-",
        ],
    ];
    for command in commands {
        let mut run = Process::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        run.current_dir(env!("CARGO_MANIFEST_DIR")).args(command);
        let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The reader goes before the first byte comes.
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        let told: Vec<&str> = told.lines().filter(|line| !line.contains("warning: ")).collect();
        assert_eq!((ended.status.code(), &told[..]), (Some(0), &[][..]), "{command:?}");
    }
}
