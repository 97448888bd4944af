//! `fleet`: many recordings into Parquet tables, as users meet it, and killed at any moment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use gmlake::fleet::{TABLES, Table};
use gmlake::report::parquet::Kind;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

pub(crate) fn gmlake_sim() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
}

pub(crate) fn fleet(input: &Path, out: &Path) -> Command {
    let mut command = gmlake_sim();
    command.arg("fleet").arg(input).arg("--out").arg(out);
    command
}

/// The error is one line that begins with the program's name.
pub(crate) fn one_line(text: &str) -> impl Predicate<str> + use<> {
    contains(text.to_owned())
        .and(predicate::str::starts_with("gmlake-sim: "))
        .and(predicate::function(|text: &str| text.lines().count() == 1))
}

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.pickle.xz"))
}

/// Puts a recording there under another name.
pub(crate) fn put(name: &str, path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(recording(name), path).unwrap();
}

/// Two jobs of a few ranks.
pub(crate) fn small(folder: &Path) -> PathBuf {
    let root = folder.join("snapshots");
    for rank in 0..3 {
        put("pools", &root.join(format!("2026-11-21/pools/rank{rank}.pickle.xz")));
        put("graphs", &root.join(format!("2026-11-22/graphs.r{rank}.pickle.xz")));
    }
    root
}

/// All rows of a table as JSON objects, with job and date from the folders' names.
pub(crate) fn rows(out: &Path, table: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for path in files(out).keys().filter(|path| path.starts_with(&format!("{table}/"))) {
        let reader = SerializedFileReader::new(File::open(out.join(path)).unwrap()).unwrap();
        let folders: Vec<&str> = path.split('/').collect();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let cells = row.get_column_iter().map(|(name, field)| (name.clone(), cell(field)));
            let mut row: Value = cells.collect::<serde_json::Map<_, _>>().into();
            for folder in &folders[1..3] {
                let (name, value) = folder.split_once('=').unwrap();
                row[name] = Value::from(value);
            }
            found.push(row);
        }
    }
    found
}

fn cell(field: &Field) -> Value {
    match field {
        Field::Str(text) => Value::from(text.as_str()),
        Field::Long(number) => Value::from(*number),
        Field::Double(number) => Value::from(*number),
        _ => Value::Null,
    }
}

/// Every file below a folder that is not hidden, and what is in it.
pub(crate) fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let pattern = root.join("**/*").display().to_string();
    let paths = glob::glob(&pattern).unwrap().map(Result::unwrap).filter(|path| path.is_file());
    let shown = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
    let named = paths.map(|path| (shown(&path), fs::read(&path).unwrap()));
    named.filter(|(name, _)| !name.starts_with('.') && !name.contains("/.")).collect()
}

#[test]
fn the_tables_say_what_compare_says() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (small(folder.path()), folder.path().join("out"));
    let mut command = fleet(&input, &out);
    command.args(["--allocators", "caching,lake,gmlake", "--device-memory", "20GiB", "--steps"]);
    command.assert().success().stdout(contains("6 recordings")).stderr("");
    let found = rows(&out, "runs");
    assert_eq!(found.len(), 6 * 4, "three allocators and the recording");
    for row in &found {
        let file = row["file"].as_str().unwrap();
        let mut compare = gmlake_sim();
        compare.args(["compare", file, "--json", "--device-memory", "20GiB"]);
        let output = compare.args(["--allocators", "caching,lake,gmlake"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let runs = document["result"]["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["allocator"] == row["allocator"]).unwrap();
        for name in ["reserved_peak_bytes", "active_peak_bytes", "events", "oom_count"] {
            assert_eq!(row[name], run[name], "{file} {name}");
        }
    }
    assert_eq!(found[0]["job"], "2026-11-21%2Fpools%2Frank%2A");
    assert_eq!(found[0]["date"], "2026-11-21");
    let ranks: Vec<_> = rows(&out, "ranks").iter().map(|row| row["rank"].clone()).collect();
    assert_eq!(ranks, [0, 1, 2, 0, 1, 2]);
    assert!(!files(&out).keys().any(|name| name.starts_with("errors")));
    let steps = rows(&out, "steps");
    assert!(steps.iter().all(|step| step["step"].as_u64() > Some(0)));
}

#[test]
fn a_second_call_does_nothing_and_shards_make_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (small(folder.path()), folder.path().join("out"));
    fleet(&input, &out).assert().success();
    let whole = files(&out);
    fleet(&input, &out).assert().success().stdout(contains("6 recordings, 6 of them done before"));
    assert_eq!(files(&out), whole);
    let shards = folder.path().join("shards");
    for shard in ["2/3", "0/3", "1/3"] {
        fleet(&input, &shards).args(["--shard", shard, "--jobs", "1"]).assert().success();
    }
    assert_eq!(files(&shards), whole);
    let json = fleet(&input, &out).arg("--json").output().unwrap().stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let json = &json["result"];
    assert_eq!((&json["recordings"], &json["recordings_before"]), (&6.into(), &6.into()));
}

#[test]
fn tables_follow_recordings_that_change_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (small(folder.path()), folder.path().join("out"));
    fleet(&input, &out).assert().success();
    let before = files(&out);
    put("streams", &input.join("2026-11-22/graphs.r1.pickle.xz"));
    fleet(&input, &out).assert().success().stdout(contains("3 of them done before"));
    let after = files(&out);
    assert_eq!(before.len(), after.len());
    assert_eq!(before.keys().filter(|name| after.contains_key(*name)).count(), 1 + 2);
    fs::remove_dir_all(input.join("2026-11-22")).unwrap();
    fleet(&input, &out).assert().success();
    assert!(files(&out).keys().all(|name| name.contains("pools") || name == "fleet.json"));
    assert_eq!(fs::read_dir(out.join("ranks")).unwrap().count(), 1, "no empty folder is left");
}

