//! Words: the small list of those that this repository does without, and how a file begins.
//!
//! Figures of speech and words of our own invention cost every reader a moment, and who reads English as a second
//! language more than that. Spelling is checked by `typos`; this list is about style.

use crate::{assert_none, files, numbered, rust};

/// What not to write, and what to write instead.
const INSTEAD: [(&str, &str); 14] = [
    ("beside", "next to, in addition to"),
    ("nobody", "no one, or a sentence without anybody"),
    ("so many", "this many"),
    ("told", "given, reported, known"),
    ("farewell", "shutdown"),
    ("complain", "print, report"),
    ("tell_of", "report"),
    ("gear", "the name of the thing"),
    ("in the making", "under construction"),
    ("comes to rest", "settles"),
    ("come to rest", "settle"),
    ("two peas", "alike"),
    ("believes nothing", "checks everything"),
    ("rules of the house", "rules of this repository"),
];

/// Generated pages, and this list itself.
const EXEMPT: [&str; 2] = ["docs/commands.md", "tests/tidy/words.rs"];

/// First words of a header that names no thing.
const NO_NOUN: [&str; 9] =
    ["What", "How", "Who", "Where", "When", "Which", "Whether", "Why", "From"];

/// Whether the words stand in a line by themselves; names of code count, parts of them do not.
fn has(line: &str, words: &str) -> bool {
    let line = line.to_lowercase();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(words).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + words.len()..]);
        // `complain` and `tell_of` also at the beginning of a longer word.
        let ends = !after.starts_with(is_name) || ["complain", "tell_of"].contains(&words);
        !before.ends_with(is_name) && ends
    })
}

#[test]
fn words_are_plain() {
    let mut found = Vec::new();
    let folders =
        ["src", "tests", "benches", "examples", "python", "docs", "fuzz", "packaging", ".ci"];
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let all: Vec<&str> = folders.into_iter().chain(pages).collect();
    let sources = files(&all, &[".rs", ".py", ".md", ".sh", "run", "release", "chroots"]);
    assert!(sources.len() > 300, "only {} files were found", sources.len());
    for source in sources.iter().filter(|s| !EXEMPT.iter().any(|place| s.path.starts_with(place))) {
        for (number, line) in numbered(&source.text) {
            for (word, instead) in INSTEAD.iter().filter(|(word, _)| has(line, word)) {
                found.push(format!("{}:{number}: {word:?}: write {instead}", source.path));
            }
        }
    }
    assert_none("words to do without", found);
}

#[test]
fn headers_begin_with_a_noun() {
    let mut found = Vec::new();
    for source in rust().iter().filter(|s| !EXEMPT.iter().any(|place| s.path.starts_with(place))) {
        let first = source.text.split([' ', ':', '\n']).nth(1).unwrap_or_default();
        if NO_NOUN.contains(&first) {
            found.push(format!("{}: {first} ...", source.path));
        }
    }
    assert_none("headers that name no thing", found);
}

#[test]
fn the_ruler_reads_words() {
    assert!(has("Nobody knows", "nobody") && has("a (beside) b", "beside"));
    assert!(!has("besides", "beside") && !has("not_told_yet", "told"));
    assert!(has("they complained", "complain") && !has("recomplain", "complain"));
}
