//! Texts of an out-of-memory in place of a recording: explained where no events are needed, and one line elsewhere.

use std::process::{Command, Output, Stdio};

fn text(name: &str) -> String {
    format!("{}/tests/data/cases/oom/{name}.txt", env!("CARGO_MANIFEST_DIR"))
}

fn run(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmlake-sim"));
    let command = command.args(args).stdin(Stdio::piped());
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program that has read enough closes it.
    let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn blame_and_compare_explain_a_message() {
    let (file, summary) = (text("message"), text("summary"));
    for command in ["blame", "compare"] {
        let shown = stdout(&run(&[command, &file], ""));
        assert!(shown.contains("Not fragmentation") && shown.contains("203.49 GiB"), "{shown}");
        assert!(shown.contains("_record_memory_history"), "{shown}");
        let shown = stdout(&run(&[command, &summary], ""));
        assert!(shown.contains("1 request failed"), "{shown}");
        assert!(shown.contains("cache 2 times"), "{shown}");
        assert!(shown.contains("cannot be known"), "{shown}");
    }
    let oom = stdout(&run(&["blame", &file, "--at", "oom"], ""));
    assert!(oom.contains("Not fragmentation"), "{oom}");
    let json = stdout(&run(&["blame", &file, "--json"], ""));
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert!(json.to_string().contains("\"free_yet_refused\""), "{json}");
}

#[test]
fn a_message_may_be_pasted_within_a_long_log() {
    let message = std::fs::read_to_string(text("message")).expect("the case is there");
    let log = format!(
        "{}Traceback (most recent call last):\n  File \"/me/train.py\", line 7, in step\n{message}",
        "step 1: loss 2.5\n".repeat(20_000)
    );
    let shown = stdout(&run(&["blame", "-"], &log));
    assert!(shown.contains("/me/train.py:7 in step requested it."), "{shown}");
    assert!(shown.contains("Not fragmentation"), "{shown}");
}

#[test]
fn commands_that_need_events_say_so_in_one_line() {
    let file = text("message");
    for command in ["plan", "tune", "inspect", "verify", "diff"] {
        let args = [command, &file, &file];
        let args = if command == "diff" { &args[..] } else { &args[..2] };
        let output = run(args, "");
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {shown}");
        assert_eq!(shown.lines().count(), 1, "{command}: {shown}");
        assert!(shown.contains("no events") && shown.contains("gmlake-sim blame"), "{shown}");
    }
}
