//! Reader errors: what a JSON or CSV reader says of a file, in the words of whoever wrote the file.
//!
//! The libraries speak of their own types (`expected struct JsonEntry`, `expected u64`, `invalid digit found in
//! string`). Whatever we do not know the meaning of is passed on as it is.

/// What is wrong, of an error of `serde_json`, without the place.
pub fn json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    plain(text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem))
}

/// What is wrong in which line, of an error of `csv`.
pub fn table(error: &csv::Error) -> String {
    let line = error.position().map_or(String::new(), |at| format!("line {}: ", at.line()));
    let problem = match error.kind() {
        csv::ErrorKind::Io(error) => error.to_string(),
        csv::ErrorKind::Utf8 { .. } => "not a text in UTF-8".to_owned(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} columns, where the lines before have {expected_len}")
        }
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().map_or(String::new(), |at| format!("column {}: ", at + 1));
            let text = err.kind().to_string();
            format!("{column}{}", plain(&text))
        }
        _ => error.to_string(),
    };
    format!("{line}{problem}")
}

/// The same in plain words.
fn plain(text: &str) -> String {
    if let Some(name) = text.strip_prefix("missing field ") {
        return format!("{} is missing", quoted(name));
    }
    if let Some(name) = text.strip_prefix("duplicate field ") {
        return format!("{} occurs twice", quoted(name));
    }
    if let Some((name, known)) = cut(text, "unknown field ", ", expected one of ") {
        return format!("{} is not known here, only {}", quoted(name), quoted(known));
    }
    for kind in ["invalid type: ", "invalid value: "] {
        if let Some((found, wanted)) = cut(text, kind, ", expected ") {
            return format!("{} in the place of {}", thing(found), expected(wanted));
        }
    }
    if let Some((found, wanted)) = cut(text, "invalid length ", ", expected ") {
        return format!("{found} items in the place of {}", expected(wanted));
    }
    if let Some(what) = text.strip_prefix("EOF while parsing ") {
        return format!("the text ends in the middle of {}", expected(what));
    }
    let known = [
        ("expected value", "something that is no JSON"),
        ("expected ident", "something that is no JSON"),
        ("expected `,` or `]`", "a comma or a closing ] is missing"),
        ("expected `,` or `}`", "a comma or a closing } is missing"),
        ("expected `:`", "a colon is missing"),
        ("expected `\"`", "a quotation mark is missing"),
        ("key must be a string", "a name without quotation marks"),
        ("trailing characters", "more text behind the end of the document"),
        ("trailing comma", "a comma before a closing bracket"),
        ("recursion limit exceeded", "brackets within brackets without end"),
        ("invalid number", "a number that is none"),
        ("number out of range", "a number that is too large"),
        ("invalid escape", "a text with a backslash before the wrong character"),
        (
            "control character (\\u0000-\\u001F) found while parsing a string",
            "a line break within a text",
        ),
        ("invalid digit found in string", "not a whole number"),
        ("cannot parse integer from empty string", "empty, but must be a whole number"),
        ("number too large to fit in target type", "a number that is too large"),
        ("invalid float literal", "not a number"),
    ];
    let found = known.iter().find(|(theirs, _)| text == *theirs);
    found.map_or_else(|| text.to_owned(), |(_, ours)| (*ours).to_owned())
}

/// What stands between and behind two marks.
fn cut<'t>(text: &'t str, before: &str, between: &str) -> Option<(&'t str, &'t str)> {
    text.strip_prefix(before)?.rsplit_once(between)
}

/// Names in backquotes, in the quotation marks of JSON.
fn quoted(names: &str) -> String {
    names.replace('`', "\"")
}

/// What was found, such as ``integer `5` ``.
fn thing(found: &str) -> String {
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    let value = value.trim_start_matches("point ").trim_matches('`');
    match kind {
        "integer" | "floating" => format!("the number {value}"),
        "string" => format!("the text {value}"),
        "boolean" => value.to_owned(),
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        _ => found.to_owned(),
    }
}

/// What was wanted, such as `u64` or `struct JsonEntry`.
fn expected(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" | "a JSON number" => "a number",
        "a string" | "a borrowed string" | "string" | "str" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        "a boolean" => "true or false",
        "a tuple of size 2" => "a pair of numbers",
        "any valid JSON value" => "a value",
        _ if wanted.starts_with("struct ") => "an object",
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Part {
        size: u64,
        share: f64,
        name: String,
        pair: (u64, u64),
        list: Vec<u64>,
        yes: bool,
    }

    const GOOD: &str =
        r#"{"size": 1, "share": 0.5, "name": "a", "pair": [1, 2], "list": [1], "yes": true}"#;

    /// What is said of the good document with one part replaced.
    fn said(part: &str, instead: &str) -> String {
        assert!(GOOD.contains(part));
        json(&serde_json::from_str::<Part>(&GOOD.replacen(part, instead, 1)).unwrap_err())
    }

    #[test]
    fn json_errors_speak_of_the_file() {
        serde_json::from_str::<Part>(GOOD).unwrap();
        for (part, instead, words) in [
            ("1,", "-1,", "the number -1 in the place of a whole number from 0 on"),
            ("1,", "1.5,", "the number 1.5 in the place of a whole number from 0 on"),
            (
                "1,",
                "\"x, expected\",",
                "the text \"x, expected\" in the place of a whole number from 0 on",
            ),
            ("0.5", "null", "null in the place of a number"),
            ("\"a\"", "{}", "an object in the place of a text"),
            ("[1, 2]", "[1]", "1 items in the place of a pair of numbers"),
            ("[1],", "3,", "the number 3 in the place of a list"),
            ("true", "[]", "a list in the place of true or false"),
            ("\"size\": 1, ", "", "\"size\" is missing"),
            ("\"share\"", "\"size\"", "\"size\" occurs twice"),
            ("0.5, ", "0.5 ", "a comma or a closing } is missing"),
            ("true}", "true", "the text ends in the middle of an object"),
            ("true}", "true,}", "a comma before a closing bracket"),
            ("true}", "true} x", "more text behind the end of the document"),
            ("{\"size\"", "{size", "a name without quotation marks"),
            ("\"a\"", "\"\\q\"", "a text with a backslash before the wrong character"),
            ("true", "nope", "something that is no JSON"),
            (GOOD, "5", "the number 5 in the place of an object"),
        ] {
            assert_eq!(said(part, instead), words);
        }
        let unknown = said("\"yes\"", "\"no\"");
        assert!(unknown.starts_with("\"no\" is not known here, only \"size\", "), "{unknown}");
    }

    #[test]
    fn table_errors_name_line_and_column() {
        let said = |rows: &str| {
            let text = format!("name,count\n{rows}");
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            let mut lines = reader.deserialize::<(String, u32)>();
            table(&lines.find_map(Result::err).unwrap())
        };
        assert_eq!(said("a,1\nb,x\n"), "line 3: column 2: not a whole number");
        assert_eq!(said("a,\n"), "line 2: column 2: empty, but must be a whole number");
        assert_eq!(said("a\n"), "line 2: 1 columns, where the lines before have 2");
    }
}
