//! Names of files: their numbers, each with the letters before it.
//!
//! ```text
//!   zero3-opt-1.3b-LR-w4.b32.r0.pickle.xz
//!                       │ │   └─ rank 0
//!                       │ └─ b = 32
//!                       └─ w = 4
//! ```

use std::ops::Range;
use std::path::Path;

use crate::remote;

/// A number in a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Mark {
    /// The letters before it, in lower case; at most one of `-_=` stands between.
    letters: String,
    value: u64,
    digits: Range<usize>,
}

/// A file's path without the endings that say how it is written, and its numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    marks: Vec<Mark>,
}

impl Name {
    pub(crate) fn of(path: &Path) -> Self {
        let whole = remote::shown(path);
        let title = title_of(&whole).to_owned();
        let folder = Path::new(&whole)
            .parent()
            .map(|folder| folder.display().to_string())
            .unwrap_or_default();
        let text = if folder.is_empty() { title } else { format!("{folder}/{title}") };
        let marks = marks(&text);
        Self { text, marks }
    }

    /// The name without folders.
    pub(crate) fn title(&self) -> String {
        self.text.rsplit('/').next().unwrap_or(&self.text).to_owned()
    }

    /// The number after the last `r` or `rank`.
    pub(crate) fn rank(&self) -> Option<u64> {
        self.rank_mark().map(|mark| mark.value)
    }

    /// The name with `*` in place of the rank; without folders, unless one of them tells the rank.
    pub(crate) fn without_rank(&self) -> String {
        let Some(mark) = self.rank_mark() else { return self.text.clone() };
        let title_at = self.text.len() - self.title().len();
        let shown = if mark.digits.start >= title_at { title_at } else { 0 };
        self.pattern()[shown..].to_owned()
    }

    /// The name with its folders, and `*` in place of the rank.
    pub(crate) fn pattern(&self) -> String {
        let Some(mark) = self.rank_mark() else { return self.text.clone() };
        format!("{}*{}", &self.text[..mark.digits.start], &self.text[mark.digits.end..])
    }

    /// The number after the quantity's name, or after its first letter: `batch32`, `b32`.
    pub(crate) fn value_of(&self, quantity: &str) -> Option<f64> {
        let quantity = quantity.to_lowercase();
        let fits = |letters: &str| {
            letters == quantity
                || quantity.starts_with(letters) && !letters.is_empty()
                || (quantity == "batch" && letters == "bs")
        };
        let found = self.marks.iter().rev().find(|mark| fits(&mark.letters));
        found.map(|mark| mark.value as f64)
    }

    fn rank_mark(&self) -> Option<&Mark> {
        self.marks.iter().rev().find(|mark| ["r", "rank"].contains(&mark.letters.as_str()))
    }

    /// What is left of the name without its numbers, but for the rank.
    fn frame(&self) -> Vec<&str> {
        let mut from = 0;
        let mut parts = Vec::new();
        for mark in &self.marks {
            parts.push(&self.text[from..mark.digits.start]);
            from = mark.digits.end;
        }
        parts.push(&self.text[from..]);
        parts
    }
}

/// The one number in which the names differ, apart from the rank: its letters, and its value in each name.
pub(crate) fn only_difference(names: &[Name]) -> Option<(String, Vec<f64>)> {
    let first = names.first()?;
    if names.iter().any(|name| name.frame() != first.frame()) {
        return None;
    }
    let rank = first.rank_mark();
    let differs = |index: &usize| {
        let is_rank = rank == first.marks.get(*index);
        let values = names.iter().map(|name| name.marks[*index].value);
        !is_rank && values.into_iter().any(|value| value != first.marks[*index].value)
    };
    let differing: Vec<usize> = (0..first.marks.len()).filter(differs).collect();
    let &[index] = &differing[..] else { return None };
    let letters = &first.marks[index].letters;
    let name = if letters.is_empty() { "number" } else { letters };
    Some((name.to_owned(), names.iter().map(|n| n.marks[index].value as f64).collect()))
}

