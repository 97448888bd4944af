//! The shell of every page: one HTML file with its style sheet, scripts and data; and what they are filled with.

use crate::printable::{acts, printable_lines};
use crate::report::{Colour, Result, Rgb, palette};

/// What all pages have.
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// The helpers of every page.
pub(super) const HELPERS: &str = include_str!("js/dom.js");

/// What differs from page to page. All but the title and the command is HTML.
pub(super) struct Shell<'a> {
    pub(super) title: String,
    pub(super) colours: String,
    pub(super) body: String,
    /// How to read the page.
    pub(super) reading: String,
    /// The command that made it, as a user would type it.
    pub(super) command: &'a str,
    /// What the charts show, as JSON.
    pub(super) data: String,
    pub(super) scripts: &'a [&'a str],
    pub(super) lives: String,
}

impl Shell<'_> {
    pub(super) fn html(&self) -> String {
        let values = [
            ("title", &*escape(&self.title)),
            ("style", STYLE),
            ("colours", &self.colours),
            ("body", &self.body),
            ("reading", &self.reading),
            ("command", &escape(self.command)),
            ("version", env!("CARGO_PKG_VERSION")),
            ("data", &self.data),
            ("lives", &self.lives),
            ("script", &self.scripts.join("\n")),
        ];
        fill(PAGE, &values)
    }
}

/// Puts each value where its name stands in double braces. Values are not looked through again.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").unwrap_or((after, ""));
        let value = values.iter().find(|(other, _)| *other == name);
        let (_, value) = value.expect("our templates name only what there is");
        text += before;
        text += value;
        rest = behind;
    }
    text + rest
}

/// Text as HTML, also within quotes.
pub(super) fn escape(text: &str) -> String {
    let text = printable_lines(text);
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            other => safe.push(other),
        }
    }
    safe
}

/// JSON that a page may hold: a name that contains "</script>" must not end the script, nor act upon an editor.
pub(super) fn in_script(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string(value).map_err(std::io::Error::from)?;
    let is_raw = |letter: char| letter == '<' || acts(letter);
    let escaped = |letter: char| format!("\\u{:04x}", u32::from(letter));
    let mut safe = String::with_capacity(text.len());
    for part in text.split_inclusive(is_raw) {
        let last = part.chars().next_back().filter(|&letter| is_raw(letter));
        safe += part.strip_suffix(is_raw).unwrap_or(part);
        safe.extend(last.map(escaped));
    }
    Ok(safe)
}

fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// What text stands on where it has least contrast: the `--wash` of light and dark pages.
const WASH: [Rgb; 2] = [(0xf2, 0xf3, 0xf4), (0x22, 0x27, 0x2c)];

/// A colour in which text can be read on the page.
fn on_page(Colour { light, dark }: Colour) -> Colour {
    let [on_light, on_dark] = WASH;
    Colour { light: palette::readable(light, on_light), dark: palette::readable(dark, on_dark) }
}

/// The colours of the rows of one file, as lines and as text.
pub(super) fn of_runs(file: usize, colours: &[Colour]) -> Vec<(String, Colour)> {
    let both = |(row, &colour): (usize, &Colour)| {
        let name = format!("--run-{file}-{row}");
        [(format!("{name}-text"), on_page(colour)), (name, colour)]
    };
    colours.iter().enumerate().flat_map(both).collect()
}

/// Colours as variables of a style sheet, for light and dark pages.
pub(super) fn variables(all: &[(String, Colour)]) -> String {
    let list = |pick: fn(&Colour) -> Rgb| {
        let one = |(name, colour): &(String, Colour)| format!("{name}:{}", hex(pick(colour)));
        all.iter().map(one).collect::<Vec<_>>().join(";")
    };
    let (light, dark) = (list(|colour| colour.light), list(|colour| colour.dark));
    format!(":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}")
}

/// Sentences, the first one louder than the others.
pub(super) fn loud(sentences: &[String]) -> String {
    let (head, rest) = sentences.split_first().map_or(("", &[][..]), |(a, b)| (a.as_str(), b));
    let rest = rest.iter().map(|sentence| format!("<span>{}</span> ", with_code(sentence)));
    let sentence = format!("<strong>{}</strong> {}", with_code(head), rest.collect::<String>());
    // A number and its unit stay on one line.
    ["B", "KiB", "MiB", "GiB", "TiB"].iter().fold(sentence, |text, unit| {
        let ends = [" ", ",", ".", ";"].iter();
        ends.fold(text, |text, end| {
            text.replace(&format!(" {unit}{end}"), &format!("&nbsp;{unit}{end}"))
        })
    })
}

/// A sentence, in which what stands between backticks is code.
fn with_code(sentence: &str) -> String {
    let text = escape(sentence);
    let parts: Vec<&str> = text.split('`').collect();
    let part = |(index, part): (usize, &&str)| match index % 2 {
        1 => format!("<code>{part}</code>"),
        _ => (*part).to_owned(),
    };
    if parts.len().is_multiple_of(2) { text } else { parts.iter().enumerate().map(part).collect() }
}

/// Numbers, each with what it is.
pub(super) fn fact_list(facts: &[(String, String)]) -> String {
    let item = |(number, what): &(String, String)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(number))
    };
    facts.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_marked_and_a_lone_backtick_stays() {
        let sentence = "`a<b>.py:3` requested 2 GiB.".to_owned();
        let expected = "<strong><code>a&lt;b&gt;.py:3</code> requested 2&nbsp;GiB.</strong> ";
        assert_eq!(loud(&[sentence]), expected);
        assert_eq!(with_code("a ` b"), "a ` b");
    }
}
