//! `plan`, `fits`, `sweep`, `tune` and jobs of many ranks, as users meet them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn gmlake_sim() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"))
}

/// The error is one line that begins with the program's name.
fn one_line(text: &str) -> impl Predicate<str> + use<> {
    contains(text.to_owned())
        .and(predicate::str::starts_with("gmlake-sim: "))
        .and(predicate::function(|text: &str| text.lines().count() == 1))
}

/// A job by hand: `count` blocks of `mib` MiB, all live at the end.
pub(crate) fn job(folder: &Path, name: &str, mib: u64, count: u64) -> PathBuf {
    let rows = (0..count).map(|id| format!("alloc,b{id},{}MiB,0\n", mib)).collect::<String>();
    let path = folder.join(name);
    fs::write(&path, format!("event,id,size,stream\n{rows}")).unwrap();
    path
}

#[test]
fn plan_tells_the_smallest_memory_and_the_cards() {
    let folder = tempfile::tempdir().unwrap();
    let path = job(folder.path(), "job.csv", 64, 500);
    let (json, csv) = (folder.path().join("plan.json"), folder.path().join("plan.csv"));
    let markdown = folder.path().join("plan.md");
    let mut run = gmlake_sim();
    run.arg("plan").arg(&path).args(["--allocators", "caching,bound"]);
    run.arg("--export-json").arg(&json).arg("--export-csv").arg(&csv);
    run.arg("--export-markdown").arg(&markdown);
    run.assert()
        .success()
        .stderr("")
        .stdout(contains("\ncaching    31.25 GiB  31.25 GiB"))
        .stdout(contains("RTX 5090").and(contains("OOM 486")))
        .stdout(contains("The smallest of these devices that runs job: A100 40GB: caching."));
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let need = &document["result"]["jobs"][0]["ranks"][0]["needs"][0];
    assert_eq!(need["smallest"]["capacity_bytes"], (500_u64 * 64) << 20);
    assert_eq!(need["below"]["shortage"]["event"], 499);
    let rows = csv::Reader::from_path(&csv).unwrap().records().count();
    assert_eq!(rows, 2 * gmlake::plan::Card::built_in().len());
    assert!(fs::read_to_string(&markdown).unwrap().contains("| caching   |"));
}

#[test]
fn a_card_that_the_reserve_takes_whole_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = job(folder.path(), "job.csv", 64, 500);
    let mut run = gmlake_sim();
    run.arg("plan").arg(&path).args(["--allocators", "caching", "--reserve", "20GiB"]);
    run.assert()
        .success()
        .stderr("")
        .stdout(predicate::str::is_match(r"\nT4 +0 B +OOM 0\n").unwrap())
        .stdout(contains("The smallest of these devices that runs job: H100 80GB: caching."));
}

/// The result of `compare` or `plan` as JSON.
pub(crate) fn exported(command: &str, path: &Path, more: &[&str]) -> serde_json::Value {
    let run = gmlake_sim().arg(command).arg(path).args(more).arg("--json").assert().success();
    let answer: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    answer["result"].clone()
}

/// The runs of a comparison that are not the recording.
pub(crate) fn runs_of(document: &serde_json::Value) -> Vec<serde_json::Value> {
    let runs = document["runs"].as_array().unwrap().iter();
    runs.filter(|run| run["allocator"] != "recorded").cloned().collect()
}

