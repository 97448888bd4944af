//! Documents: every command in them runs, every link leads somewhere, and the reference is what the program says.
//!
//! ```text
//!   README.md, docs/*.md ──▶ blocks of `sh` and `console` ──▶ a line of gmlake-sim: runs, in a scratch folder with
//!                                                             │   traces/, snapshot.pickle, ranks/, ...
//!                                                             └ anything else: says in OTHERS where it runs, and why
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::cli::output;

/// What a line begins with that does not run here, and where it does.
const OTHERS: [(&str, &str); 20] = [
    ("gmlake-replay ", "needs a GPU: .ci/gpu; its options are checked against its help"),
    (
        "python -m gmlake ",
        "needs the package or PyTorch: tests/wheel, tests/predict; its options are checked",
    ),
    ("torchrun ", "needs PyTorch: python/tests/gpu"),
    ("GMLAKE_CONF=", "needs PyTorch: python/tests/gpu"),
    ("python examples/fleet/", "needs Ray: tests/fleet"),
    ("python examples/", "needs PyTorch: tests/predict"),
    ("python benchmark/", "needs PyTorch: tests/bench"),
    ("sbatch examples/fleet/", "needs Slurm; the script runs in tests/fleet"),
    ("kubectl apply -f examples/fleet/", "needs a cluster; its command runs in tests/fleet"),
    ("pip install ", "tests/wheel installs the package"),
    ("cargo install --path .", "packaging/chroots installs it"),
    ("cargo test", "this is it"),
    ("cargo bench", "measures: reports/benchmarks.md"),
    ("cargo run --release --example reports", "takes minutes: `just reports`"),
    ("cargo ", "a step of .ci/run"),
    ("jq ", "another program, on the file that the line above it writes"),
    ("packaging/", "a step of .ci/run or of a release"),
    (".ci/", "runs this test"),
    ("eval \"$(aws ", "Amazon's program and an account"),
    ("BLESS=1 ", "is `cargo test`, which writes expected output anew"),
];

/// URLs in commands: tests/reading/remote.rs and tests/remote read from such places.
const REMOTE: [&str; 5] = ["s3://", "gs://", "az://", "hf://", "https://"];

struct Line {
    place: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md"].map(|n| root().join(n)).into();
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    found.extend(docs.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    found.sort();
    found
}

/// The lines of all blocks that are commands, without comments, continued lines joined.
fn commands() -> Vec<Line> {
    let mut found = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let (mut is_inside, mut open) = (false, String::new());
        for (index, line) in text.lines().enumerate() {
            if line.starts_with("```") {
                is_inside = ["```sh", "```console"].contains(&line);
                continue;
            }
            let line = line.split("  # ").next().unwrap().split("   #").next().unwrap().trim();
            if !is_inside || line.is_empty() || line.starts_with('#') {
                continue;
            }
            open += line.trim_end_matches('\\');
            if !line.ends_with('\\') {
                let place = format!("{name}:{}", index + 1);
                found.push(Line { place, text: std::mem::take(&mut open) });
            }
        }
    }
    assert!(found.len() > 40, "only {} commands were found", found.len());
    found
}

/// A folder in which the files that documents speak of are there.
fn scratch() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let traces = root().join("traces");
    let link = |from: &str, to: &str| symlink(traces.join(from), folder.path().join(to)).unwrap();
    fs::create_dir(folder.path().join("traces")).unwrap();
    for entry in fs::read_dir(&traces).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Whether a command runs is told by a small recording as well.
        let is_large = name.ends_with("LR-var.pickle.xz") || name.ends_with("LR.pickle.xz");
        let source = if is_large { "opt-1.3b-RO.pickle.xz" } else { &name };
        link(source, &format!("traces/{name}"));
    }
    for name in ["crates", "examples"] {
        symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    fs::create_dir_all(folder.path().join("benchmark/traces")).unwrap();
    let small = root().join("benchmark/traces/ensemble.csv.xz");
    for entry in fs::read_dir(root().join("benchmark/traces")).unwrap() {
        let name = entry.unwrap().file_name();
        symlink(&small, folder.path().join("benchmark/traces").join(name)).unwrap();
    }
    let message = root().join("tests/data/cases/oom/message.txt");
    symlink(message, folder.path().join("message.txt")).unwrap();
    for name in ["snapshot.pickle", "job.pickle", "run.pickle", "before.pickle", "after.pickle"] {
        link("opt-1.3b-RO.pickle.xz", name);
    }
    fs::create_dir(folder.path().join("ranks")).unwrap();
    for rank in ["ranks/job.r0.pickle", "ranks/job.r1.pickle"] {
        link("streams.pickle.xz", rank);
    }
    fs::create_dir(folder.path().join("whole")).unwrap();
    link("opt-1.3b-LR-var.frames.pickle.xz", "whole/train.pickle");
    link("zero3-opt-1.3b-LR-w4.b32.r0.pickle.xz", "b32.pickle");
    link("zero3-opt-1.3b-LR-w4.b160.r0.pickle.xz", "b160.pickle");
    folder
}