#[test]
fn results_are_no_recordings_wherever_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let input = small(folder.path());
    let out = input.join("results");
    fleet(&input, &out).assert().success();
    let whole = files(&out);
    fleet(&input, &out).assert().success().stdout(contains("6 recordings, 6 of them done before"));
    assert_eq!(files(&out), whole);
    let other = folder.path().join("other");
    fleet(&input.join("*"), &other).assert().success().stdout(contains("6 recordings"));
    let mut none = fleet(&input.join("**/*.json"), &folder.path().join("none"));
    none.assert().code(2).stderr(one_line("no recording here"));
}

#[test]
fn killed_at_any_moment_it_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("snapshots");
    for job in 0..12 {
        for rank in 0..4 {
            put("opt-1.3b-RO", &input.join(format!("job{job}/rank{rank}.pickle.xz")));
        }
    }
    let whole = folder.path().join("whole");
    fleet(&input, &whole).assert().success();
    let (out, expected) = (folder.path().join("out"), files(&whole));
    let mut kills = 0;
    // Moments that look random, and are the same in every run.
    for round in 0..20_u64 {
        let mut command = Process::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        command.arg("fleet").arg(&input).arg("--out").arg(&out);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round.wrapping_mul(2_654_435_761) % 97 * 2));
        kills += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        for (name, content) in files(&out) {
            assert_eq!(expected.get(&name), Some(&content), "{name} is half-written");
        }
    }
    assert!(kills > 3, "it was over before it was killed");
    fleet(&input, &out).assert().success();
    assert_eq!(files(&out), expected);
}

#[test]
fn recordings_without_a_result_are_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (small(folder.path()), folder.path().join("out"));
    fs::write(input.join("2026-11-22/graphs.r3.pickle.xz"), "no recording").unwrap();
    for _ in 0..2 {
        let problem = one_line("problems with recordings: 1; see ");
        fleet(&input, &out).assert().code(2).stderr(problem);
    }
    let errors = rows(&out, "errors");
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0]["rank"], 3);
    let problem = errors[0]["problem"].as_str().unwrap();
    assert!(problem.contains("graphs.r3.pickle.xz") && !problem.contains('\n'), "{problem}");
    assert_eq!(rows(&out, "ranks").len(), 6);
}

#[test]
fn a_manifest_says_what_paths_do_not() {
    let folder = tempfile::tempdir().unwrap();
    put("pools", &folder.path().join("a.pickle.xz"));
    put("graphs", &folder.path().join("b.pickle.xz"));
    let manifest = folder.path().join("m.csv");
    let lines = "path,job,date,rank\na.pickle.xz,one,2026-01-02,0\nb.pickle.xz,one,2026-01-02,1\n";
    fs::write(&manifest, lines).unwrap();
    let out = folder.path().join("out");
    let mut command = gmlake_sim();
    command.arg("fleet").arg("--manifest").arg(&manifest).arg("--out").arg(&out);
    command.assert().success();
    let ranks = rows(&out, "ranks");
    assert_eq!(ranks.len(), 2);
    assert!(ranks.iter().all(|row| row["job"] == "one" && row["date"] == "2026-01-02"));
    assert_eq!(ranks[1]["rank"], 1);
}

