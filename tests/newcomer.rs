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

/// The options of a command that name a file, from its help.
fn file_options(command: &str) -> Vec<String> {
    let help = output(&[command, "--help"]);
    let lines = help.lines().map(str::trim).filter(|line| line.starts_with("--"));
    let named = lines.filter_map(|line| {
        line.strip_suffix(" <FILE>").or_else(|| line.split_once(" <FILE> ").map(|(name, _)| name))
    });
    named.map(str::to_owned).collect()
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"event,id,size\nalloc,w,4MiB\nfree,w,\n";
    let names = ["own.csv", "own.svg", "own.pickle"];
    let mut checked = 0;
    for command in
        ["compare", "plan", "sweep", "tune", "report", "plot", "inspect", "verify", "export"]
    {
        for option in file_options(command).iter().filter(|option| *option != "--catalogue") {
            for name in names {
                let own = folder.path().join(name);
                fs::write(&own, content).unwrap();
                // The same file under another name.
                let again = folder.path().join(".").join(name);
                let extra: &[&str] = match command {
                    "sweep" => &["--set", "gmlake.fragment_limit=2MiB"],
                    "plot" => &["--chart", "map"],
                    _ => &[],
                };
                let mut run = gmlake_sim();
                run.arg(command).arg(&own).args(extra).arg(option).arg(&again);
                run.assert().code(2).stderr(contains("is read, and would be overwritten"));
                assert_eq!(fs::read(&own).unwrap(), content, "{command} {option}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 3 * 15, "{checked}");
    let (own, link) = (folder.path().join("own.csv"), folder.path().join("link.csv"));
    std::os::unix::fs::symlink(&own, &link).unwrap();
    let export = |from: &Path, to: &Path| {
        let mut run = gmlake_sim();
        run.arg("export").arg(from).arg("--out").arg(to).assert()
    };
    export(&own, &link).code(2);
    let pattern = folder.path().join("own.c*");
    let mut run = gmlake_sim();
    run.arg("compare").arg(&pattern).arg("--export-csv").arg(&own).assert().code(2);
    export(&own, &folder.path().join("other.pickle")).success();
    assert_eq!(fs::read(&own).unwrap(), content);
}

#[test]
fn memory_without_a_unit_is_asked_about() {
    let job = "tests/data/by_hand.csv";
    let commands: [&[&str]; 6] = [
        &["compare", job, "--device-memory", "40"],
        &["plan", job, "--device-memory", "40,80"],
        &["fits", job, "--device-memory", "40"],
        &["tune", job, "--device-memory", "40"],
        &["export", job, "--device-memory", "40", "--out", "-"],
        &["sweep", job, "--allocators", "caching", "--set", "device-memory=40,80"],
    ];
    for command in commands {
        let told = contains("40 without a unit is 40 bytes: write 40GiB, or 40B if you mean it");
        gmlake_sim().args(command).assert().code(2).stderr(told).stdout("");
    }
    gmlake_sim().args(["fits", job, "--device-memory", "4294967296"]).assert().success();
}

/// Words that only those know who know this program's source, or its libraries'.
const OURS: [&str; 15] = [
    "struct ",
    "enum ",
    "expected u",
    "expected i",
    "field `",
    "invalid type",
    "invalid value",
    "EOF",
    "tuple",
    "deserialize",
    "Deserialize",
    "unwrap",
    "Some(",
    "Err(",
    "borrowed",
];

#[test]
fn what_is_wrong_is_said_in_the_users_words() {
    let folder = tempfile::tempdir().unwrap();
    let entry = |text: &str| format!("{{\"segments\": [], \"device_traces\": [[{text}]]}}");
    let texts = [
        entry("5"),
        entry("[]"),
        entry("{\"action\": \"alloc\", \"addr\": \"x\", \"size\": 1}"),
        entry("{\"action\": \"alloc\", \"addr\": 1, \"size\": -1}"),
        entry("{\"action\": \"alloc\", \"addr\": 1, \"size\": 1.5}"),
        entry("{\"addr\": 1}"),
        entry("{\"action\": \"alloc\", \"addr\": 1, \"size\": 1, \"pool_id\": 3}"),
        entry("{\"action\": \"alloc\" \"addr\": 1}"),
        entry("{\"action\": \"alloc\", \"addr\": 1").replace("]]}", ""),
        "{\"segments\": [], \"device_traces\": 5}".to_owned(),
        "{\"segments\": [{\"address\": 1}]}".to_owned(),
        "{\"segments\": [{\"blocks\": [{\"size\": 1, \"state\": \"new\"}]}]}".to_owned(),
        "{\"segments\": [], \"allocator_settings\": [1]}".to_owned(),
        "{\"segments\": [], \"allocator_settings\": {\"expandable_segments\": 3}}".to_owned(),
        "{\"segments\": [], \"external_annotations\": [{\"name\": 3}]}".to_owned(),
        "{\"traceEvents\": [{\"name\": \"[memory]\", \"args\": {}}]}".to_owned(),
        "{\"traceEvents\": [3]}".to_owned(),
    ];
    for text in texts {
        let path = folder.path().join("trace.json");
        fs::write(&path, &text).unwrap();
        refused_in_plain_words(&["inspect", path.to_str().unwrap()], &text);
    }
    let path = folder.path().join("other");
    let other = path.to_str().unwrap();
    for text in ["{}", "{\"name\": 3}", "[", "{\"nam\": \"x\"}"] {
        fs::write(&path, text).unwrap();
        refused_in_plain_words(&["compare", "tests/data/by_hand.csv", "--profile", other], text);
    }
    let head = "name,marketing_gb,usable,source\n";
    for text in [
        "a,b\n1,2\n",
        "name\n",
        &format!("{head}A,x,80GiB,s\n"),
        &format!("{head}A,-1,80GiB,s\n"),
        &format!("{head}A,80\n"),
    ] {
        fs::write(&path, text).unwrap();
        let command = ["plan", "tests/data/by_hand.csv", "--catalogue", other, "--cards", "A"];
        refused_in_plain_words(&command, text);
    }
}

fn refused_in_plain_words(command: &[&str], text: &str) {
    let assert = gmlake_sim().args(command).assert().code(2);
    let told = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert_eq!(told.lines().count(), 1, "{text}: {told}");
    let odd = OURS.iter().find(|word| told.contains(**word));
    assert_eq!(odd, None, "{text}: {told}");
}

#[test]
fn every_command_answers_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, picture, pickle) = (place("a.html"), place("a.svg"), place("a.pickle"));
    let (job, recording) = ("tests/data/by_hand.csv", "traces/graphs.pickle.xz");
    let commands: [&[&str]; 12] = [
        &["compare", job],
        &["plan", job],
        &["fits", job, "--device-memory", "4GiB"],
        &["sweep", job, "--set", "gmlake.fragment_limit=2MiB,4MiB"],
        &["tune", job],
        &["report", job, "--out", &page],
        &["plot", job, "--chart", "map", "--out", &picture],
        &["plot", job, "--chart", "sweep", "--allocators", "gmlake", "--out", &picture],
        &["inspect", job],
        &["verify", recording],
        &["export", job, "--out", &pickle],
        &["allocators"],
    ];
    let subcommands = output(&["--help"]);
    let listed = subcommands.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed =
        listed.take_while(|line| !line.is_empty()).filter(|line| !line.contains("Print this"));
    for line in listed.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        assert!(commands.iter().any(|command| command[0] == name), "{name} is not tried");
    }
    for command in commands {
        let mut with_json = command.to_vec();
        with_json.push("--json");
        let text = output(&with_json);
        let value: serde_json::Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{command:?}: {error}: {text}"));
        assert!(value.is_object() || value.is_array(), "{command:?}");
    }
    for command in
        [&["report", job, "--out", "-", "--json"][..], &["export", job, "--out", "-", "--json"]]
    {
        gmlake_sim().args(command).assert().code(2).stderr(contains("cannot both go to standard"));
    }
}

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
    for command in [
        &["compare", path][..],
        &["plan", path],
        &["export", path, "--out", "-", "--format", "csv"],
    ] {
        gmlake_sim().args(command).assert().success().stderr(contains("warning: "));
        gmlake_sim().args(command).arg("--quiet").assert().success().stderr("");
        gmlake_sim().args(command).arg("-q").assert().success().stderr("");
    }
    let wrong = gmlake_sim().args(["compare", "missing.csv", "-q"]).assert().code(2);
    wrong.stderr(contains("missing.csv: cannot be read"));
}

