//! The command line as users meet it: exit codes, what goes to which stream, and every exported file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

mod recording;
use crate::timeline;
use recording::{pickled, snapshot};

const MIB: u64 = 1 << 20;

fn gmlake_sim() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
}

/// A folder with the job in `job.pickle`.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("there is a place for temporary files");
    let job = folder.path().join("job.pickle");
    fs::write(&job, pickled(&snapshot())).expect("the folder is ours");
    (folder, job)
}

/// The error is one line that begins with the program's name.
fn one_line(text: &str) -> impl Predicate<str> {
    contains(text.to_owned())
        .and(predicate::str::starts_with("gmlake-sim: "))
        .and(predicate::function(|text: &str| text.lines().count() == 1))
}

fn json_file(path: &Path) -> Value {
    let bytes = fs::read(path).expect("the file is there");
    let document: Value = serde_json::from_slice(&bytes).expect("it is JSON");
    document["result"].clone()
}

#[test]
fn help_has_groups_and_examples_to_paste() {
    gmlake_sim().arg("--help").assert().success().stdout(contains("Examples:"));
    let help = gmlake_sim().args(["compare", "--help"]).assert().success();
    let help = String::from_utf8_lossy(&help.get_output().stdout).into_owned();
    for text in ["Input:", "Device:", "Allocators:", "Output:", "Examples:", "--export-plot"] {
        assert!(help.contains(text), "{text}");
    }
    let examples = gmlake_sim().args(["inspect", "--help"]).assert().success();
    examples.stdout(contains("  gmlake-sim inspect ").count(2).and(contains("| gmlake-sim")));
}

#[test]
fn compare_prints_a_table_and_a_sentence() {
    let (_folder, job) = folder();
    let mut run = gmlake_sim();
    run.arg("compare").arg(&job).args(["--allocators", "caching,native"]);
    run.assert()
        .success()
        .stderr("")
        .stdout(contains("memory never runs out"))
        .stdout(contains("\nrecorded "))
        .stdout(contains("\ncaching "))
        .stdout(contains("job: PyTorch reserved 50 MiB for 34 MiB in use (68.0 %)."));
}

#[test]
fn wrong_usage_names_what_there_is_and_exits_with_2() {
    let (_folder, job) = folder();
    let cases: [(&[&str], &str); 9] = [
        (&["--allocators", "cashing"], "there is no allocator \"cashing\"; there are: caching, "),
        (&["--allocators", "native,native"], "listed twice"),
        (&["--set", "native.speed=2"], "native has no option \"speed\"; it has"),
        (&["--set", "speed"], "write allocator.option=value"),
        (&["--allocators", "native", "--set", "caching.x=1"], "not among those compared"),
        (&["--set", "caching.max_split_size_mb=few"], "few"),
        (&["--alloc-conf", "max_split:1"], "max_split"),
        (&["--reference", "best"], "there are: recorded, caching, "),
        (&["--export-plot", "memory.pdf"], ".svg or .png"),
    ];
    for (arguments, message) in cases {
        let run = gmlake_sim().arg("compare").arg(&job).args(arguments).assert();
        run.code(2).stdout("").stderr(one_line(message));
    }
    for arguments in [["--device-memory", "much"], ["--memory-fraction", "0.5"]] {
        gmlake_sim().arg("compare").arg(&job).args(arguments).assert().code(2).stdout("");
    }
}

#[test]
fn what_cannot_be_read_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, empty) = (folder.path().join("no.pickle"), folder.path().join("empty.pickle"));
    fs::write(&empty, "").unwrap();
    for command in ["compare", "inspect"] {
        for path in [&missing, &empty, &folder.path().to_owned()] {
            let run = gmlake_sim().arg(command).arg(path).assert().code(2).stdout("");
            run.stderr(one_line(&path.display().to_string()));
        }
    }
}