#[test]
fn settings_that_are_varied_are_rows_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (small(folder.path()), folder.path().join("out"));
    let mut command = fleet(&input, &out);
    command.args([
        "--set",
        "caching.max_split_size_mb=default,64",
        "--set",
        "device-memory=1GiB,unlimited",
    ]);
    command.assert().success();
    let runs = rows(&out, "runs");
    let settings: Vec<&str> = runs.iter().map(|row| row["settings"].as_str().unwrap()).collect();
    assert_eq!(
        &settings[..3],
        [
            "",
            "caching.max_split_size_mb=default device-memory=1GiB",
            "caching.max_split_size_mb=default device-memory=unlimited"
        ]
    );
    assert_eq!(runs.len(), 6 * 5);
}

#[test]
fn what_was_recorded_is_the_reference_though_the_first_job_does_not_say_it() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("in"), folder.path().join("out"));
    put("pools", &input.join("b/rank0.pickle.xz"));
    fs::create_dir_all(input.join("a")).unwrap();
    fs::write(input.join("a/job.csv"), "event,id,size,stream\nalloc,x,4096,0\n").unwrap();
    fleet(&input, &out).assert().success();
    let json = gmlake_sim().args(["fleet", "report", "--json"]).arg(&out).output().unwrap().stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let json = &json["result"];
    assert_eq!((&json["jobs"], &json["reference"]), (&Value::from(2), &Value::from("recorded")));
    let [known, unknown] = &json["worst_jobs"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((&known["job"], &unknown["job"]), (&"b/rank*".into(), &"a/job".into()));
    assert!(known["lost_bytes"].is_u64() && known["peaks"][0]["allocator"] == "recorded");
    assert!(unknown["lost_bytes"].is_null(), "{unknown}");
    assert!(unknown["peaks"].as_array().unwrap().iter().all(|p| p["allocator"] != "recorded"));
    let mut report = gmlake_sim();
    let row = predicate::str::is_match(r"(?m)^a/job +[-0-9]+ +1 +- +- +- +2 MiB").unwrap();
    report.args(["fleet", "report"]).arg(&out).assert().success().stdout(row);
}

/// Two dumps one behind the other, and a file with one.
#[test]
fn a_snapshot_can_be_chosen_of_files_that_hold_several() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("snapshots");
    fs::create_dir_all(&root).unwrap();
    let dump = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        fs::read(path).unwrap()
    };
    let (first, last) = (dump("snapshot.4.pickle"), dump("cases/oom/mempool.pickle"));
    fs::write(root.join("two.pickle"), [&first[..], &last].concat()).unwrap();
    let events = |number: Option<&str>| {
        let out = folder.path().join(format!("out{}", number.unwrap_or("")));
        let mut command = fleet(&root, &out);
        command.args(["--allocators", "caching"]);
        command.args(number.iter().flat_map(|number| ["--snapshot", number]));
        command.assert().success();
        rows(&out, "ranks")[0]["events"].as_u64().unwrap()
    };
    let found = [Some("1"), Some("2"), None].map(events);
    assert!(found[0] != found[1] && found[1] == found[2], "{found:?}");
    let mut third = fleet(&root, &folder.path().join("third"));
    third.args(["--snapshot", "3"]).assert().code(2);
    let error = rows(&folder.path().join("third"), "errors").remove(0).to_string();
    assert!(error.contains("holds 2 snapshots, and no number 3"), "{error}");
    // The tables of another snapshot are other tables.
    let mut again = fleet(&root, &folder.path().join("out1"));
    let again = again.args(["--allocators", "caching", "--snapshot", "2"]).assert();
    again.code(2).stderr(one_line("out1"));
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (small(folder.path()), folder.path().join("out"));
    fleet(&input, &out).assert().success();
    let refuse = |arguments: &[&str], words: &str| {
        let mut command = gmlake_sim();
        command.arg("fleet").args(arguments).assert().code(2).stdout("").stderr(one_line(words));
    };
    let text = |path: &Path| path.display().to_string();
    let (i, o) = (text(&input), text(&out));
    refuse(&[&i], "--out");
    refuse(&[&i, "--out", &o, "--shard", "3/3"], "write it as I/N");
    refuse(&[&i, "--out", &o, "--steps"], "holds results of other allocators or settings");
    refuse(&[&format!("{i}/2026-11-21"), "--out", &o], "holds results of other inputs");
    refuse(&["-", "--out", &o], "not from standard input");
    refuse(&[&i, "--out", &i], "holds no results of a fleet, but other files");
    refuse(&[&i, "--out", &o, "--allocators", "jemalloc"], "there is no allocator \"jemalloc\"");
    refuse(&["gone.pickle", "--out", &o], "gone.pickle");
    refuse(&["report", &i], "no results of a fleet here");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    refuse(&[&text(&empty), "--out", &o], "no recording here");
    let manifest = folder.path().join("m.csv");
    for (lines, words) in [
        ("job\nx\n", "no column named path"),
        ("path,rank\nin,first\n", "line 2: \"first\" is not the number of a rank"),
        ("path,rank\n,2\n", "line 2: no path"),
    ] {
        fs::write(&manifest, lines).unwrap();
        refuse(&["--manifest", &text(&manifest), "--out", &o], words);
    }
    let manifest = folder.path().join("m.parquet");
    fs::write(&manifest, "not a parquet file").unwrap();
    refuse(&["--manifest", &text(&manifest), "--out", &o], &text(&manifest));
    let damaged = files(&out).into_keys().find(|name| name.starts_with("ranks/")).unwrap();
    fs::write(out.join(&damaged), "PAR1 no more").unwrap();
    refuse(&["report", &o], &damaged);
    refuse(
        &["report", &o],
        "cannot be read: Parquet error: Invalid Parquet file. Corrupt footer\n",
    );
}

