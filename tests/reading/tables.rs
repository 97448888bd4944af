//! Tables and odd snapshots: what spreadsheets, scripts and other tools make of a recording is read as it was meant.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use crate::common::cli::{gmlake_sim, output};
use crate::common::recordings;
use gmlake::trace::{LoadOptions, Records, load, load_bytes};
use predicates::str::contains;
use rayon::prelude::*;

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
    recordings::all().into_values().collect::<Vec<_>>().par_iter().for_each(|recording| {
        let folder = tempfile::tempdir().unwrap();
        let (pickle, csv) = both_exports(recording, folder.path());
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
    });
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
        b"\xef\xbb\xbf# note\n\"Action\" , \"Addr\" , \"Size\"\nalloc,0x100,512\nfree,256,512\n",
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

/// PyTorch records no requests of zero bytes; RMM, minimalloc and people write them.
#[test]
fn requests_of_zero_bytes_hold_nothing_and_leave_a_recording_complete() {
    let run = |command: &str, table: &str| {
        let mut run = gmlake_sim();
        run.args([command, "-", "--device-memory", "8GiB"]).write_stdin(table.to_owned()).assert()
    };
    for table in [
        "event,id,size\nalloc,none,0\nalloc,w,1GiB\nfree,none,\nfree,w,\n",
        "action,addr,size\nalloc,0,0\nalloc,0,0\nalloc,0x700000000,1073741824\nfree,0,0\nfree,0,0\n",
        "id,lower,upper,size\nnone,0,3,0\nw,1,4,1073741824\nnone2,2,5,0\n",
        "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.0,allocate,(nil),0,0\n\
         1,10:00:00.1,allocate,0x700000000,1073741824,0\n1,10:00:00.2,free,(nil),0,0\n",
    ] {
        run("fits", table).success().stdout(contains("holds at most 1 GiB"));
        assert!(only(table.as_bytes()).warnings.is_empty(), "{table}");
    }
    let failed = "action,addr,size\nalloc,0x700000000,1073741824\noom,0,0\n";
    run("fits", failed).code(3).stdout(contains("out-of-memory in step 1"));
    let mut blame = gmlake_sim();
    let blamed = blame.args(["blame", "-", "--at", "oom"]).write_stdin(failed).assert().code(2);
    blamed.stderr(contains("memory ran out, but the recording does not tell what was requested"));
}

/// Its program requested something, if the tool that wrote the file did not note how much.
#[test]
fn a_block_in_use_for_a_request_of_zero_bytes_was_requested_as_it_is() {
    let block = |size: u64, state: &str| {
        format!("{{\"size\": {size}, \"requested_size\": 0, \"state\": \"{state}\"}}")
    };
    let blocks = [(4096, "active_allocated"), (0, "active_allocated"), (2_093_056, "inactive")];
    let blocks = blocks.map(|(size, state)| block(size, state)).join(",");
    let segment = format!("{{\"address\": 8192, \"total_size\": 2097152, \"blocks\": [{blocks}]}}");
    let text = format!("{{\"segments\": [{segment}], \"device_traces\": [[]]}}");
    let mut compare = gmlake_sim();
    let compared = compare.args(["compare", "-"]).write_stdin(text).assert().success();
    compared.stdout(contains(">= 4 KiB"));
}

/// A clock may be set while a job runs, or a script write nonsense.
#[test]
fn times_beyond_any_job_are_no_panic() {
    let most = u64::MAX;
    for [first, second] in [[0, most], [most, 0], [1 << 62, most], [0, 1 << 53]] {
        let table = format!(
            "action,addr,size,stream,time_us\nalloc,0x700000000,4096,0,{first}\n\
             free,0x700000000,4096,0,{second}\nalloc,0x700000000,8192,0,{most}\n"
        );
        for command in [
            &["compare", "-", "--allocators", "caching,lake,cuda-async", "--profile", "h200"][..],
            &["inspect", "-"],
            &["export", "-", "--out", "-", "--format", "perfetto"],
        ] {
            gmlake_sim().args(command).write_stdin(table.clone()).assert().success();
        }
    }
}

/// A snapshot whose segments have less room than what lives in them, as test generators make them.
fn made_up() -> String {
    let entries: Vec<String> = (0..50_u64)
        .map(|at| (at << 28) + (127 << 40))
        .map(|addr| {
            format!("{{\"action\":\"alloc\",\"addr\":{addr},\"size\":209715200,\"stream\":0}}")
        })
        .collect();
    let block = "{\"size\": 32768, \"requested_size\": 32768, \"state\": \"inactive\"}";
    let segment =
        format!("{{\"address\": 139637976727552, \"total_size\": 32768, \"blocks\": [{block}]}}");
    format!("{{\"segments\": [{segment}], \"device_traces\": [[{}]]}}", entries.join(","))
}

