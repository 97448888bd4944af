//! Plug-ins on the command line: a row like the others, and one line where one misbehaves.

use std::path::{Path, PathBuf};

use assert_cmd::Command;

const TRACE: &str = "traces/streams.pickle.xz";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A plug-in in C, compiled; `None` without a compiler.
fn compiled(folder: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let out = folder.join("libmine.so");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-I"]).arg(root().join("crates/plugin/include"));
    match cc.args(flags).arg(root().join("crates/plugin").join(source)).arg("-o").arg(&out).status()
    {
        Ok(status) => {
            assert!(status.success());
            Some(out)
        }
        Err(_) => {
            eprintln!("SKIPPED: no cc on this machine, so no plug-in was tried");
            None
        }
    }
}

fn gmlake_sim(command: &str, plug_in: &Path) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    run.current_dir(root()).arg(command).arg(TRACE).arg("--plugin").arg(plug_in);
    run
}

#[test]
fn a_plug_in_is_a_row_of_the_table_and_of_the_json() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = compiled(folder.path(), "templates/first_fit.c", &[]) else { return };
    let table = gmlake_sim("compare", &file).assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(table).unwrap().lines().any(|line| line.starts_with("first-fit ")));
    let mut run = gmlake_sim("compare", &file);
    let run = run.args(["--allocators", "caching", "--profile", "h200", "--json"]);
    let json = run.assert().success().get_output().stdout.clone();
    let answer: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let runs = answer["result"]["runs"].as_array().unwrap();
    let mine = runs.iter().find(|run| run["allocator"] == "first-fit").unwrap();
    assert!(mine["reserved_peak_bytes"].as_u64() > mine["requested_peak_bytes"].as_u64());
    assert!(mine["predicted_driver_ns"]["total"].as_u64() > Some(0));
    gmlake_sim("plan", &file).args(["--allocators", "lake"]).assert().success();
}

#[test]
fn a_plug_in_that_misbehaves_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["-DFLAW=OVERLAP", "-DNAME=\"mine\""];
    let Some(file) = compiled(folder.path(), "tests/data/flawed.c", &flags) else { return };
    for command in ["compare", "plan"] {
        let run = gmlake_sim(command, &file).assert().code(2);
        let said = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        let begin = format!("gmlake-sim: {TRACE}: mine: event 1: it returned 0x");
        assert!(said.starts_with(&begin) && said.lines().count() == 1, "{command}: {said}");
    }
}

#[test]
fn options_reach_the_plug_in_and_a_wrong_file_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = compiled(folder.path(), "templates/first_fit.c", &[]) else { return };
    let run = gmlake_sim("compare", &file).args(["--set", "first-fit.a=1"]).assert().code(2);
    let said = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    assert!(said.contains("the plug-in did not start with the options a=1"), "{said}");
    let run = gmlake_sim("compare", Path::new("README.md")).assert().code(2);
    let said = String::from_utf8(run.get_output().stderr.clone()).unwrap();
    assert!(said.contains("README.md: cannot be loaded: ") && said.lines().count() == 1, "{said}");
}