#[test]
fn the_page_of_documentation_has_every_column() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fleet.md");
    let page = fs::read_to_string(path).unwrap();
    for Table { name, columns } in TABLES {
        let section = page.split(&format!("### `{name}`\n")).nth(1).expect(name);
        let lines = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let rows = lines.take_while(|line| line.starts_with('|'));
        let mut rows = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        for (column, kind) in columns() {
            let kind = match kind {
                Kind::Text => "text",
                Kind::Whole => "64-bit integer",
                Kind::Real => "double",
            };
            let row = rows.next().unwrap_or_default();
            assert_eq!(row[1..3], [&format!("`{column}`"), kind], "{name}");
            assert!(!row[3].is_empty(), "{name}: {column}");
        }
        assert_eq!(rows.next(), None, "{name}");
    }
}

#[test]
fn no_card_is_counted_for_what_was_not_recorded_completely() {
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("snapshots"), folder.path().join("out"));
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases");
    for (job, case) in [("whole", "stacks/python"), ("cut", "truncated/ring")] {
        fs::create_dir_all(input.join(job)).unwrap();
        let path = input.join(job).join("rank0.pickle");
        fs::copy(cases.join(case).with_extension("pickle"), path).unwrap();
    }
    fleet(&input, &out).assert().success();
    let json = gmlake_sim().args(["fleet", "report", "--json"]).arg(&out).output().unwrap().stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let json = &json["result"];
    assert_eq!(json["incomplete_ranks"], 1);
    for total in json["totals"].as_array().unwrap() {
        let known: u64 = total["enough_cards"]
            .as_array()
            .unwrap()
            .iter()
            .inspect(|count| assert!(count["card"].is_string(), "{count}"))
            .map(|count| count["count"].as_u64().unwrap())
            .sum();
        assert_eq!((known, &total["unknown_cards"]), (1, &Value::from(1)), "{total}");
    }
    for job in json["worst_jobs"].as_array().unwrap() {
        let is_cut = job["job"].as_str().unwrap().starts_with("cut");
        assert_eq!(job["is_lower_bound"], is_cut, "{job}");
    }
    let words = contains("1 of 2 ranks was not recorded completely")
        .and(contains("unknown: a rank of the job was not recorded completely"))
        .and(contains(">= "));
    let mut report = gmlake_sim();
    report.args(["fleet", "report"]).arg(&out).assert().success().stdout(words);
    // Whatever was not recorded: a card that cannot hold what was in use is not enough.
    let small = ["fleet", "report", "--json", "--cards", "RTX-3090", "--reserve", "23.5GiB"];
    let json = gmlake_sim().args(small).arg(&out).output().unwrap().stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let json = &json["result"];
    for total in json["totals"].as_array().unwrap() {
        assert_eq!(total["unknown_cards"], 0, "{total}");
        assert_eq!(total["enough_cards"][0]["card"], Value::Null, "{total}");
    }
}
