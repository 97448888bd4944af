//! The rules of this repository, checked: budgets of size, imports without circles, where `unsafe` may stand.
//!
//! Plain text tools on purpose. They rely on `cargo fmt`, which puts the closing brace of a function under its first
//! letter, and on the rule that a file ends with its test module.

mod imports;

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 60;
const WIDTH: usize = 100;
/// Prose may be as wide as a screen is.
const PROSE_WIDTH: usize = 120;

/// Files, and folders, that may say `unsafe`; each block then says why it is sound.
const UNSAFE_FILES: &[&str] = &[
    "crates/cuda/src/driver.rs",
    "crates/cuda/src/guest.rs",
    "crates/plugin/src/guest.rs",
    "crates/plugin/src/host.rs",
    "crates/plugin/src/library.rs",
    "crates/plugin/src/sdk.rs",
    "crates/torch/src/c_interface.rs",
    "crates/torch/src/mount_interface.rs",
    "crates/torch/src/watch_interface.rs",
    "crates/traces/src/load.rs",
    "crates/virtual-gpu/src/exports/",
    "src/host_memory.rs",
];

/// Crates that belong to some places: each word is part of the path.
const CRATES: &[(&str, &[&str])] = &[
    ("anyhow", &["src/bin/"]),
    ("clap", &["src/bin/"]),
    ("indicatif", &["src/bin/"]),
    ("plotters", &["src/report/picture/", "/chart"]),
    ("inferno", &["/show/"]),
    ("anstyle", &["src/report/", "/show/"]),
];

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Everything before the test module.
    fn code(&self) -> &str {
        self.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default()
    }

    /// The lines of `code` that are neither blank nor comment, with their numbers.
    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(self.code()).filter(|(_, line)| !line.trim().is_empty() && !is_comment(line))
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below these folders whose names end in one of the suffixes, in order of their paths.
fn files(folders: &[&str], suffixes: &[&str]) -> Vec<Source> {
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && ![".git", "target", "corpus", "artifacts"].contains(&name.as_str()) {
            let entries = fs::read_dir(&path).expect("a folder can be listed");
            open.extend(entries.map(|entry| entry.expect("an entry can be read").path()));
        } else if path.is_file() && suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let path = path.strip_prefix(root()).expect("it is below the root");
            let path = path.to_string_lossy().replace('\\', "/");
            found.push(Source { path, text });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn rust() -> Vec<Source> {
    let found = files(&["src", "crates", "tests", "benches", "fuzz"], &[".rs"]);
    assert!(found.len() > 20, "only {} source files were found", found.len());
    found
}

fn assert_none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Each function's first line, name line and length. Bodies end at a brace that is indented as their first line.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let start = line.trim_start();
        let words: Vec<_> = start.split(['(', ' ', '<']).collect();
        let before = words.iter().position(|&word| word == "fn").unwrap_or(usize::MAX);
        let modifiers =
            ["pub", "crate)", "super)", "const", "async", "unsafe", "extern", "\"C\"", "default"];
        if before == usize::MAX || !words[..before].iter().all(|word| modifiers.contains(word)) {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - start.len()]);
        let closes = |l: &&str| *l == end || (l.trim_start().len() == l.len() && l.ends_with(';'));
        if line.ends_with('}') || line.ends_with(';') {
            continue;
        }
        let length = lines[index..].iter().position(closes).unwrap_or(0) + 1;
        found.push((index + 1, start.to_owned(), length));
    }
    found
}

#[test]
fn files_and_functions_are_short() {
    let mut long = Vec::new();
    for source in rust() {
        let lines = source.code_lines().count();
        if lines > FILE_LINES {
            long.push(format!("{}: {lines} lines of code", source.path));
        }
        for (at, name, length) in functions(&source.text) {
            if length > FUNCTION_LINES {
                long.push(format!("{}:{at}: {length} lines: {name}", source.path));
            }
        }
    }
    assert_none("files or functions over budget", long);
}

#[test]
fn the_ruler_measures_functions() {
    let text =
        "impl A {\n    pub(crate) const fn a(\n        x: u8,\n    ) -> u8 {\n        x\n    }\n";
    let text = &format!("{text}    fn b() {{}}\n}}\nfn c() {{\n    fn d();\n}}\n// fn e() {{\n");
    let found: Vec<_> = functions(text).into_iter().map(|(at, _, length)| (at, length)).collect();
    assert_eq!(found, [(2, 5), (9, 3)]);
}

#[test]
fn lines_fit() {
    let mut wide = Vec::new();
    for source in rust() {
        for (number, line) in numbered(&source.text) {
            let limit = if is_comment(line) { PROSE_WIDTH } else { WIDTH };
            let start = line.trim_start();
            let cannot_break =
                line.contains("://") || start.starts_with('"') || start.starts_with("#[error(");
            if line.chars().count() > limit && !cannot_break {
                wide.push(format!("{}:{number}: {}", source.path, line.chars().count()));
            }
        }
    }
    assert_none("lines too wide", wide);
}