#[test]
fn a_bad_file_among_good_ones_is_reported_and_the_others_are_shown_in_order() {
    let (folder, job) = folder();
    let (other, json) = (folder.path().join("another.pickle"), folder.path().join("runs.json"));
    fs::copy(&job, &other).unwrap();
    let mut run = gmlake_sim();
    run.arg("compare").arg(&job).arg("missing.json").arg(&other);
    run.args(["--allocators", "native", "--export-json"]).arg(&json);
    run.assert().code(2).stderr(one_line("missing.json")).stdout(contains("another: "));
    let document = json_file(&json);
    let files = document["runs"].as_array().unwrap().iter().map(|run| run["file"].clone());
    let expected = [&job, &job, &other, &other].map(|path| path.display().to_string());
    assert_eq!(files.collect::<Vec<_>>(), expected);
}

#[test]
fn every_export_is_written() {
    let (folder, job) = folder();
    let path = |name: &str| folder.path().join(name);
    let mut run = gmlake_sim();
    run.arg("compare").arg(&job).arg("--export-json").arg(path("a.json"));
    run.arg("--export-json").arg(path("b.json")).arg("--export-csv").arg(path("a.csv"));
    run.arg("--export-markdown").arg(path("a.md")).arg("--export-plot").arg(path("a.svg"));
    run.arg("--export-timeline").arg(path("t.csv"));
    run.arg("--export-plot").arg(path("a.png")).assert().success();
    let document = json_file(&path("a.json"));
    assert_eq!(document, json_file(&path("b.json")));
    let runs = document["runs"].as_array().unwrap().len();
    assert_eq!(runs, 1 + gmlake::allocator::by_default().count());
    let mut csv = csv::Reader::from_path(path("a.csv")).unwrap();
    assert_eq!(csv.records().map(Result::unwrap).count(), runs);
    let markdown = fs::read_to_string(path("a.md")).unwrap();
    assert!(markdown.starts_with("### job\n"), "{markdown}");
    let svg = fs::read_to_string(path("a.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    let png = fs::read(path("a.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 5_000);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 8, "nothing else is left behind");
    for run in document["runs"].as_array().unwrap() {
        timeline::peaks_over_time(&path("t.csv"), run);
        assert!(timeline::most_over_time(&path("t.csv"), run, "end") > Some(5 * 250_000), "{run}");
    }
}