#[test]
fn compare_runs_on_every_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.json");
    let entry = |action: &str, size: u64| {
        let (addr, stream) = (1_u64 << 30, 0);
        serde_json::json!({"action": action, "addr": addr, "size": size, "stream": stream})
    };
    let trace = |size: u64| vec![entry("segment_alloc", size), entry("alloc", size)];
    let traces = [trace(20 << 20), vec![], trace(40 << 20)];
    let snapshot = serde_json::json!({"segments": [], "device_traces": traces});
    fs::write(&path, snapshot.to_string()).unwrap();
    gmlake_sim().arg("compare").arg(&path).assert().code(2).stderr(contains("--device"));
    let found = exported("compare", &path, &["--every-device", "--allocators", "caching"]);
    let runs = found["runs"].as_array().unwrap();
    let held: Vec<_> = runs
        .iter()
        .map(|run| {
            let allocator = run["allocator"].as_str().unwrap();
            (
                run["device"].as_u64().unwrap(),
                allocator,
                run["reserved_peak_bytes"].as_u64().unwrap(),
            )
        })
        .collect();
    let (small, large) = (20 << 20, 40 << 20);
    let wanted = [
        (0, "recorded", small),
        (0, "caching", small),
        (2, "recorded", large),
        (2, "caching", large),
    ];
    assert_eq!(held, wanted);
    let mut shown = gmlake_sim();
    shown.arg("compare").arg(&path).arg("--every-device").assert().success().stdout(
        contains("\ntwo, device 0: PyTorch reserved 20 MiB")
            .and(contains("\ntwo, device 2: PyTorch reserved 40 MiB")),
    );
    let mut folder = gmlake_sim();
    folder.arg("compare").arg(path.parent().unwrap()).arg("--every-device");
    folder.assert().code(2).stderr(one_line("--every-device: name the files one by one"));
}

#[test]
fn a_series_stops_at_the_data() {
    let folder = tempfile::tempdir().unwrap();
    for (batch, count) in [(8, 10), (16, 20), (32, 40)] {
        job(folder.path(), &format!("net.b{batch}.csv"), 100, count);
    }
    let file = |batch: u32| folder.path().join(format!("net.b{batch}.csv"));
    let mut run = gmlake_sim();
    run.arg("plan").arg(file(32)).arg(file(8)).arg(file(16));
    run.args(["--cards", "none", "--device-memory", "3000MiB,500MiB,9GiB,20GiB"]);
    run.arg("--export-plot").arg(folder.path().join("x.svg"));
    run.args(["--allocators", "caching"]).assert().success().stdout(
        contains("16 to 32, near 24").and(contains("not at 8")).and(contains("runs at 32")),
    );
    // A curve for the allocator, and a line for each device that decides.
    let picture = fs::read_to_string(folder.path().join("x.svg")).unwrap();
    let is_named = |name: &str| picture.contains(&format!("\n{name}\n"));
    assert!(["caching", "500 MiB", "2.93 GiB", "9 GiB"].into_iter().all(is_named), "{picture}");
    assert!(!is_named("20 GiB") && picture.matches("<circle").count() == 3, "{picture}");
}

#[test]
fn fits_is_one_line_and_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = job(folder.path(), "job.csv", 64, 160);
    let fits = |more: &[&str]| gmlake_sim().arg("fits").arg(&path).args(more).assert();
    let line = |text: &str| contains(text.to_owned()).and(contains("\n").count(1));
    fits(&["--device-memory", "10GiB"])
        .code(0)
        .stdout(line("fits: job on 10 GiB with caching: holds at most 10 GiB, 0 B never used"));
    // 144 blocks are 9 GiB, but pages are of 20 MiB.
    fits(&["--device-memory", "9GiB", "--allocator", "expandable"]).code(1).stdout(line(
        "does not fit: job on 9 GiB with expandable: runs out of memory in event 143",
    ));
    fits(&["--card", "rtx-4090", "--reserve", "13GiB"]).code(0).stdout(line("RTX 4090 (10.64"));
    fits(&["--card", "rtx-4090", "--reserve", "14GiB"]).code(1);
    // Left to all but PyTorch: what was measured for a training job, or for the uses that are given.
    fits(&["--card", "h100-80gb"]).code(0).stdout(line("after a reserve of 890 MiB"));
    let uses = ["--card", "h100-80gb", "--uses", "context=1,kernel=1"];
    fits(&uses).code(0).stdout(line("after a reserve of 650 MiB"));
    fits(&["--card", "h100-80gb", "--uses", "magic=1"]).code(2);
}

