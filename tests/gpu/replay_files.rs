//! The files that `gmlake-replay` writes, and its tables: nothing overwritten, nothing half-written, as wide as the
//! terminal.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::cpp::mock;
use crate::replay::{STREAMS, program};

/// The options of a command that name a file, from its help.
fn file_options(command: &[&str]) -> Vec<String> {
    let done = program().args(command).arg("--help").output().unwrap();
    let help = String::from_utf8(done.stdout).unwrap();
    let options = help.lines().map(str::trim).filter(|line| line.starts_with("--"));
    let named = options.filter(|line| line.contains("<FILE>") || line.contains("<PICTURE>"));
    named.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[track_caller]
fn refuses(command: &mut Command, expected: &str) {
    let done = command.output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains(expected), "{expected:?} is not in {errors:?}");
}

#[test]
fn no_command_writes_over_what_it_reads_or_over_a_recording_or_twice() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        fs::write(folder.path().join(name), "event,id,size\nalloc,w,4MiB\n").unwrap();
        folder.path().join(".").join(name)
    };
    let (own, link, recording) = (file("own.svg"), folder.path().join("link.svg"), file("a.svg"));
    std::os::unix::fs::symlink("own.svg", &link).unwrap();
    fs::write(&recording, b"\x80\x04}.").unwrap();
    let mut checked = 0;
    for (command, inputs) in [
        (&["run"][..], &["FILE"][..]),
        (&[], &["FILE"]),
        (&["fit"], &["FILE", "--profile", "FILE"]),
    ] {
        let options = file_options(command);
        // Without a FILE the program calibrates, and only then it draws.
        for option in options.iter().filter(|option| *option != "--export-plot") {
            let run = |to: &Path| {
                let mut program = program();
                let inputs = inputs
                    .iter()
                    .map(|&word| if word == "FILE" { own.as_os_str() } else { word.as_ref() });
                program.args(command).args(inputs).arg(option).arg(to);
                program
            };
            refuses(&mut run(&own), "is read, and would be overwritten");
            refuses(&mut run(&link), "is read, and would be overwritten");
            refuses(&mut run(&recording), "is a recording, and would be overwritten");
            checked += 1;
        }
    }
    assert!(checked >= 7, "{checked}");
    for command in [&["run", "x"][..], &["calibrate"], &[]] {
        let options = file_options(command);
        for pair in options.windows(2) {
            let to = folder.path().join("new.svg");
            let mut program = program();
            program.args(command).arg(&pair[0]).arg(&to).arg(&pair[1]).arg(&to);
            refuses(&mut program, "give each a file of its own");
            assert!(!to.exists());
        }
    }
    refuses(program().args(["fit", "x", "--profile"]).arg(&own).arg("--out").arg(&link), "is read");
    refuses(
        program().args(["run", "x", "--plugin"]).arg(&own).arg("--call-log").arg(&own),
        "is read",
    );
    assert_eq!(fs::read(&own).unwrap(), b"event,id,size\nalloc,w,4MiB\n");
    assert_eq!(fs::read(&recording).unwrap(), b"\x80\x04}.");
}

/// Each output of `run` with the beginning of what it holds.
const OUTPUTS: [(&str, &str); 3] = [
    ("--export-json", "{\n"),
    ("--call-log", "# traces/streams.pickle.xz native\n"),
    ("--call-times", "file,allocator,call,handles,bytes,ns\n"),
];

/// A replay on the mock that writes one of its outputs there.
fn replay_to(folder: &Path, option: &str, to: &Path) -> Command {
    let mut command = program();
    command.args(["run", STREAMS, "--scale", "0.01", "--allocators", "native", option]).arg(to);
    command.env("LD_LIBRARY_PATH", folder);
    command
}

#[test]
fn an_output_may_be_standard_output_a_compressed_file_or_a_pipe() {
    let Some(folder) = mock() else { return };
    let scratch = tempfile::tempdir().unwrap();
    for (option, head) in OUTPUTS {
        let done = replay_to(folder, option, Path::new("-")).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success() && text.starts_with(head), "{option}: {text}");
        assert!(!text.contains("driver peak"), "{option}: a table is in {text}");
        let packed = scratch.path().join(format!("{option}.gz"));
        let done = replay_to(folder, option, &packed).output().unwrap();
        assert!(String::from_utf8_lossy(&done.stdout).contains("driver peak"), "{option}");
        let unpacked = flate2::read::GzDecoder::new(fs::File::open(&packed).unwrap());
        let unpacked = std::io::read_to_string(unpacked).unwrap();
        assert!(unpacked.starts_with(head), "{option}: {unpacked}");
        assert_eq!(unpacked.lines().count(), text.lines().count(), "{option}");
        let pipe = scratch.path().join(format!("{option}.pipe"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut child = replay_to(folder, option, &pipe).stdout(Stdio::null()).spawn().unwrap();
        let read = fs::read_to_string(&pipe).unwrap();
        assert!(child.wait().unwrap().success(), "{option}");
        assert_eq!(read.lines().count(), text.lines().count(), "{option}");
        // A reader that goes changes nothing.
        let mut child = replay_to(folder, option, &pipe).stdout(Stdio::null()).spawn().unwrap();
        drop(fs::File::open(&pipe).unwrap());
        assert!(child.wait().unwrap().success(), "{option}");
    }
    assert!(!Path::new(env!("CARGO_MANIFEST_DIR")).join("-").exists());
}

#[test]
fn what_was_replayed_before_an_error_is_written_whole() {
    let Some(folder) = mock() else { return };
    let scratch = tempfile::tempdir().unwrap();
    for (option, head) in OUTPUTS {
        let to = scratch.path().join(option);
        for to in [to.as_path(), Path::new("-")] {
            let done = replay_to(folder, option, to).arg("missing.pickle").output().unwrap();
            assert_eq!(done.status.code(), Some(2), "{option}");
            let text = match to == Path::new("-") {
                true => String::from_utf8(done.stdout).unwrap(),
                false => fs::read_to_string(to).unwrap(),
            };
            assert!(text.starts_with(head) && text.ends_with('\n'), "{option}: {text}");
        }
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn tables_fit_the_terminal() {
    let Some(folder) = mock() else { return };
    for (columns, last) in [(80, "Left out, as the terminal is narrow"), (160, "events")] {
        let program = env!("CARGO_BIN_EXE_gmlake-replay");
        let command = format!("'{program}' run {STREAMS} --scale 0.01 --allocators native,gmlake");
        let line = format!("stty rows 24 cols {columns}; {command}");
        let mut run = Command::new("script");
        run.args(["-qec", &line, "/dev/null"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        run.env("LD_LIBRARY_PATH", folder).stdin(Stdio::null()).stderr(Stdio::null());
        let shown = run.output().ok().filter(|output| output.status.success());
        let Some(shown) = shown else { return eprintln!("SKIPPED: there is no script") };
        let shown = String::from_utf8(shown.stdout).unwrap().replace('\r', "");
        let fits = |line: &&str| line.chars().count() <= columns || line.starts_with("mock: ");
        assert!(shown.lines().all(|line| fits(&line)), "{shown}");
        assert!(shown.contains(last) && shown.contains("OOM"), "{shown}");
    }
}