#[test]
fn a_snapshot_that_was_made_up_makes_no_absurd_percentages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made_up.json");
    let path = path.to_str().unwrap();
    let bare = made_up()
        .replace("139637976727552, \"total", "0, \"total")
        .replace("[{\"address\"", "[{\"x\"");
    for text in [made_up(), bare] {
        fs::write(path, text).unwrap();
        let assert =
            gmlake_sim().args(["compare", path, "--allocators", "caching,expandable"]).assert();
        let assert = assert.success().stderr(contains("does not say what PyTorch held"));
        let table = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        assert!(!table.contains("recorded") && table.contains("saved: against caching"), "{table}");
        let words: Vec<&str> = table.split_whitespace().collect();
        let percent = words.windows(2).filter(|pair| pair[1].starts_with('%'));
        for pair in percent {
            let Ok(share) = pair[0].trim_start_matches('(').parse::<f64>() else { continue };
            assert!((-100.0..=100.0).contains(&share), "{table}");
        }
    }
}

#[test]
fn a_snapshot_within_something_else_is_found_or_there_is_advice() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("make.py");
    fs::write(&script, MAKE).unwrap();
    let mut python = Process::new("python3");
    let made = python.arg(&script).arg("tests/data/snapshot.json").arg(folder.path());
    let made = made.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    match made {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("no Python to write files with: {error}"),
    }
    let read = |name: &str| load(&folder.path().join(name), &LoadOptions::default());
    let plain = read("plain.pickle").unwrap();
    for name in [
        "ordered.pickle",
        "default.pickle",
        "torch.pt",
        "deflated.zip",
        "wrapped.pickle",
        "tuple.pickle",
        "list.pickle",
        "wrapped.json",
        "meta.json",
    ] {
        let wrapped = read(name).unwrap();
        assert_eq!(wrapped.len(), plain.len(), "{name}");
        for (wrapped, plain) in wrapped.iter().zip(&plain) {
            assert_eq!(
                (&wrapped.entries, &wrapped.segments),
                (&plain.entries, &plain.segments),
                "{name}"
            );
            assert_eq!(
                (&wrapped.settings, &wrapped.streams),
                (&plain.settings, &plain.streams),
                "{name}"
            );
        }
    }
    for (name, advice) in [
        ("two.pickle", "holds 2 snapshots, of ranks or of moments; choose one with --snapshot N"),
        ("two.json", "holds 2 snapshots, of ranks or of moments; choose one with --snapshot N"),
        ("old.pt", "write the snapshot with pickle.dump(snapshot, file)"),
        ("utf16.csv", "a text in UTF-16: save it in UTF-8"),
    ] {
        let message = read(name).unwrap_err().to_string();
        assert!(message.contains(advice) && message.lines().count() == 1, "{name}: {message}");
    }
}

/// What Python's own writers make of a snapshot in other things; torch.save writes a zip archive like this one.
const MAKE: &str = r#"
import collections, json, os, pickle, sys, zipfile
snapshot = json.load(open(sys.argv[1]))
os.chdir(sys.argv[2])
def pickled(name, value):
    with open(name, "wb") as file:
        pickle.dump(value, file)
def as_json(name, value):
    with open(name, "w") as file:
        json.dump(value, file)
pickled("plain.pickle", snapshot)
pickled("wrapped.pickle", {"rank": 0, "host": {"name": "a"}, "memory": snapshot})
pickled("tuple.pickle", (snapshot, 3))
pickled("list.pickle", [snapshot])
pickled("two.pickle", {"before": snapshot, "after": snapshot})
pickled("ordered.pickle", collections.OrderedDict(snapshot))
pickled("default.pickle", collections.defaultdict(list, snapshot))
as_json("wrapped.json", {"memory": snapshot})
host = {"gpus": [1, 2.5, None, True, "x"]}
as_json("meta.json", {"rank": 0, "host": host, "memory": snapshot, "end": -1})
as_json("two.json", {"before": snapshot, "after": snapshot})
with zipfile.ZipFile("torch.pt", "w") as archive:
    archive.writestr("torch/data.pkl", pickle.dumps(snapshot, 2))
    archive.writestr("torch/version", "3")
with zipfile.ZipFile("deflated.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("snapshot.pickle", pickle.dumps(snapshot))
with open("old.pt", "wb") as file:
    for value in [0x1950a86a20f9469cfc6c, 1001, {"little_endian": True}, snapshot]:
        pickle.dump(value, file, protocol=2)
with open("utf16.csv", "w", encoding="utf-16") as file:
    print("action,addr,size", file=file)
"#;