/// Whether the file's name ends in one of `endings`, plain or compressed.
pub(crate) fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let packed = [".xz", ".gz", ".zst"].iter().find_map(|packing| name.strip_suffix(packing));
    let plain = packed.unwrap_or(&name);
    plain.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending))
}

fn marks(text: &str) -> Vec<Mark> {
    let bytes = text.as_bytes();
    let mut marks = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = at..at + length;
        at = digits.end;
        // More digits than a number has are a date or a hash.
        if let Ok(value) = text[digits.clone()].parse() {
            let letters = letters_before(&text[..digits.start]);
            marks.push(Mark { letters, value, digits });
        }
    }
    marks
}

fn letters_before(text: &str) -> String {
    let joined = text.strip_suffix(['-', '_', '=']).unwrap_or(text);
    let is_letter = |c: char| c.is_ascii_alphabetic();
    let start = joined.rfind(|c| !is_letter(c)).map_or(0, |at| at + 1);
    // rfind gives the place of a character that may be longer than a byte.
    joined.get(start..).unwrap_or_default().to_lowercase()
}

/// A file's name without folders and without the endings that say how it is written.
pub fn title_of(file: &str) -> &str {
    const ENDINGS: [&str; 8] = [".xz", ".gz", ".zst", ".pickle", ".pkl", ".json", ".csv", ".trace"];
    let mut name = file.rsplit('/').next().unwrap_or(file);
    while let Some(shorter) = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)) {
        if shorter.is_empty() {
            break;
        }
        name = shorter;
    }
    if name == "-" { "standard input" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::of(Path::new(text))
    }

    #[test]
    fn numbers_have_the_letters_before_them() {
        let name = name("t/zero3-opt-1.3b-LR-w4.b32.r7.pickle.xz");
        assert_eq!(name.rank(), Some(7));
        assert_eq!(name.value_of("batch"), Some(32.0));
        assert_eq!(name.value_of("w"), Some(4.0));
        assert_eq!(name.value_of("length"), None);
        assert_eq!(name.without_rank(), "zero3-opt-1.3b-LR-w4.b32.r*");
        assert_eq!(name.title(), "zero3-opt-1.3b-LR-w4.b32.r7");
    }

    #[test]
    fn ranks_are_written_in_many_ways() {
        for text in ["a.r3.pickle", "rank3_snap.pickle", "a-rank-3.pkl", "a_rank_3.json", "A.Rank3"]
        {
            assert_eq!(name(text).rank(), Some(3), "{text}");
        }
        for text in ["tar3.pickle", "a.w3.pickle", "a.pickle", "3.pickle"] {
            assert_eq!(name(text).rank(), None, "{text}");
        }
    }

    #[test]
    fn the_one_difference_is_found_or_none() {
        let names = |texts: &[&str]| texts.iter().map(|text| name(text)).collect::<Vec<_>>();
        let found = only_difference(&names(&["a.b8.r0.pickle", "a.b16.r1.pickle"]));
        assert_eq!(found, Some(("b".to_owned(), vec![8.0, 16.0])));
        assert_eq!(only_difference(&names(&["a1.b8.pickle", "a2.b16.pickle"])), None);
        assert_eq!(only_difference(&names(&["a.b8.pickle", "a.pickle"])), None);
        assert_eq!(only_difference(&names(&["a.b8.pickle", "a.b8.pickle"])), None);
    }

    #[test]
    fn names_that_are_no_text_do_no_harm() {
        let odd = name("ä7-ü_9.99999999999999999999999.r1");
        assert_eq!(odd.rank(), Some(1));
        assert!(has_ending(Path::new("a/B.PICKLE.xz"), &["pickle"]));
        assert!(!has_ending(Path::new("a/b.stats"), &["pickle"]));
    }
}
