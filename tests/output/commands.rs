//! Commands, in what they share: `--json`, files that are never overwritten, compression, pipes, plain words.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use crate::common::cli::{gmlake_sim, output};
use predicates::str::contains;

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
    let commands: [&[&str]; 12] = [
        &["export", large, "--out", "-"],
        &["export", large, "--out", "-", "--format", "csv"],
        &["export", large, "--out", "-", "--format", "minimalloc"],
        &["compare", large, "--allocators", "caching", "--export-json", "-"],
        &["report", "traces/graphs.pickle.xz", "--allocators", "caching", "--out", "-"],
        &["allocators"],
        &["inspect", large],
        &["inspect", large, "--export-json", "-"],
        &["blame", large],
        &["blame", large, "--export-csv", "-"],
        &["diff", large, large],
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
        let message = String::from_utf8_lossy(&ended.stderr);
        let message: Vec<&str> =
            message.lines().filter(|line| !line.contains("warning: ")).collect();
        assert_eq!((ended.status.code(), &message[..]), (Some(0), &[][..]), "{command:?}");
    }
}

#[test]
fn a_reader_that_goes_changes_no_file_and_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let job = "tests/data/by_hand.csv";
    let commands: [(&[&str], Option<i32>); 5] = [
        (&["compare", job, "--export-csv", "table.csv", "--export-plot", "picture.svg"], Some(0)),
        (&["compare", job, "missing.csv", "--json", "--export-csv", "other.csv"], Some(2)),
        (&["fits", job, "--device-memory", "1MiB"], Some(1)),
        (&["export", job, "--out", "-"], Some(0)),
        (&["blame", job, "--export-csv", "-", "--export-json", "blame.json"], Some(0)),
    ];
    let job = Path::new(env!("CARGO_MANIFEST_DIR")).join(job);
    for (command, code) in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut run = std::process::Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        let words = command.iter().map(|&word| match word {
            "tests/data/by_hand.csv" => job.as_os_str(),
            _ => word.as_ref(),
        });
        run.args(words).current_dir(&folder).stdout(writer).stderr(std::process::Stdio::null());
        assert_eq!(run.status().unwrap().code(), code, "{command:?}");
    }
    let mut files: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["blame.json", "other.csv", "picture.svg", "table.csv"]);
}

#[test]
fn memory_without_a_unit_is_asked_about() {
    let job = "tests/data/by_hand.csv";
    let commands: [&[&str]; 7] = [
        &["compare", job, "--device-memory", "40"],
        &["blame", job, "--at", "oom", "--device-memory", "40"],
        &["plan", job, "--device-memory", "40,80"],
        &["fits", job, "--device-memory", "40"],
        &["tune", job, "--device-memory", "40"],
        &["export", job, "--device-memory", "40", "--out", "-"],
        &["sweep", job, "--allocators", "caching", "--set", "device-memory=40,80"],
    ];
    for command in commands {
        let message = contains("40 without a unit is 40 bytes: write 40GiB, or 40B if you mean it");
        gmlake_sim().args(command).assert().code(2).stderr(message).stdout("");
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
fn each_program_writes_its_manual_pages() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    gmlake_sim().args(["man", "--out"]).arg(&out).assert().success();
    let mut replay = Process::new(assert_cmd::cargo::cargo_bin!("gmlake-replay"));
    assert!(replay.args(["man", "--out"]).arg(&out).status().unwrap().success());
    for page in ["gmlake-sim-compare.1", "gmlake-replay.1", "gmlake-replay-run.1"] {
        let text = fs::read_to_string(out.join(page)).unwrap();
        assert!(text.contains(".TH "), "{page}: {text}");
    }
}

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
        entry("{\"action\": \"alloc\", \"addr\": 1, \"size\": 1, \"frames\": 3}"),
        entry("{\"action\": \"alloc\", \"addr\": 1, \"size\": 1, \"frames\": [3]}"),
        entry("{\"action\": \"alloc\", \"addr\": 1, \"size\": 1, \"frames\": [{\"line\": \"x\"}]}"),
        entry("{\"action\": \"alloc\", \"addr\": 1, \"size\": 1, \"user_metadata\": 3}"),
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
    let message = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert_eq!(message.lines().count(), 1, "{text}: {message}");
    let odd = OURS.iter().find(|word| message.contains(**word));
    assert_eq!(odd, None, "{text}: {message}");
}

