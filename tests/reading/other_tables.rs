//! Tables of other programs: the log of RAPIDS RMM, and the lifetimes of minimalloc.

#[cfg(target_os = "linux")]
use std::path::Path;

use crate::common::cli::gmlake_sim;
use gmlake::sim::open_bytes;
use gmlake::trace::synthetic::Program;
use gmlake::trace::{
    Action, LoadOptions, Records, Trace, WarningKind, load_bytes, peak_live_bytes, write_minimalloc,
};
use predicates::str::contains;

fn only(text: &str) -> Records {
    let mut all = load_bytes(text.as_bytes(), &LoadOptions::default()).expect(text);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn refusal(text: &str) -> String {
    let error = load_bytes(text.as_bytes(), &LoadOptions::default()).map(|all| all.len());
    let shown = error.expect_err(text).to_string();
    assert!(!shown.contains('\n'), "{shown}");
    shown
}

/// The program in a table.
fn program(text: &str) -> Trace {
    open_bytes("table".as_ref(), text.as_bytes(), &LoadOptions::default()).expect(text).trace
}

const LOG: &str = "\
Thread,Time,Action,Pointer,Size,Stream
2342727,23:59:59.841961,allocate,0x10012400000,1048576,0
2342727,23:59:59.900000,free,0x10012600000,4096,0
2342728,23:59:59.950000,allocate,0x10012500000,512,0x7f8a38001020
2342728,00:00:00.050000,allocate,(nil),0,0
2342728,00:00:01.000000,free,0x10012500000,512,0x7f8a38001020
2342727,00:00:02.841961,allocate failure,(nil),9663676416,0
";

#[test]
fn a_log_of_rmm_is_a_recording() {
    let log = only(LOG);
    let entries: Vec<_> = log.entries.iter().map(|e| (e.action, e.addr, e.size)).collect();
    let (requested, completed) = (Action::FreeRequested, Action::FreeCompleted);
    let expected = [
        (Action::Alloc, 0x100_1240_0000, 1 << 20),
        (requested, 0x100_1260_0000, 4096),
        (completed, 0x100_1260_0000, 4096),
        (Action::Alloc, 0x100_1250_0000, 512),
        (requested, 0x100_1250_0000, 512),
        (completed, 0x100_1250_0000, 512),
        (Action::Oom, 0, 9 << 30),
    ];
    assert_eq!(entries, expected);
    assert_eq!(log.streams, [0, 0x7f8a_3800_1020]);
    let us = log.entries[6].time_us - log.entries[0].time_us;
    assert_eq!(us, 3_000_000, "over midnight");
    assert!(log.warnings.is_empty(), "{:?}", log.warnings);
    // What was freed without having been allocated was there before.
    let trace = program(LOG);
    assert_eq!((trace.start_events, peak_live_bytes(&trace)), (1, (1 << 20) + 4096));
}

#[test]
fn a_log_of_rmm_that_was_not_flushed_ends_in_a_line() {
    let whole = only(LOG).entries.len();
    let begins = LOG[..LOG.len() - 1].rfind('\n').unwrap() + 1;
    for len in begins + 1..LOG.len() - 2 {
        let log = only(&LOG[..len]);
        assert_eq!(log.entries.len(), whole - 1, "{}", &LOG[begins..len]);
        assert_eq!(log.cut_off.as_deref(), Some("the file ends in the middle of line 7"));
    }
    assert_eq!(only(LOG.trim_end()).entries.len(), whole);
}

#[test]
fn a_wrong_row_of_rmm_is_named() {
    let row = |row: &str| refusal(&format!("{}{row}\n", &LOG[..LOG.find('\n').unwrap() + 1]));
    for (wrong, words) in [
        ("1,10:00:00.0,realloc,0x1,2,0", "line 2: Action \"realloc\" is none of"),
        ("1,10:00:00.0,allocate,here,2,0", "line 2: Pointer is \"here\""),
        ("1,10:00:00.0,allocate,0x1,-2,0", "line 2: Size is \"-2\""),
        ("1,yesterday,allocate,0x1,2,0", "line 2: Time \"yesterday\""),
        ("1,10:00:00.0,allocate,0x1,2,first", "line 2: Stream is \"first\""),
        ("1,10:00:00.0,allocate", "line 2: Size is \"\""),
    ] {
        let shown = row(wrong);
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn the_commands_take_a_log_of_rmm() {
    let compare = ["compare", "-", "--allocators", "rmm-pool,caching"];
    let compared = gmlake_sim().args(compare).write_stdin(LOG).assert().success();
    compared.stdout(contains("rmm-pool"));
    let unknown =
        gmlake_sim().args(["fits", "-", "--device-memory", "80GiB"]).write_stdin(LOG).assert();
    unknown.code(3);
    let inspected = gmlake_sim().args(["inspect", "-"]).write_stdin(LOG).assert().success();
    inspected.stdout(contains("out of memory"));
}

const BY_HAND: &str = "event,id,size\nalloc,a,4096\nalloc,b,1MiB\nfree,a,\nempty_cache,,\n\
                       \"alloc\",\"c\u{fc}\n\",\"8192\"\n";
const RECORDED: &str = "action,addr,size,stream,time_us\nalloc,0x100,4096,0,1\n\
                        alloc,0x2000,8192,7,2\nfree,0x100,4096,0,3\nalloc,0x100,512,0,4\n";
const LIFETIMES: &str = "id,lower,upper,size\na,0,3,4096\nb,1,4,8192\nc,2,5,512\n";

/// Cut at any byte: the part of the table is called a part, unless it ends where a line does.
#[test]
fn a_table_that_is_cut_within_a_line_is_no_complete_recording() {
    for table in [BY_HAND, RECORDED, LIFETIMES, LOG] {
        let opened = |bytes: &[u8]| open_bytes("t".as_ref(), bytes, &LoadOptions::default());
        let whole = opened(table.as_bytes()).expect(table);
        assert_eq!(whole.records.cut_off, None, "{table}");
        let rows = table.find('\n').unwrap() + 1;
        let first = rows + table[rows..].find('\n').unwrap() + 1;
        for end in (first..table.len()).filter(|&end| table.as_bytes()[end - 1] != b'\n') {
            let part = opened(&table.as_bytes()[..end]).expect("it has a whole line");
            let shown = String::from_utf8_lossy(&table.as_bytes()[..end]);
            assert!(part.records.cut_off.is_some() && part.coverage.is_partial(), "{shown}");
            let (of_part, of_whole) = (peak_live_bytes(&part.trace), peak_live_bytes(&whole.trace));
            assert!(of_part <= of_whole && part.notes.is_empty(), "{shown}: {:?}", part.notes);
        }
    }
    let cut = &BY_HAND[..BY_HAND.find("MiB").unwrap()];
    let fits = ["fits", "-", "--device-memory", "80GiB"];
    let answer = gmlake_sim().args(fits).write_stdin(cut).assert().code(3);
    answer.stdout(contains("no line break ends line 3, so that it may be cut off"));
}

fn lifetimes(trace: &Trace) -> String {
    let mut out = Vec::new();
    write_minimalloc(trace, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Rows without the numbers of events that are of no lifetime.
fn again(text: &str) -> String {
    lifetimes(&program(text))
}

#[test]
fn lifetimes_go_out_and_come_in() {
    for kind in Program::ALL {
        let trace = kind.generate(7, 1000);
        let written = lifetimes(&trace);
        let read = program(&written);
        assert_eq!(peak_live_bytes(&read), peak_live_bytes(&trace), "{kind:?}");
        let sizes = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.rsplit(',').next().unwrap().to_owned()).collect()
        };
        let second = again(&written);
        assert_eq!(sizes(&second), sizes(&written), "{kind:?}");
        // Now that only requests and frees are left, every figure stays.
        assert_eq!(again(&second), second, "{kind:?}");
    }
}

#[test]
fn a_problem_of_minimalloc_is_a_program_and_comes_out_as_it_went_in() {
    let problem = "id,lower,upper,size\nb0,0,3,4\nb1,1,4,4\nb2,2,6,8\nb3,5,6,16\n";
    assert_eq!(again(problem), problem);
    // The example of its README, whose best packing has 12 bytes, and its solution.
    let example = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";
    let trace = program(example);
    assert_eq!((trace.requests(), peak_live_bytes(&trace)), (5, 12));
    let solved = "id,lower,upper,size,offset\nb1,0,3,4,8\nb2,3,9,4,8\nb3,0,9,4,4\nb4,9,21,4,4\n\
                  b5,0,21,4,0\n";
    assert_eq!(program(solved).events, trace.events);
    assert!(program(solved).warnings.is_empty());
    // The old form names the last event.
    let old = "buffer_id,start,end,size\nb1,0,2,4\nb2,3,8,4\nb3,0,8,4\nb4,9,20,4\nb5,0,20,4\n";
    assert_eq!(program(old).events, trace.events);
    let negative = example.replace(",0,", ",-5,");
    assert_eq!(program(&negative).events, trace.events);
}

#[test]
fn a_wrong_row_of_minimalloc_is_named() {
    for (row, words) in [
        ("b,3,3,4", "line 2: upper is 3, but must be greater than lower, 3"),
        ("b,3,x,4", "line 2: upper is \"x\""),
        ("b,1.5,2,4", "line 2: lower is \"1.5\""),
        ("b,1,2", "line 2: size is \"\""),
        ("b,1,2,18446744073709551615", "line 2: size is 18446744073709551615"),
    ] {
        let shown = refusal(&format!("id,lower,upper,size\n{row}\n"));
        assert!(shown.contains(words), "{shown}");
    }
    let gaps = program("id,lower,upper,size,gaps\nb,0,9,4,2-5\nc,1,2,4,\n");
    let kinds: Vec<_> = gaps.warnings.iter().map(|warning| warning.kind).collect();
    assert_eq!(kinds, [WarningKind::UnknownColumn]);
}

#[test]
fn the_command_reads_the_lifetimes_that_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("lifetimes.csv");
    let out = out.to_str().unwrap();
    let from = "traces/streams.pickle.xz";
    let export = ["--format", "minimalloc"];
    gmlake_sim().args(["export", from, "--out", out]).args(export).assert().success();
    let again = folder.path().join("again.csv");
    let again = again.to_str().unwrap();
    gmlake_sim().args(["export", out, "--out", again]).args(export).assert().success();
    let rows = |path| std::fs::read_to_string(path).unwrap().lines().count();
    assert!(rows(out) > 200 && rows(out) == rows(again));
}

/// Runs a program with an address space of 500 MB.
#[cfg(target_os = "linux")]
fn within(program: &Path, arguments: &str) -> std::process::Output {
    let line = format!("ulimit -v 500000; exec '{}' {arguments}", program.display());
    std::process::Command::new("sh").args(["-c", &line]).output().expect("sh starts")
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_refused_is_one_line_and_no_abort() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.csv");
    std::fs::write(&path, "action,addr,size\n").unwrap();
    // It is read as a whole, and has no such length on the disk.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
    let path = path.display();
    for (program, arguments, has_jobs) in [
        (assert_cmd::cargo::cargo_bin!("gmlake-sim"), format!("compare --jobs 1 '{path}'"), true),
        (
            assert_cmd::cargo::cargo_bin!("gmlake-replay"),
            format!("fit '{path}' --profile h200"),
            false,
        ),
    ] {
        let output = within(program, &arguments);
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert_eq!(shown.lines().count(), 1, "{shown}");
        assert!(shown.contains("memory ran out") && shown.contains("ulimit"), "{shown}");
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        assert!(shown.starts_with(&format!("{name}: ")), "{shown}");
        assert_eq!(shown.contains("--jobs"), has_jobs, "{shown}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_million_threads_are_a_few() {
    let compare = ["compare", "-", "--allocators", "bound", "--jobs", "1000000"];
    gmlake_sim().args(compare).write_stdin(LOG).assert().success();
    gmlake_sim().args(["help", "compare"]).assert().success().stdout(contains("at most 256"));
}