#[test]
fn a_job_of_ranks_is_as_large_as_its_worst() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, count) in [(0, 10), (1, 30), (2, 20)] {
        job(folder.path(), &format!("net.r{rank}.csv"), 64, count);
    }
    let compare = |more: &[&str]| {
        let mut run = gmlake_sim();
        run.arg("compare").arg(folder.path()).args(["--allocators", "caching"]).args(more);
        run.assert()
    };
    compare(&[])
        .success()
        .stdout(contains("net.r*: 3 ranks, 60 events"))
        .stdout(contains("net.r* needs what its worst rank needs: caching 1.88 GiB (rank 1)."));
    compare(&["--device-memory", "1GiB", "--fail-on-oom"]).code(1).stdout(contains("in 2 ranks"));
    fs::write(folder.path().join("net.r7.csv"), "no trace").unwrap();
    compare(&["--device-memory", "1GiB", "--fail-on-oom"]).code(2).stderr(contains("net.r7.csv"));
    let fits = |memory: &str| {
        gmlake_sim().arg("fits").arg(folder.path()).args(["--device-memory", memory]).assert()
    };
    fits("1GiB").code(1).stdout(contains("rank 1 runs out of memory in event 16"));
    fits("4GiB").code(2).stdout(contains("unknown: net.r*")).stderr(contains("no file of rank 3"));
}

#[test]
fn what_only_streams_still_use_is_no_need() {
    let command =
        ["plan", "traces/streams.pickle.xz", "--allocators", "caching", "--cards", "none"];
    let run = gmlake_sim().args(command).assert().success();
    run.stdout(contains(
        "9.97 GiB live at the peak (1.56 GiB without what only streams still use)",
    ));
}

#[test]
fn files_of_any_names_are_one_job_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.r0.csv", "b.csv"].map(|name| job(folder.path(), name, 64, 2));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    for command in [
        &["compare", b, a, "--job"][..],
        &["plan", b, a, "--job", "--cards", "none"],
        &["blame", b, a, "--job"],
        &["fits", b, a, "--job", "--device-memory", "1GiB"],
    ] {
        let run = gmlake_sim().args(command).assert().success();
        let shown = String::from_utf8(run.get_output().stdout.clone()).unwrap();
        assert!(shown.contains("the files given"), "{command:?}: {shown}");
        assert!(!shown.contains("given needs"), "{command:?}: {shown}");
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let a = job(folder.path(), "a.r0.csv", 1, 1);
    let b = job(folder.path(), "b.r0.csv", 1, 1);
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let all = folder.path().to_str().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    let unwritable = "no/such/folder/out.csv";
    let cases: &[(&[&str], &str)] = &[
        (&["plan", a, "--device-memory", "0"], "a device without memory serves nothing"),
        (&["plan", a, "--device-memory", "2000TiB"], "no device has more than 1024TiB"),
        (&["plan", a, "--resolution", "0"], "the smallest is 1B"),
        (&["sweep", a, "--set", "vmm.chunk=2MiB", "--jobs", "0"], "from 1 to 256"),
        (&["plan", a, "--allocator", "lake"], "found; a similar argument exists: '--alloc"),
        (&["plan", a, "--reserve", "1TiB"], "leaves nothing of 14.56 GiB"),
        (&["compare", a, "--uses", "x=1", "--cards", "all"], "there are: communicator, "),
        (&["plan", a, "--cards", "H900"], "there is no card \"H900\"; there are: T4"),
        (&["plan", a, "--catalogue", "no.csv"], "no.csv: cannot be read"),
        (&["plan", a, "--catalogue", a], "is not known here"),
        (&["plan", a, "--allocators", "cashing"], "there is no allocator \"cashing\""),
        (&["plan", a, "--allocators", "cashing,all"], "there is no allocator \"cashing\""),
        (&["plan", a, "--export-csv", unwritable], "cannot write no/such/folder/out.csv"),
        (&["plan", all], "a mix of jobs, such as"),
        (&["plan", empty], "no trace in this folder"),
        (&["plan", a, a, "--job"], "both rank 0"),
        (&["plan", a, b, "--by", "batch"], "does not say its batch"),
        (&["plan", a, b, "--by", "batch=1,2,3"], "3 values for 2 jobs"),
        (&["plan", a, "--by", "batch=1,2"], "batch has 2 values for 1 job\n"),
        (&["plan", a, b, "--by", "batch=1,x"], "write a number for each job"),
        (&["plan", a, b, "--by", "batch=1,1"], "two jobs have the same batch, 1"),
        (&["plan", "no*such"], "no file matches this pattern"),
        (&["compare", a, "--device-memory", "0"], "a device without memory"),
        (&["compare", a, "--frobnicate"], "see 'gmlake-sim help compare'"),
        (&["fits", a, b, "--device-memory", "1GiB"], "fits answers for one job at a time"),
        (&["fits", a], "required arguments were not provided"),
        (&["fits", a, "--card", "H900"], "there is no card"),
        (&["fits", a, "--device-memory", "1GiB", "--card", "H200"], "cannot be used with"),
        (&["blame", a, "--export-flamegraph", "x.png"], "x.png\" does not end so"),
        (&["fits", "missing.csv", "--device-memory", "1GiB"], "missing.csv"),
        (&["sweep", a, "--set", "gmlake.fragment_limit"], "write NAME=VALUE"),
        (&["sweep", a, "--set", "gmlake.speed=1,2"], "gmlake has no option \"speed\""),
        (&["sweep", a, "--set", "device-memory=1GiB..2GiB"], "write a range as"),
        (&["sweep", a, "--set", "vmm.chunk=2MiB,4MiB", "--plot", "x.pdf"], ".svg or .png"),
        (&["sweep", a, "--set", "vmm.chunk=2MiB", "--export-csv", unwritable], "cannot write"),
        (&["sweep", a, "--set", "vmm.chunk=2MiB", "--journal", a], "would be overwritten"),
        (&["sweep", a, "--set", "vmm.chunk=2MiB", "--journal", b], "not the journal of a sweep"),
        (&["sweep", a], "required arguments were not provided"),
        (&["swep", a], "see 'gmlake-sim --help'"),
        (&["tune", a, "--worth", "2"], "a share from 0 to 1"),
        (&["tune", a, "--profile", "p100"], "neither h200 nor h100 nor a100-paper"),
        (&["tune", "missing.csv"], "missing.csv"),
    ];
    for (arguments, message) in cases {
        let run = gmlake_sim().args(*arguments).assert();
        run.code(2).stdout("").stderr(one_line(message));
    }
    assert_eq!(fs::read_to_string(a).unwrap(), "event,id,size,stream\nalloc,b0,1MiB,0\n");
}

