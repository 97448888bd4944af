//! The page of the benchmark: the picture, and the tables that the terminal shows.

use super::fleet::article;
use super::shell::{Shell, escape};
use crate::bench::{Bench, chart};
use crate::report::section::Section;
use crate::report::{ImageFormat, Result};

const READING: &str = include_str!("bench-reading.html");

/// The page of a benchmark, or of submissions together. `command` is what made it, as a user would type it.
///
/// # Errors
/// If the picture cannot be drawn.
pub fn bench_page(bench: &Bench, sections: &[Section], command: &str) -> Result<String> {
    let mut picture = Vec::new();
    chart::write(bench, ImageFormat::Svg, &mut picture)?;
    let title = format!("GPU memory allocators on the set {}", bench.set);
    let tables: String = sections.iter().map(article).collect();
    let page = Shell {
        body: format!(
            "<header><h1>{}</h1></header>\n<figure>{}</figure>\n{tables}",
            escape(&title),
            String::from_utf8_lossy(&picture)
        ),
        title,
        colours: String::new(),
        reading: READING.to_owned(),
        command,
        data: "{}".to_owned(),
        scripts: &[],
        lives: String::new(),
    };
    Ok(page.html())
}