#[test]
fn some_crates_stay_in_their_place() {
    let mut strays = Vec::new();
    for source in files(&["src"], &[".rs"]) {
        for (number, line) in source.code_lines() {
            for (name, places) in CRATES {
                let is_used =
                    line.contains(&format!("{name}::")) || line.contains(&format!("use {name};"));
                if is_used && !places.iter().any(|place| source.path.contains(place)) {
                    strays.push(format!("{}:{number}: {name} belongs to {places:?}", source.path));
                }
            }
        }
    }
    assert_none("crates out of place", strays);
}

#[test]
fn unsafe_stands_in_few_places_and_says_why() {
    let mut found = Vec::new();
    for source in rust() {
        let lines: Vec<_> = source.text.lines().collect();
        for (number, line) in source.code_lines() {
            let is_unsafe =
                ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|text| line.contains(text));
            if !is_unsafe || source.path == "tests/output/tidy.rs" {
                continue;
            }
            if !UNSAFE_FILES.iter().any(|place| source.path.starts_with(place)) {
                found
                    .push(format!("{}:{number}: unsafe in a file that is not listed", source.path));
            }
            let above = lines[..number - 1].iter().rev().take(8);
            let says_why = |above: &&str| above.contains("SAFETY:") || above.contains("# Safety");
            if !above.clone().any(says_why) {
                found.push(format!("{}:{number}: no SAFETY comment", source.path));
            }
        }
    }
    assert_none("unsafe", found);
}

#[test]
fn modules_begin_with_prose() {
    let mut bare = Vec::new();
    for source in rust() {
        if !source.text.starts_with("//! ") && !source.text.starts_with("#!") {
            bare.push(source.path);
        }
    }
    assert_none("files without a header", bare);
}

/// A file that no `mod` names is not compiled, and nothing else says so.
#[test]
fn every_file_is_part_of_a_program() {
    let sources = files(&["src", "crates", "tests"], &[".rs"]);
    let mut orphans = Vec::new();
    for source in &sources {
        let (folder, file) = source.path.rsplit_once('/').expect("a folder");
        let (folder, name) = match file {
            "mod.rs" => folder.rsplit_once('/').expect("a folder"),
            _ => (folder, file.trim_end_matches(".rs")),
        };
        let is_root = ["lib", "main", "build"].contains(&name)
            || ["tests", "benches", "examples", "bin"]
                .contains(&folder.rsplit('/').next().unwrap_or_default());
        let (outer, item) = (format!("{folder}.rs"), format!("mod {name};"));
        let is_near = |other: &&Source| {
            other.path == outer || other.path.rsplit_once('/').is_some_and(|(of, _)| of == folder)
        };
        let is_item = sources.iter().filter(is_near).any(|other| other.text.contains(&item));
        let by_path = format!("/{file}\"]");
        if !is_root && !is_item && !sources.iter().any(|other| other.text.contains(&by_path)) {
            orphans.push(source.path.clone());
        }
    }
    assert_none("files that no `mod` names", orphans);
}

#[test]
fn the_readme_names_every_allocator() {
    let readme = root().join("README.md");
    let text = fs::read_to_string(&readme).expect("there is a README.md");
    let missing =
        gmlake::allocator::ALL.iter().filter(|s| !text.contains(&format!("`{}`", s.name)));
    assert_none(
        "allocators that README.md does not name",
        missing.map(|s| s.name.to_owned()).collect(),
    );
}

#[test]
fn no_file_tells_of_the_machine_it_was_written_on() {
    let here = concat!("tests/output/tid", "y.rs");
    let homes = ["/home/", "/root/", "/Users/", "/work/"];
    let hosts = ["registry+", "sparse+", "artifactory", "index-url"];
    let suffixes = [
        ".rs", ".toml", ".md", ".json", ".csv", ".lock", ".yml", "justfile", "run", ".svg", ".txt",
    ];
    let mut found = Vec::new();
    for source in files(&["."], &suffixes).iter().filter(|source| !source.path.ends_with(here)) {
        for (number, line) in numbered(&source.text) {
            let is_public =
                line.contains("\"registry+https://github.com/rust-lang/crates.io-index\"");
            let home = homes.iter().find(|&&home| line.contains(home));
            let host = hosts.iter().find(|&&host| line.contains(host) && !is_public);
            if let Some(text) = home.or(host) {
                found.push(format!("{}:{number}: {text}", source.path));
            }
        }
    }
    assert_none("absolute paths or names of registries", found);
}