/// On the virtual GPU nothing is computed, so that the run's length is no GPU's.
#[test]
fn a_share_of_the_run_is_shown_where_its_length_is_that_of_a_gpu() {
    let (folder, job) = folder();
    let path = |name: &str| folder.path().join(name);
    let mut content = snapshot();
    content["gmlake_virtual_gpu"] = json!("H200");
    fs::write(path("virtual.pickle"), pickled(&content)).unwrap();
    fs::write(path("virtual.json"), content.to_string()).unwrap();
    let mut export = gmlake_sim();
    export.arg("export").arg(path("virtual.pickle")).arg("--out").arg(path("again.pickle"));
    export.assert().success();
    let mut export = gmlake_sim();
    export.arg("export").arg(path("virtual.pickle")).arg("--out").arg(path("virtual.csv"));
    export.args(["--format", "csv"]).assert().success();
    let text = |command: &[&str], file: &Path| {
        let assert = gmlake_sim().args(command).arg(file).assert();
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    let compare = ["compare", "--profile", "h200", "--export-markdown", "-"];
    for command in [&compare[..], &["tune"]] {
        let on_gpu = text(command, &job);
        assert!(on_gpu.contains("driver") && on_gpu.contains("of run"), "{on_gpu}");
        for name in ["virtual.pickle", "virtual.json", "again.pickle", "virtual.csv"] {
            let found = text(command, &path(name));
            assert!(found.contains("driver") && !found.contains("of run"), "{name}: {found}");
            assert!(!found.contains("gmlake_virtual_gpu"), "{name}: {found}");
            assert!(text(&["inspect"], &path(name)).contains("the virtual GPU"));
        }
    }
    assert!(!text(&["inspect"], &job).contains("virtual"));
}

#[test]
fn the_json_has_the_names_of_the_contract() {
    let (_folder, job) = folder();
    let run = gmlake_sim().arg("compare").arg(&job).args(["--export-json", "-"]).assert().success();
    let document: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!(document["schema_version"], gmlake::report::SCHEMA_VERSION);
    assert_eq!(document["tool_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["command"], "compare");
    let runs = &document["result"]["runs"];
    let (recorded, caching) = (&runs[0], &runs[1]);
    assert_eq!(recorded["allocator"], "recorded");
    for run in [recorded, caching] {
        assert_eq!(run["reserved_peak_bytes"], 50 * MIB);
        assert_eq!(run["active_peak_bytes"], 34 * MIB);
        assert_eq!(run["requested_peak_bytes"], 34 * MIB);
        assert_eq!(run["utilization"], 0.68);
        assert_eq!(run["device_calls"]["mem_alloc"], 2);
        assert_eq!(run["device_calls"].as_object().unwrap().len(), 9);
        assert_eq!((&run["oom_count"], &run["first_oom_event"]), (&json!(0), &Value::Null));
        for key in ["file", "device", "options", "events", "fragmentation", "alloc_retries"] {
            assert!(!run[key].is_null(), "{key}");
        }
    }
    assert_eq!(recorded["host_ns"], Value::Null);
    assert!(caching["host_ns"].is_u64() && caching["allocator_counters"].is_object());
}

#[test]
fn an_export_that_cannot_be_written_is_refused_before_any_work() {
    let (folder, _) = folder();
    for path in [folder.path().join("no/such/folder/a.json"), folder.path().to_owned()] {
        // The trace does not exist either, which would be found out later.
        let mut run = gmlake_sim();
        run.args(["compare", "missing.json", "--export-json"]).arg(&path);
        run.assert().code(2).stderr(one_line(&format!("cannot write {}", path.display())));
    }
}

#[test]
fn a_run_without_a_result_leaves_no_file_and_keeps_the_old_one() {
    let (folder, _) = folder();
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.csv"));
    fs::write(&old, "old").unwrap();
    let mut run = gmlake_sim();
    run.args(["compare", "missing.json", "--export-json"]).arg(&old).arg("--export-csv").arg(&new);
    run.assert().code(2);
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "job.pickle and old.json");
}

#[test]
fn running_out_of_memory_is_a_result_and_an_answer_if_one_is_wanted() {
    let (_folder, job) = folder();
    let run = |memory: &str, more: &[&str]| {
        let mut run = gmlake_sim();
        run.arg("compare").arg(&job).args(["--device-memory", memory]).args(more);
        run.assert()
    };
    let sentence = "caching runs out of memory at event ";
    run("32MiB", &[]).success().stdout(contains(sentence)).stdout(contains("device of 32 MiB"));
    run("32MiB", &["--fail-on-oom"]).code(1).stdout(contains(sentence));
    run("32MiB", &["--fail-on-oom", "--on-oom", "stop"]).code(1);
    run("1GiB", &["--fail-on-oom"]).success();
}

#[test]
fn strict_refuses_what_had_to_be_assumed() {
    let (folder, _) = folder();
    let mut snapshot = snapshot();
    let entries = snapshot["device_traces"][0].as_array_mut().unwrap();
    let mut stray = entries[4].clone();
    stray["addr"] = Value::from(0x1234_5600);
    entries.insert(4, stray);
    let path = folder.path().join("stray.pickle");
    fs::write(&path, pickled(&snapshot)).unwrap();
    let lax = gmlake_sim().arg("compare").arg(&path).assert().success();
    lax.stderr(contains("gmlake-sim: warning: ").and(contains("stray.pickle")));
    let strict = gmlake_sim().arg("compare").arg(&path).arg("--strict").assert().code(2).stdout("");
    strict.stderr(one_line("(--strict)"));
}

#[test]
fn standard_input_is_a_file_that_can_be_read_once() {
    let mut run = gmlake_sim();
    run.args(["inspect", "-"]).write_stdin(pickled(&snapshot()));
    run.assert().success().stdout(contains("34 MiB in 2 blocks"));
    gmlake_sim().args(["compare", "-", "-"]).assert().code(2).stderr(one_line("only once"));
}

#[test]
fn inspect_shows_and_exports_what_is_in_the_file() {
    let (folder, job) = folder();
    let json = folder.path().join("inspection.json");
    let run = gmlake_sim().arg("inspect").arg(&job).arg("--export-json").arg(&json).assert();
    run.success()
        .stdout(contains("PyTorch's defaults"))
        .stdout(contains("segment_alloc"))
        .stdout(contains("The recording is complete."))
        .stdout(contains("2 MiB to 4 MiB"));
    let found = json_file(&json);
    assert_eq!(found[0]["peak"]["requested_bytes"], 34 * MIB);
    assert_eq!(found[0]["segments"]["bytes"], 50 * MIB);
    assert_eq!(found[0]["segments"]["largest_free_bytes"], 16 * MIB);
    assert_eq!(found[0]["requests"], 3);
}

#[test]
fn allocators_lists_every_one_with_its_options() {
    let list = gmlake_sim().arg("allocators").assert().success();
    let text = String::from_utf8_lossy(&list.get_output().stdout).into_owned();
    for spec in gmlake::allocator::ALL {
        assert!(text.contains(spec.summary), "{}", spec.name);
        for option in spec.options {
            assert!(text.contains(&format!("{}.{}", spec.name, option.name)));
        }
    }
}

/// `gmlake-sim inspect ... | head -1` is no failure.
#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let commands: [&[&str]; 3] = [
        &["inspect", "-"],
        &["compare", "-", "--export-json", "-"],
        &["report", "-", "--out", "-"],
    ];
    let (_folder, job) = folder();
    for arguments in commands {
        let mut child = Process::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The reader is gone before the program has anything to say.
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&fs::read(&job).unwrap()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

/// The profile is named wherever its numbers are.
#[test]
fn a_profile_prices_the_driver_calls() {
    let trace = "traces/streams.pickle.xz";
    let run = |more: &[&str]| gmlake_sim().args(["compare", trace]).args(more).output().unwrap();
    let text = |output: &[u8]| String::from_utf8_lossy(output).into_owned();
    let allocators = ["--allocators", "caching,native", "--profile"];
    let table = text(&run(&[&allocators[..], &["a100-paper"]].concat()).stdout);
    assert!(table.contains("driver time by profile a100-paper"), "{table}");
    let json = run(&[&allocators[..], &["h200", "--export-json", "-"]].concat()).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let text_of = json.to_string();
    assert!(text_of.contains("\"profile\":\"h200\""), "{text_of}");
    for field in ["predicted_driver_ns", "stream_waits", "recorded_wall_ns"] {
        assert!(text_of.contains(field), "{field} is not in {text_of}");
    }
    let refused = run(&[&allocators[..], &["nope"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("neither h200 nor h100 nor a100-paper"));
}

/// `verify` says yes, no, or that there is nothing to verify.
#[test]
fn a_verification_is_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: String| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let exact = snapshot();
    let mut moved = exact.clone();
    let address = moved["device_traces"][0][6]["addr"].as_u64().unwrap();
    moved["device_traces"][0][6]["addr"] = json!(address + 4096);
    let exact = write("exact.json", exact.to_string());
    let moved = write("moved.json", moved.to_string());
    let csv = write("hand.csv", "event,id,size,stream\nalloc,a,1,0\n".to_owned());
    let verify = |path: &PathBuf| gmlake_sim().arg("verify").arg(path).assert();
    verify(&exact).code(0).stdout(contains("Exact: all 7 recorded decisions"));
    verify(&moved).code(1).stdout(contains("Not exact")).stdout(contains("entry 6"));
    verify(&csv).code(2).stderr(contains("nothing to verify"));
}

/// A file that was begun has a hidden name; a signal that ends the program must not leave it there.
#[cfg(unix)]
#[test]
fn a_signal_leaves_no_hidden_file() {
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for signal in ["-INT", "-TERM"] {
        // Nobody writes into the pipe: the program waits for its input.
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
            .arg("compare")
            .arg(&pipe)
            .arg("--export-json")
            .arg(folder.path().join("a.json"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        for _ in 0..500 {
            if files() == 2 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(files(), 2, "the file was not begun");
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(files(), 1, "{signal} left a file");
    }
}