const TRACE: &str = "traces/opt-1.3b-N.pickle.xz";

fn sweep(csv: &Path) -> std::process::Command {
    let mut run = std::process::Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    run.args(["sweep", TRACE, "--jobs", "1", "--profile", "h200", "--export-csv"]).arg(csv);
    run.args(["--set", "gmlake.fragment_limit=2MiB..1GiB:x2"]);
    run.args(["--set", "device-memory=60GiB,70GiB,unlimited"]);
    run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    run
}

/// All columns but the time that it took here.
fn rows(csv: &Path) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_path(csv).unwrap();
    let at = reader.headers().unwrap().iter().position(|name| name == "host_ns").unwrap();
    let cells = |row: csv::StringRecord| {
        let kept = row.iter().enumerate().filter(|&(index, _)| index != at);
        kept.map(|(_, cell)| cell.to_owned()).collect()
    };
    reader.records().map(|row| cells(row.unwrap())).collect()
}

#[test]
fn a_sweep_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, killed) = (folder.path().join("whole.csv"), folder.path().join("killed.csv"));
    assert!(sweep(&whole).output().unwrap().status.success());
    let mut child = sweep(&killed).spawn().unwrap();
    let journal = folder.path().join("killed.csv.journal");
    let lines = || fs::read_to_string(&journal).unwrap_or_default().matches('\n').count();
    let start = Instant::now();
    while lines() < 5 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was noted");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = lines() - 1;
    assert!(done < 30 && !killed.exists(), "it was killed too late to show anything");
    let again = sweep(&killed).output().unwrap();
    let message = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        message.contains("going on with ") && message.contains(" runs of an earlier sweep"),
        "{message}"
    );
    assert_eq!(rows(&killed), rows(&whole));
    assert_eq!(rows(&killed).len(), 30);
    assert!(!journal.exists(), "a finished sweep leaves no journal");
    let left = fs::read_dir(folder.path()).unwrap();
    // The killed one had no time to remove the file that it was going to rename.
    let named = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(named.filter(|name| !name.starts_with('.')).count(), 2);
}