/// Runs a line in the shell, with our program in front of all others of its name.
fn run(line: &str, folder: &Path) -> Output {
    let program = assert_cmd::cargo::cargo_bin!("gmlake-sim");
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env("PATH", path).env("HOME", folder);
    shell.output().unwrap()
}

#[test]
fn every_command_of_the_documents_runs() {
    let folder = scratch();
    let (mut tried, mut elsewhere) = (0, Vec::new());
    for Line { place, text } in commands() {
        // What cargo would build first is built already.
        let line = text.replace("cargo run --release --bin gmlake-sim --", "gmlake-sim");
        if line.starts_with("gmlake-sim") && REMOTE.iter().any(|scheme| line.contains(scheme)) {
            elsewhere
                .push(format!("{place}: {text}\n    tests/reading/remote.rs and tests/remote"));
            continue;
        }
        let has_no_compiler = || run("cc --version", folder.path()).status.code() != Some(0);
        if (line.starts_with("cc ") || line.contains("--plugin")) && has_no_compiler() {
            elsewhere.push(format!("{place}: {text}\n    SKIPPED: no cc on this machine"));
            continue;
        }
        let is_ours = ["gmlake-sim", "cp ", "cc "].iter().any(|start| line.starts_with(start));
        if is_ours || line.contains("| gmlake-sim") {
            let out = line.split("> ~/").nth(1).map(|path| folder.path().join(path));
            if let Some(path) = out {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
            }
            let ended = run(&line, folder.path());
            // 1 is an answer: memory ran out, or a job does not fit.
            let is_answer = matches!(ended.status.code(), Some(0 | 1));
            let error = String::from_utf8_lossy(&ended.stderr);
            assert!(is_answer, "{place}: {text}\n{error}");
            tried += 1;
            continue;
        }
        let other = OTHERS.iter().find(|(start, _)| line.starts_with(start));
        let (_, reason) = other.unwrap_or_else(|| panic!("{place}: nothing runs {text}"));
        check_options(&place, &line);
        elsewhere.push(format!("{place}: {text}\n    {reason}"));
    }
    assert!(tried > 30, "only {tried} commands were tried");
    println!("{tried} commands ran; elsewhere run:\n{}", elsewhere.join("\n"));
}

/// The options of a program that cannot run here are at least options that it has.
fn check_options(place: &str, line: &str) {
    let known = if line.starts_with("gmlake-replay ") {
        let help = |command: &[&str]| {
            let mut program = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-replay"));
            let shown = program.args(command).arg("--help").output().unwrap();
            String::from_utf8(shown.stdout).unwrap()
        };
        help(&[]) + &help(&["run"]) + &help(&["calibrate"]) + &help(&["fit"])
    } else if line.contains("-m gmlake ") {
        python(&root().join("python/gmlake"))
    } else {
        return;
    };
    // Behind the script's name stand its own options.
    let ours = line.split(".py").next().unwrap().split(" vllm ").next().unwrap();
    let ours = ours.split("gmlake ").last().unwrap();
    for word in ours.split([' ', '=']).filter(|word| word.starts_with("--")) {
        assert!(known.contains(word), "{place}: there is no option {word}: {line}");
    }
}

/// The text of all Python files below a folder.
fn python(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => python(&path),
        Some(ending) if ending == "py" => fs::read_to_string(&path).unwrap(),
        _ => String::new(),
    };
    entries.map(text).collect()
}

#[test]
fn the_reference_is_what_the_program_says() {
    let path = root().join("docs/commands.md");
    let said = output(&["help", "all"]);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &said).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let different = written.lines().zip(said.lines()).find(|(a, b)| a != b);
    assert!(
        written == said,
        "docs/commands.md is old: BLESS=1 cargo test --test output docs; {different:?}"
    );
}

#[test]
fn links_lead_to_files() {
    let mut checked = 0;
    let mut dead = Vec::new();
    let more =
        ["ARCHITECTURE.md", "CHANGELOG.md", "RELEASE-CHECKLIST.md", "SECURITY.md", "STYLE.md"];
    let more = more.iter().chain(&["tests/README.md"]).map(|name| root().join(name));
    for path in documents().into_iter().chain(more) {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            checked += 1;
            let target = path.parent().unwrap().join(link.split('#').next().unwrap());
            if !target.exists() {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(dead.is_empty() && checked > 50, "{checked} links, {dead:#?}");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for path in documents().iter().filter(|path| path.starts_with(root().join("docs"))) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("]({name})")), "{name}");
    }
}

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() <= 130, "{} lines", text.lines().count());
}

