//! Messages and tables from public bug reports, as they were pasted: the case that each is, and its figures.
//!
//! `tests/data/strangers/expected.csv` has what is true of each, worked out by hand from the text's own figures before
//! the program read it (`reports/strangers.md`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gmlake::blame::explain;
use gmlake::trace::text::find;
use gmlake::units::{GIB, KIB, MIB};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/strangers")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).expect("the fixture is there")
}

fn expected() -> BTreeMap<String, BTreeMap<String, String>> {
    table("expected.csv")
}

/// The rows of a table: by the file, its cells by their column.
fn table(name: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let table = read(name);
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), columns.len(), "{line}");
        let pairs = columns.iter().zip(&cells);
        let named = pairs.map(|(column, cell)| ((*column).to_owned(), (*cell).to_owned()));
        (cells[0].to_owned(), named.collect())
    };
    lines.map(row).collect()
}

/// A size as the table has it, and half of the worth of its last digit.
fn size(text: &str) -> (f64, f64) {
    let (number, unit) = text.split_once(' ').expect("a number and a unit");
    let unit = match unit {
        "bytes" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => panic!("{text}: an unknown unit"),
    } as f64;
    (number.parse::<f64>().expect("a number") * unit, 0.006 * unit)
}

#[test]
fn the_case_and_the_figures_of_every_report() {
    let mut wrong = Vec::new();
    for (file, row) in expected() {
        let text = read(&format!("{file}.txt"));
        let part = find(text.as_bytes()).unwrap_or_else(|| panic!("{file}: nothing is found"));
        let found = serde_json::to_value(explain(&file, &part)).expect("it is JSON");
        for column in ["requested", "total", "free", "allocated", "unallocated", "allowed"] {
            let (is, truth) = (&found["numbers"][format!("{column}_bytes")], &row[column]);
            let is_right = match truth.as_str() {
                "" => is.is_null(),
                truth => is.as_f64().is_some_and(|is| (is - size(truth).0).abs() <= size(truth).1),
            };
            if !is_right {
                wrong.push(format!("{file}: {column} is {is}, not {truth:?}"));
            }
        }
        let causes = found["findings"].as_array().expect("findings").iter();
        let causes: Vec<&str> = causes.filter_map(|finding| finding["cause"].as_str()).collect();
        if causes.join(" ") != row["causes"] {
            wrong.push(format!("{file}: {causes:?}, not {:?}", row["causes"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `cures.csv` is what PyTorch did, in a state with the figures of each report (`rebuild.py`).
#[test]
fn expandable_segments_are_advised_where_they_serve_the_request_in_pytorch() {
    let mut wrong = Vec::new();
    for (file, row) in table("cures.csv") {
        assert_eq!((&*row["defaults"], &*row["cured"]), ("out of memory", "served"), "{file}");
        let text = read(&format!("{file}.txt"));
        let part = find(text.as_bytes()).expect("it is found");
        let advice = explain(&file, &part).advice.join("\n");
        let (is_advised, serves) = (advice.contains("expandable"), row["expandable"] == "served");
        // Of these figures the pieces are just as large as what is missing: fragmentation is the second cause.
        let is_undecided = file == "one-2-3-45-25";
        if is_advised != serves && !is_undecided {
            wrong.push(format!("{file}: advised {is_advised}, serves {serves}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fixture_is_in_the_table_and_small() {
    let expected = expected();
    for file in std::fs::read_dir(folder()).expect("it is there") {
        let path = file.expect("it can be listed").path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            assert!(expected.contains_key(&name), "{name}");
            assert!(path.metadata().expect("it is there").len() <= 4096, "{name}");
        }
    }
}

/// Of the other reports the stack is not there, is PyTorch's alone, or does not end in the message.
#[test]
fn the_line_is_that_of_the_request() {
    let lines = [
        ("ipex-629", "<stdin>:1"),
        ("ipex-846", "<stdin>:1"),
        ("pytorch-37250", "<stdin>:1"),
        ("keys-values-92", "litgpt/lora.py:355"),
        ("llamafactory-257", "accelerate/utils/modeling.py:298"),
        ("therock-4598", "test/test_nn.py:10838"),
    ];
    let lines: BTreeMap<&str, &str> = lines.into_iter().collect();
    for file in expected().into_keys() {
        let text = read(&format!("{file}.txt"));
        let found = explain(&file, &find(text.as_bytes()).expect("it is found")).line;
        let found = found.map(|line| format!("{}:{}", line.file, line.line));
        match (lines.get(&*file), found) {
            (Some(line), Some(found)) => assert!(found.ends_with(line), "{file}: {found}"),
            (line, found) => assert_eq!(found.as_deref(), line.copied(), "{file}"),
        }
    }
}

/// Mail quotes what it answers, terminals wrap, and logs write the rank before each line.
#[test]
fn wrapped_and_quoted_the_answer_is_the_same() {
    for file in expected().into_keys().filter(|file| !file.contains("table")) {
        let text = read(&format!("{file}.txt"));
        let whole = explain(&file, &find(text.as_bytes()).expect("it is found"));
        if text.contains("memory summary") {
            continue;
        }
        let vllm = "(EngineCore pid=7) ERROR 05-01 14:39:06 [core.py:1131] ";
        for prefix in ["", "> ", "[rank0]: ", vllm] {
            let wrapped = wrap(&text, 72 + prefix.len(), prefix);
            let part = find(wrapped.as_bytes()).unwrap_or_else(|| panic!("{wrapped}"));
            let found = explain(&file, &part);
            assert_eq!(found.numbers, whole.numbers, "{wrapped}");
            assert_eq!(found.findings, whole.findings, "{wrapped}");
        }
    }
}

fn wrap(text: &str, width: usize, prefix: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        out += prefix;
        let mut column = prefix.len();
        for word in line.split_inclusive(' ') {
            if column + word.len() > width {
                out = format!("{}\n{prefix}", out.trim_end_matches(' '));
                column = prefix.len();
            }
            out += word;
            column += word.len();
        }
        out += "\n";
    }
    out
}

#[test]
fn a_report_is_explained_when_it_is_pasted() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gmlake-sim"));
    let command = command.args(["blame", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut stdin, read("therock-2118.txt").as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("memory limit of 1.05 GiB"), "{shown}");
}
