//! What is wrong with a command line, in one line.

/// What clap says of a wrong command line, without the advice that everybody knows.
///
/// ```
/// let said = "error: unexpected argument '--allocator' found\n\n  tip: a similar argument exists: '--allocators'\n\n\
///             Usage: gmlake-sim compare [FILE]...\n\nFor more information, try '--help'.\n";
/// let line = "unexpected argument '--allocator' found; a similar argument exists: '--allocators'";
/// assert_eq!(gmlake::report::usage_error(said), line);
/// ```
#[must_use]
pub fn usage_error(said: &str) -> String {
    let ends = |line: &&str| !["Usage:", "For more"].iter().any(|word| line.starts_with(word));
    let lines = said.lines().map(str::trim).take_while(ends);
    let is_of_use = |line: &&str| !line.is_empty() && !line.starts_with("tip: to pass ");
    let lines: Vec<_> = lines.filter(is_of_use).collect();
    let text = lines.join(" ").replace(" tip: ", "; ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}