#[test]
fn a_sweep_is_written_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut run = gmlake_sim();
    run.args(["sweep", "traces/streams.pickle.xz", "--set", "vmm.chunk=2MiB..16MiB:x2"]);
    run.args(["--set", "device-memory=8GiB,unlimited", "--export-json"]).arg(path("a.json"));
    run.arg("--export-csv").arg(path("a.csv")).arg("--export-markdown").arg(path("a.md"));
    run.arg("--plot").arg(path("a.svg")).arg("--plot").arg(path("a.png"));
    run.assert().success().stdout(contains("streams: 8 runs")).stdout(contains("vmm.chunk"));
    let document: serde_json::Value =
        serde_json::from_slice(&fs::read(path("a.json")).unwrap()).unwrap();
    let document = &document["result"];
    assert_eq!(document["axes"][0]["values"].as_array().unwrap().len(), 4);
    assert_eq!(document["rows"].as_array().unwrap().len(), 8);
    assert_eq!(document["rows"][0]["settings"][1]["value"], "8GiB");
    assert_eq!(rows(&path("a.csv")).len(), 8);
    assert!(fs::read_to_string(path("a.svg")).unwrap().starts_with("<svg"));
    assert!(fs::read(path("a.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn an_empty_sweep_is_written_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = job(folder.path(), "job.csv", 64, 500);
    let csv = folder.path().join("e.csv");
    let files = ["md", "parquet", "svg"].map(|end| folder.path().join(format!("e.{end}")));
    let sweep = |more: &[&str]| {
        let mut run = gmlake_sim();
        run.args(["sweep", "--allocators", "lake", "--set", "device-memory=1GiB,2GiB"]);
        run.arg(&path).args(more).args(["--json", "--export-csv"]).arg(&csv);
        let forms = ["--export-markdown", "--export-parquet", "--plot"];
        forms.iter().zip(&files).for_each(|(form, file)| {
            run.arg(form).arg(file);
        });
        run.assert().success()
    };
    let empty: [(&[&str], &str); 2] =
        [(&["--only-fitting"], "nothing fits"), (&["--shard", "2/4"], "this shard has no points")];
    for (more, line) in empty {
        let found = sweep(more).stderr(contains(line));
        let document: serde_json::Value =
            serde_json::from_slice(&found.get_output().stdout).unwrap();
        assert_eq!(document["result"]["rows"], serde_json::json!([]));
        let text = fs::read_to_string(&csv).unwrap();
        assert!(text.starts_with("file,device-memory,device,") && text.lines().count() == 1);
        assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() > 0));
        fs::remove_file(&csv).unwrap();
    }
}

/// The figures that the README quotes.
#[test]
fn tune_finds_what_helps_and_warns_of_what_does_harm() {
    let trace = "traces/zero3-opt-1.3b-LR-w4.b32.r0.pickle.xz";
    let run = gmlake_sim().args(["tune", trace, "--export-json", "-"]).assert().success();
    let found: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    let (best, default) = (&found["result"][0]["best"], &found["result"][0]["default"]);
    let reserved = |tried: &serde_json::Value| tried["reserved_peak_bytes"].as_u64().unwrap();
    assert!(best["conf"].as_str().unwrap().contains("expandable_segments:True"), "{best}");
    assert!(reserved(best) < reserved(default) * 9 / 10);
    let tried = found["result"][0]["tried"].as_array().unwrap();
    assert!(
        tried.len() > 200
            && tried.iter().all(|t| reserved(t) * 102 / 100 > reserved(best) * 98 / 100)
    );
    let text = gmlake_sim().args(["tune", trace]).assert().success();
    text.stdout(contains("\nexport PYTORCH_ALLOC_CONF=").and(contains("Harmful here")));
}
