//! Printable text: names that come out of files, as they may stand on a terminal, in a picture and in a page.
//!
//! A recording names files, functions, annotations and labels, and whoever wrote it chose them. A name must not be able
//! to move the cursor, to end a line, or to make a document that no reader accepts. Markup is for those who write it:
//! HTML, SVG and Markdown each have an escape of their own.

use std::borrow::Cow;

/// The text on one line, without characters that a terminal or a document would act upon: `\n`, `\u{1b}`.
///
/// What is replaced is written as Rust writes it. Text without such characters is returned as it is.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if acts(letter) { shown.extend(letter.escape_default()) } else { shown.push(letter) }
    }
    Cow::Owned(shown)
}

/// Whether a terminal or a document may act upon a character instead of showing it.
pub fn acts(letter: char) -> bool {
    letter.is_control()
        // Ends of lines, directions of writing, and characters that are not seen.
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        // Not allowed in XML.
        || matches!(letter, '\u{fffe}' | '\u{ffff}')
}

/// A message of several lines: each of them printable.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_acts_is_written_out_and_the_rest_stays() {
        assert_eq!(printable("f\x1b[31m\0\n"), "f\\u{1b}[31m\\u{0}\\n");
        assert_eq!(printable("a\u{202e}b\u{2028}c\u{ffff}"), "a\\u{202e}b\\u{2028}c\\u{ffff}");
        for text in ["train.py:8 <module>", "größe.py", "学習.py", "a\\b", "…"] {
            assert!(matches!(printable(text), Cow::Borrowed(_)), "{text}");
        }
        assert_eq!(printable_lines("a\tb\nc"), "a\\tb\nc");
    }

    proptest! {
        #[test]
        fn nothing_that_acts_is_left(text in any::<String>()) {
            let shown = printable(&text);
            prop_assert!(!shown.contains(acts));
            prop_assert_eq!(printable(&shown), shown.clone());
        }
    }
}