#[test]
fn every_command_answers_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (page, picture, pickle) = (place("a.html"), place("a.svg"), place("a.pickle"));
    let tables = place("tables");
    let (job, recording) = ("tests/data/by_hand.csv", "traces/graphs.pickle.xz");
    let commands: [&[&str]; 21] = [
        &["compare", job],
        &["plan", job],
        &["fits", job, "--device-memory", "4GiB"],
        &["sweep", job, "--set", "gmlake.fragment_limit=2MiB,4MiB"],
        &["fleet", job, "--out", &tables],
        &["fleet", "report", &tables],
        &["tune", "traces/opt-1.3b-LR-var.ring20k.pickle.xz"],
        &["report", job, "--out", &page],
        &["plot", job, "--chart", "map", "--out", &picture],
        &["plot", job, "--chart", "sweep", "--allocators", "gmlake", "--out", &picture],
        &["inspect", job],
        &["blame", job],
        &["blame", recording, "--fragmentation"],
        &["blame", recording, "--growth"],
        &["blame", recording, "--at", "oom", "--device-memory", "100MiB"],
        &["diff", job, job],
        &["verify", recording],
        &["export", job, "--out", &pickle],
        &["allocators"],
        &["bench", "--set", "tests/data/set.csv", "--allocators", "caching"],
        &["demo"],
    ];
    let subcommands = output(&["--help"]);
    let listed = subcommands.lines().skip_while(|line| *line != "Commands:").skip(1);
    // Help is text for people.
    let listed =
        listed.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("  help "));
    for line in listed.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        assert!(commands.iter().any(|command| command[0] == name), "{name} is not tried");
    }
    for command in commands {
        let mut with_json = command.to_vec();
        with_json.push("--json");
        let text = output(&with_json);
        has_the_shape_of_all(command, &text);
    }
    for command in [
        &["report", job, "--out", "-", "--json"][..],
        &["export", job, "--out", "-", "--json"],
        &["plot", job, "--chart", "map", "--out", "-", "--json"],
        &["compare", job, "--json", "--export-csv", "-"],
        &["compare", job, "--export-json", "-", "--export-csv", "-"],
    ] {
        gmlake_sim().args(command).assert().code(2).stderr(contains("cannot both go to standard"));
    }
    output(&["compare", job, "--allocators", "caching", "--json", "--export-json", "-"]);
}

/// Every command writes the same: the version first, the result last, and nothing else.
fn has_the_shape_of_all(command: &[&str], text: &str) {
    let whole: serde_json::Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{command:?}: {error}: {text}"));
    let result = &whole["result"];
    assert!(result.is_object() || result.is_array(), "{command:?}: {text}");
    assert_eq!(whole.as_object().unwrap().len(), 4, "{command:?}");
    let is_fleet_report = command.starts_with(&["fleet", "report"]);
    let name = if is_fleet_report { "fleet report" } else { command[0] };
    let (schema, tool) = (gmlake::report::SCHEMA_VERSION, env!("CARGO_PKG_VERSION"));
    let begin = format!(
        "{{\n  \"schema_version\": {schema},\n  \"tool_version\": \"{tool}\",\n  \
         \"command\": \"{name}\",\n  \"result\": "
    );
    let rest = text.strip_prefix(begin.as_str());
    let rest = rest.unwrap_or_else(|| panic!("{command:?}: {text}"));
    assert!(!rest.contains("\"schema_version\""), "{command:?}: a version within the result");
}

#[test]
fn the_demo_gives_its_recording_away_however_the_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["demo.pickle", "demo.pickle.xz", "demo.pickle.gz"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let sim = || assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        sim().args(["demo", "--out", path]).assert().success();
        sim().args(["verify", path]).assert().success();
    }
}