#[test]
fn help_fits_a_screen() {
    let top = output(&["--help"]);
    let commands = top.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next());
    let commands: Vec<&str> = commands.collect();
    assert!(commands.len() > 12, "{commands:?}");
    for command in commands.iter().map(|&name| vec![name, "--help"]).chain([vec!["--help"], vec![]])
    {
        let help = output(&command);
        let height = help.lines().count();
        let width = help.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(height <= 40 && width <= 100, "{command:?}: {height} lines, {width} columns");
    }
}

#[test]
fn what_is_said_of_verification_is_what_the_command_says() {
    let text = fs::read_to_string(root().join("docs/exactness.md")).unwrap();
    let traces = fs::read_dir(root().join("traces")).unwrap().map(|entry| entry.unwrap().path());
    let traces = traces.filter(|path| path.to_string_lossy().ends_with(".pickle.xz"));
    let mut traces: Vec<String> = traces.map(|path| path.display().to_string()).collect();
    traces.sort();
    let mut command = vec!["verify"];
    command.extend(traces.iter().map(String::as_str));
    let said = output(&command);
    let sentence = said.lines().last().unwrap();
    assert!(text.contains(&format!("`{sentence}`")), "docs/exactness.md lacks: {sentence}");
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let decisions = sentence.split_whitespace().nth(2).unwrap();
    assert!(readme.contains(decisions), "README.md lacks {decisions}");
}

#[test]
fn speeds_are_those_of_the_benchmarks() {
    let report = fs::read_to_string(root().join("reports/benchmarks.md")).unwrap();
    let text = fs::read_to_string(root().join("docs/exactness.md")).unwrap();
    let mut rows = text.lines().skip_while(|line| !line.starts_with("| `caching`"));
    let names = rows.next().unwrap().split('|').map(str::trim).filter(|name| !name.is_empty());
    let speeds = rows.nth(1).unwrap().split('|').map(str::trim).filter(|cell| !cell.is_empty());
    let table = report.split("opt-1.3b-LR-var.pickle.xz: ").nth(1).unwrap();
    let mut checked = 0;
    for (name, speed) in names.zip(speeds) {
        let name = name.trim_matches('`');
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        let ns: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(speed, format!("{:.1} M", 1000.0 / ns), "{name}");
        checked += 1;
    }
    assert_eq!(checked, 9);
}

/// The answer that the front page shows is the answer of the command above it, up to line breaks and what is left out.
#[test]
fn the_readme_shows_what_its_first_command_prints() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let command = text.lines().find(|line| line.starts_with("gmlake-sim blame ")).unwrap();
    let shown = text.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let ended = run(command, root());
    let said = String::from_utf8(ended.stdout).unwrap();
    let words: Vec<&str> = said.split_whitespace().collect();
    let said = words.join(" ");
    let parts: Vec<&str> = shown.split("\n\n").collect();
    assert!(parts.len() > 3, "{shown}");
    for part in parts {
        let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&part), "README.md shows {part:?}, and {command} prints\n{said}");
    }
}

/// Names of the files in a folder.
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn the_map_of_the_tests_names_each_and_no_other() {
    let map = fs::read_to_string(root().join("tests/README.md")).unwrap();
    let said: Vec<&str> = map.split('`').skip(1).step_by(2).collect();
    let script = |name: &&String| !name.contains('.') && root().join("tests").join(name).is_file();
    let groups = ["truth", "allocators", "reading", "questions", "output", "gpu"];
    let suites = groups.iter().flat_map(|group| names(&format!("tests/{group}")));
    let rust: Vec<_> = suites.chain(names("tests")).filter(|name| name != "main.rs").collect();
    let python = names("python/tests");
    let programs = rust.iter().filter(|name| name.ends_with(".rs") || script(name));
    let programs: Vec<_> =
        programs.chain(python.iter().filter(|name| name.starts_with("test_"))).collect();
    for name in &programs {
        assert!(said.contains(&name.as_str()), "tests/README.md lacks {name}");
    }
    assert!(programs.len() > 20, "{programs:?}");
    let is_program = |name: &&&str| name.ends_with(".rs") || name.starts_with("test_");
    for name in said.iter().filter(is_program) {
        assert!(programs.iter().any(|program| program == name), "there is no {name}");
    }
}