/// What a command shows on a terminal of so many columns; nothing where there is no `script` to make one.
fn on_terminal(columns: u16, command: &str) -> Option<String> {
    let program = assert_cmd::cargo::cargo_bin!("gmlake-sim").display().to_string();
    let line = format!("stty cols {columns}; '{program}' {command}");
    let mut run = Process::new("script");
    run.args(["-qec", &line, "/dev/null"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    run.env("NO_COLOR", "1").stdin(Stdio::null()).stderr(Stdio::null());
    let shown = run.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(shown.stdout).unwrap().replace('\r', ""))
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
    for name in ["wrapped.pickle", "tuple.pickle", "list.pickle", "wrapped.json", "meta.json"] {
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
        ("two.pickle", "holds 2 snapshots; save each to a file of its own"),
        ("two.json", "a second snapshot: save each to a file of its own"),
        ("ordered.pickle", "write it as a plain dict, with pickle.dump(dict(snapshot), file)"),
        ("default.pickle", "write it as a plain dict, with pickle.dump(dict(snapshot), file)"),
        ("torch.pt", "unzip -p FILE '*/data.pkl' > snapshot.pickle takes the snapshot out of it"),
        ("old.pt", "write the snapshot with pickle.dump(snapshot, file)"),
        ("deflated.zip", "unzip it, and give the file in it"),
        ("utf16.csv", "a text in UTF-16: save it in UTF-8"),
    ] {
        let told = read(name).unwrap_err().to_string();
        assert!(told.contains(advice) && told.lines().count() == 1, "{name}: {told}");
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
as_json("meta.json", {"rank": 0, "host": {"gpus": [1, 2.5, None, True, "x"]}, "memory": snapshot, "end": -1})
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
        (format!("tune {job}"), " runs"),
        (format!("inspect {job}"), "reading"),
        (format!("verify {job}"), "reading"),
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

#[test]
fn a_picture_says_nothing_that_it_does_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let picture = |files: &[&str], chart: &str| {
        let out = folder.path().join("a.svg");
        let mut run = gmlake_sim();
        run.arg("plot").args(files).args(["--chart", chart, "--out"]).arg(&out);
        run.assert().success();
        fs::read_to_string(&out).unwrap()
    };
    let (steps, none) = ("traces/opt-1.3b-N.pickle.xz", "traces/graphs.pickle.xz");
    for chart in ["timeline", "utilization"] {
        assert!(!picture(&[steps], chart).contains("driver time"), "{chart}");
    }
    let latency = picture(&[steps], "latency");
    assert!(latency.contains("driver time by profile h200") && latency.contains(" µs"));
    let height = |svg: &str| -> u32 {
        let (_, rest) = svg.split_once("height=\"").unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let with_empty = picture(&[steps, none], "latency");
    assert!(with_empty.contains("No training steps were found."));
    assert!(height(&with_empty) < height(&latency) * 4 / 3, "an empty panel takes little room");
    let out = folder.path().join("none.svg");
    let mut run = gmlake_sim();
    run.args(["plot", none, "--chart", "latency", "--out"]).arg(&out);
    run.assert().code(2).stderr(contains("no training steps were found"));
    assert!(!out.exists());
}

/// Red, green and blue of every text in a picture.
fn inks(svg: &str) -> Vec<[f64; 3]> {
    let texts = svg.split("<text").skip(1).map(|text| text.split_once('>').unwrap().0);
    let fills = texts.map(|text| text.split_once("fill=\"#").unwrap().1);
    let part =
        |fill: &str, at: usize| f64::from(u8::from_str_radix(&fill[at..at + 2], 16).unwrap());
    fills.map(|fill| [part(fill, 0), part(fill, 2), part(fill, 4)]).collect()
}

/// The contrast of a colour with white, as the Web Content Accessibility Guidelines define it.
fn contrast_with_white(ink: [f64; 3]) -> f64 {
    let linear = |part: f64| match part / 255.0 {
        part if part <= 0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    let [red, green, blue] = ink.map(linear);
    1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
}

#[test]
fn every_word_of_a_picture_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.svg");
    for chart in ["timeline", "utilization", "latency", "map"] {
        let mut run = gmlake_sim();
        run.args(["plot", "traces/opt-1.3b-N.pickle.xz", "--chart", chart, "--out"]).arg(&out);
        run.assert().success();
        let inks = inks(&fs::read_to_string(&out).unwrap());
        assert!(inks.len() > 5, "{chart}");
        for ink in inks {
            assert!(contrast_with_white(ink) >= 4.5, "{chart}: {ink:?}");
        }
    }
}
