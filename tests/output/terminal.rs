//! The terminal: tables that fit, colours, progress, and quiet.

use std::fs;
use std::process::{Command as Process, Stdio};

use crate::common::cli::{gmlake_sim, output};
use predicates::str::contains;

#[test]
fn colours_are_as_one_says() {
    let command = ["compare", "tests/data/by_hand.csv", "--allocators", "caching,lake"];
    let has_colour = |arguments: &[&str], no_color: Option<&str>| {
        let mut run = gmlake_sim();
        run.env_remove("NO_COLOR").args(command).args(arguments);
        if let Some(value) = no_color {
            run.env("NO_COLOR", value);
        }
        let assert = run.assert().success();
        assert.get_output().stdout.contains(&0x1b)
    };
    assert!(!has_colour(&[], None), "a pipe is no terminal");
    assert!(has_colour(&["--color", "always"], None));
    assert!(has_colour(&["--color", "always"], Some("1")), "who says always means it");
    assert!(!has_colour(&["--color", "never"], None));
    assert!(!has_colour(&["--color", "auto"], Some("1")));
    gmlake_sim().args(command).args(["--color", "blue"]).assert().code(2);
}

#[test]
fn who_wants_no_warnings_gets_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    fs::write(&path, "action,addr,size,tensor\nfree,1,2,w\nalloc,1,512,w\n").unwrap();
    let path = path.to_str().unwrap();
    for (command, code) in [
        (&["compare", path][..], 0),
        (&["plan", path], 0),
        (&["export", path, "--out", "-", "--format", "csv"], 0),
        (&["blame", path], 0),
        (&["diff", path, path], 3),
    ] {
        gmlake_sim().args(command).assert().code(code).stderr(contains("warning: "));
        gmlake_sim().args(command).arg("--quiet").assert().code(code).stderr("");
        gmlake_sim().args(command).arg("-q").assert().code(code).stderr("");
    }
    let wrong = gmlake_sim().args(["compare", "missing.csv", "-q"]).assert().code(2);
    wrong.stderr(contains("missing.csv: cannot be read"));
}

/// What a command shows on a terminal of this many columns; nothing where there is no `script` to make one.
fn on_terminal(columns: u16, command: &str) -> Option<String> {
    let program = assert_cmd::cargo::cargo_bin!("gmlake-sim").display().to_string();
    let line = format!("stty rows 24 cols {columns}; '{program}' {command}");
    let mut run = Process::new("script");
    run.args(["-qec", &line, "/dev/null"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    run.env("NO_COLOR", "1").stdin(Stdio::null()).stderr(Stdio::null());
    let shown = run.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(shown.stdout).unwrap().replace('\r', ""))
}

#[test]
fn a_narrow_terminal_shows_what_an_answer_turns_on() {
    let sets = "--set caching.max_split_size_mb=default,64 --set device-memory=1GiB,2GiB";
    let file = "traces/streams.pickle.xz";
    let commands =
        [(format!("sweep {file} {sets} -q"), "OOMs"), (format!("verify {file} -q"), "differences")];
    for (command, column) in commands {
        let Some(shown) = on_terminal(80, &command) else { return };
        let table = shown.split("Left out").next().unwrap();
        assert!(table.contains(column) && table != shown, "{command}: {shown}");
    }
}

#[test]
fn tables_fit_the_terminal_and_break_no_word() {
    let file = "traces/streams.pickle.xz";
    let commands = [
        format!("compare {file} --profile h200 --details --quiet"),
        format!("plan {file} --quiet"),
        format!("inspect {file} --quiet"),
        format!("verify {file} --quiet"),
        format!("sweep {file} --set gmlake.fragment_limit=2MiB,64MiB --quiet"),
        format!("blame {file} --quiet"),
        format!("blame {file} --fragmentation --quiet"),
        format!("blame {file} --growth --quiet"),
        format!("blame {file} --at oom --device-memory 1GiB --quiet"),
        format!(
            "diff traces/detection.expandable-cap20pct.pickle.xz {file} --tolerance 1TiB --quiet"
        ),
    ];
    for command in commands {
        let words = |text: &str| {
            let rule = |word: &&str| !word.starts_with('-') || word.len() == 1;
            text.split_whitespace().filter(rule).map(str::to_owned).collect::<Vec<_>>()
        };
        let whole = words(&output(&command.split(' ').collect::<Vec<_>>()));
        for columns in [40, 79, 80, 100, 0] {
            let Some(text) = on_terminal(columns, &command) else { return };
            let room = if columns == 0 { 120 } else { usize::from(columns) };
            for line in text.lines() {
                let fits = line.chars().count() <= room || !line.trim().contains(' ');
                assert!(fits, "{command} at {columns}: {line}");
            }
            // Times and paces differ from run to run; all other words are whole, or were left out.
            let odd = words(&text).into_iter().find(|word| {
                let is_word = word.chars().all(|c| c.is_ascii_alphabetic());
                let ours =
                    ["Left", "as", "the", "terminal", "is", "narrow:", "ns", "us", "ms", "s"];
                is_word && !whole.contains(word) && !ours.contains(&word.as_str())
            });
            assert_eq!(odd, None, "{command} at {columns}:\n{text}");
        }
    }
    let narrow = on_terminal(60, &format!("compare {file} --allocators caching --quiet"));
    assert!(narrow.is_none_or(|text| text.contains("caching\n  peak reserved  10.27 GiB\n")));
}

#[test]
fn a_terminal_sees_how_far_we_are_and_a_pipe_does_not() {
    let program = assert_cmd::cargo::cargo_bin!("gmlake-sim").display().to_string();
    let on_terminal = |command: &str| {
        let line = format!("'{program}' {command} > /dev/null");
        let mut run = Process::new("script");
        run.args(["-qec", &line, "/dev/null"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let shown = run.env("TERM", "xterm").stdin(Stdio::null()).output().ok()?;
        shown.status.success().then(|| String::from_utf8_lossy(&shown.stdout).into_owned())
    };
    let job = "traces/opt-1.3b-LR-var.pickle.xz";
    let commands = [
        (format!("compare {job} --allocators caching"), "reading"),
        (format!("plan {job} --allocators caching --cards none"), " runs"),
        ("tune traces/opt-1.3b-RO.pickle.xz".to_owned(), " runs"),
        (format!("inspect {job}"), "reading"),
        (format!("verify {job}"), "reading"),
        (format!("blame {job} --by size"), "reading"),
        (format!("export {job} --out /dev/null"), "writing"),
    ];
    for (command, words) in &commands {
        let Some(shown) = on_terminal(command) else {
            return eprintln!("no script to make a terminal");
        };
        assert!(shown.contains(words), "{command}: {shown:?}");
        let quiet = on_terminal(&format!("{command} --quiet")).unwrap();
        assert_eq!(quiet, "", "{command} --quiet");
    }
    let piped =
        gmlake_sim().args(["plan", job, "--allocators", "caching", "--cards", "none"]).assert();
    piped.success().stderr("");
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_an_error_of_one_line() {
    let cases: [&[&str]; 6] =
        [&[], &["--version"], &["--help"], &["plan", "-h"], &["completions", "bash"], &["help"]];
    for arguments in cases {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let program = assert_cmd::cargo::cargo_bin!("gmlake-sim");
        let found = Process::new(program).args(arguments).stdout(full).output().unwrap();
        let shown = String::from_utf8_lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{arguments:?}: {shown}");
        assert!(shown.starts_with("gmlake-sim: ") && shown.lines().count() == 1, "{shown}");
    }
}
