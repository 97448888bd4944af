//! The page: one HTML file that holds everything, opens from disk and fetches nothing.
//!
//! ```text
//!   Comparison ──▶ words and tables, written here      ─┐
//!              ──▶ data.rs: what the charts show, JSON ─┼─▶ page.html ─▶ report.html
//!   page.css, js/*.js: part of the program             ─┘
//! ```
//!
//! The charts are drawn by a few hundred lines of our own. A library would have to be copied into the repository (no
//! crate embeds a small one), and the best small one, uPlot, draws neither rectangles nor bars over steps, which is
//! half of this page. What can be read without charts is in the HTML itself; each chart has its numbers in a table
//! behind it.

mod bench;
mod data;
mod encode;
mod fleet;
mod lives;
mod shell;
mod words;

pub use bench::bench_page;
pub use fleet::fleet_page;

use std::fmt::Write as _;
use std::io::Write;

use crate::report::{Colour, palette};
use lives::Lives;
use shell::{HELPERS, Shell, escape, fact_list, fill, in_script, loud, of_runs, variables};

use crate::blame::show::{diff_sections, loss_sections, refusal_sections};
use crate::blame::{Diff, Loss, Refusal};
use crate::compare::show::{table, verdict};
use crate::compare::{Comparison, columns};
use crate::report::Result;
use crate::report::section::capitalized;
use crate::run::{Cause, RunSummary};
use crate::sim::title_of;
use crate::trace::{Bounded, Certainty};
use crate::units::{Count, Nanos, Size};

const READING: &str = include_str!("reading.html");
const SECTION: &str = include_str!("section.html");
const HISTORY: &str = include_str!("history.html");
const CARD: &str = include_str!("card.html");
/// In the order in which they need each other.
const SCRIPTS: [&str; 17] = [
    include_str!("js/decode.js"),
    HELPERS,
    include_str!("js/viewport.js"),
    include_str!("js/card.js"),
    include_str!("js/ribbon.js"),
    include_str!("js/timeline.js"),
    include_str!("js/causes.js"),
    include_str!("js/map.js"),
    include_str!("js/latency.js"),
    include_str!("js/convergence.js"),
    include_str!("js/lives.js"),
    include_str!("js/groups.js"),
    include_str!("js/session.js"),
    include_str!("js/bands.js"),
    include_str!("js/blocks.js"),
    include_str!("js/state.js"),
    include_str!("js/main.js"),
];

/// Characters that the lives of all blocks may take in a page.
const LIVES: usize = 15 << 20;

/// Rows of a table of names, and of each cause of a loss.
const TOP: usize = 12;
const TOP_OF_CAUSE: usize = 5;

/// A page with a section for each file.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The command that made it, as a user would type it; shown at the end.
    pub command: String,
    /// What the peaks of two recordings differ in, by line or another kind of name; shown first.
    pub diffs: Vec<Diff>,
}

impl Page {
    /// Writes the page.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write(&self, comparisons: &[Comparison], out: &mut dyn Write) -> Result<()> {
        let title = match comparisons {
            [one] => one.title().to_owned(),
            many => format!("{} recordings", many.len()),
        };
        let budget = LIVES / comparisons.len().max(1);
        let packed =
            comparisons.iter().map(|one| Some(lives::lives(one.history.as_ref()?, budget)));
        let (lives, columns): (Vec<_>, Vec<_>) = packed.map(Option::unzip).unzip();
        let sections: Vec<String> = comparisons
            .iter()
            .enumerate()
            .map(|(index, one)| section(index, one, lives[index].as_ref()))
            .collect();
        let body = [contents(comparisons), changes(&self.diffs), sections.join("\n")];
        let page = Shell {
            title: format!("{title} · GPU memory"),
            colours: variables(&colours(comparisons)),
            body: body.join("\n"),
            reading: fill(READING, &[("causes", &causes())]),
            command: &self.command,
            data: data(comparisons, lives)?,
            scripts: &SCRIPTS,
            lives: scripts(&columns),
        };
        Ok(out.write_all(page.html().as_bytes())?)
    }
}

/// The lives of blocks stand at the end: all else can be read before they are.
fn scripts(columns: &[Option<String>]) -> String {
    let mut text = String::new();
    for (index, column) in columns.iter().enumerate() {
        if let Some(column) = column {
            let _ = writeln!(
                text,
                "<script type=\"text/plain\" id=\"lives-{index}\">{column}</script>"
            );
        }
    }
    text
}

/// What a change did, if two recordings were compared.
fn changes(diffs: &[Diff]) -> String {
    let one = |diff: &Diff| {
        let files = diff.files.each_ref().map(|file| title_of(file).to_owned());
        let diff = Diff { files, ..diff.clone() };
        let (by, table) = (diff.by.name(), words::html(&diff_sections(&diff, TOP)));
        format!("<article class=\"prose\"><h2>What changed, by {by}</h2>{table}</article>")
    };
    diffs.iter().map(one).collect()
}

fn data(comparisons: &[Comparison], lives: Vec<Option<Lives>>) -> Result<String> {
    let files: Vec<_> =
        comparisons.iter().zip(lives).map(|(one, lives)| data::file(one, lives)).collect();
    in_script(&files)
}

/// The colours with their names: `--run-FILE-ROW`, the same for text with `-text` behind it, and `--cause-NUMBER`.
fn colours(comparisons: &[Comparison]) -> Vec<(String, Colour)> {
    let runs = comparisons.iter().map(|comparison| palette::colours(&comparison.runs)).enumerate();
    let mut all: Vec<_> = runs.flat_map(|(file, colours)| of_runs(file, &colours)).collect();
    let causes = Cause::ALL.into_iter().enumerate();
    all.extend(causes.map(|(n, cause)| (format!("--cause-{n}"), palette::of_cause(cause))));
    all
}

/// Links to the sections, if there are several.
fn contents(comparisons: &[Comparison]) -> String {
    if comparisons.len() < 2 {
        return String::new();
    }
    let mut text = String::from("<nav aria-label=\"Recordings\"><ol>");
    for (index, comparison) in comparisons.iter().enumerate() {
        let (title, held) = (escape(&comparison.heading()), comparison.reference());
        let held = held.map(|run| format!(" <span>{}</span>", escape(&run.reserved().to_string())));
        let held = held.unwrap_or_default();
        let _ = write!(text, "<li><a href=\"#file-{index}\">{title}</a>{held}</li>");
    }
    text + "</ol></nav>"
}

fn section(index: usize, comparison: &Comparison, lives: Option<&Lives>) -> String {
    let (sentence, title) = (verdict(comparison), comparison.heading());
    // The title stands above it already.
    let words = sentence.strip_prefix(&format!("{title}: ")).unwrap_or(&sentence);
    let about = table::headline(comparison);
    let about = about.split_once(": ").map_or("", |(_, rest)| rest);
    let reference = comparison.reference.as_deref().unwrap_or("no other row");
    let is_state = comparison.history.as_ref().is_some_and(|history| history.is_state);
    fill(
        SECTION,
        &[
            ("index", &index.to_string()),
            ("class", if is_state { "file state-only" } else { "file" }),
            ("title", &escape(&title)),
            ("about", &escape(about)),
            ("verdict", &verdict_html(words, &comparison.runs)),
            ("facts", &facts(comparison)),
            ("table", &runs(index, comparison)),
            ("reference", &escape(reference)),
            ("refusal", &refusal(comparison)),
            ("card", if comparison.card.is_some() { CARD } else { "" }),
            ("history", &history(comparison, lives)),
            ("loss", &loss(comparison)),
            ("prices", &prices(comparison)),
            ("notes", &notes(comparison)),
        ],
    )
}

/// Why memory ran out, if it did.
fn refusal(comparison: &Comparison) -> String {
    let Some(refusal) = &comparison.refusal else { return String::new() };
    // The page says nothing of the folders that it was made from.
    let refusal = Refusal { file: comparison.title().to_owned(), ..refusal.clone() };
    let words = words::html(&refusal_sections(&refusal, TOP));
    format!("<article class=\"prose\"><h2>Out of memory</h2>{words}</article>")
}

/// Whose prices the times are predicted by.
fn prices(comparison: &Comparison) -> String {
    comparison.profile().map_or(String::new(), |name| format!(", with prices of {}", escape(name)))
}

/// What was lost at the peak, and to whom it is due.
fn loss(comparison: &Comparison) -> String {
    let Some(loss) = comparison.loss.as_ref().filter(|loss| loss.lost_bytes > 0) else {
        return String::new();
    };
    let loss = Loss { file: comparison.title().to_owned(), ..loss.clone() };
    let words = words::html(&loss_sections(&loss, TOP_OF_CAUSE));
    format!(
        "<article class=\"prose\"><h2>What is lost, and to whom it is due</h2>{words}</article>"
    )
}

/// The places of the charts that show every block.
fn history(comparison: &Comparison, lives: Option<&Lives>) -> String {
    let Some(history) = &comparison.history else { return String::new() };
    let left_out = lives.and_then(|lives| lives.left_out.as_ref()).map(|out| {
        let (blocks, bytes) = (Count(out.blocks as u64, "block"), Size(out.bytes));
        format!(
            " To keep the page small, {blocks} of at most {bytes} left out; at most {} of \
             them are live at once.",
            Size(out.most_bytes)
        )
    });
    let (title, what) = match history.has_stacks {
        true => ("What uses memory", "Live bytes by category, or by the line that requested them"),
        false => (
            "Memory in use, by size",
            "Live bytes by the size of their blocks, since the recording has no call stacks",
        ),
    };
    let values = [
        ("title", title),
        ("what", what),
        ("allocator", &*escape(&history.allocator)),
        ("left_out", &*left_out.unwrap_or_default()),
    ];
    fill(HISTORY, &values)
}

/// The sentence, its first letter a capital, its clauses a sentence each.
fn verdict_html(words: &str, runs: &[RunSummary]) -> String {
    let words = capitalized(words);
    let clauses = words.trim_end_matches('.').split("; ").filter(|clause| !clause.is_empty());
    let clauses: Vec<String> =
        clauses.map(|clause| format!("{}.", capital(clause, runs))).collect();
    loud(&clauses)
}

/// Names of allocators stay as they are.
fn capital(clause: &str, runs: &[RunSummary]) -> String {
    let first = clause.split(' ').next().unwrap_or_default();
    match runs.iter().any(|run| run.allocator == first) {
        true => clause.to_owned(),
        false => capitalized(clause),
    }
}

/// The few numbers that the sentence does not say: what was wasted and why, and what the way out would cost. One moment
/// tells of neither.
fn facts(comparison: &Comparison) -> String {
    let mut facts: Vec<(String, String)> = Vec::new();
    if !comparison.has_history() {
        return fact_list(&facts);
    }
    facts.extend(comparison.reference().and_then(|run| in_vain(comparison, run)));
    let served = comparison.runs.iter().filter(|run| run.is_choice() && run.oom_count == 0);
    if let Some(best) = served.min_by_key(|run| run.reserved_peak_bytes) {
        let is_exact = best.certainty == Certainty::Exact;
        let what = if is_exact { "would do with" } else { "needed with" };
        facts.push((best.reserved().to_string(), format!("{what} {}", best.label())));
        let prices = best.prices.as_ref().filter(|_| is_exact);
        facts.extend(prices.map(|prices| {
            let share = prices.share().map(|share| format!(", {:.1} % of the run", 100.0 * share));
            let what = format!("in driver calls for that{}", share.unwrap_or_default());
            (Nanos(prices.predicted_driver_ns.total as f64).to_string(), what)
        }));
    }
    fact_list(&facts)
}

/// What a run held at its peak without having been asked for it, and the largest part of it. Of a recording, we know
/// that from the model that follows it.
fn in_vain(comparison: &Comparison, run: &RunSummary) -> Option<(String, String)> {
    let held = run.reserved_peak_bytes;
    let is_twin = |place: usize| comparison.runs[place].reserved_peak_bytes == held;
    let mut twins = comparison.peaks.iter().filter(|&(&place, _)| is_twin(place));
    let (_, peak) = twins.next().filter(|(_, peak)| peak.causes.total() > 0)?;
    let (cause, bytes) = peak.causes.rows().max_by_key(|&(_, bytes)| bytes)?;
    let share = 100.0 * bytes as f64 / peak.causes.total() as f64;
    let what = format!("wasted at the peak (fragmentation), {share:.0} % of it {}", cause.phrase());
    let is_partial = comparison.coverage.is_partial();
    let certainty = if is_partial { Certainty::About } else { Certainty::Exact };
    Some((Bounded { bytes: peak.causes.total(), certainty }.to_string(), what))
}

fn notes(comparison: &Comparison) -> String {
    let item = |note: &String| format!("<li>{}</li>", escape(note));
    let items: String = comparison.notes.iter().map(item).collect();
    match items.is_empty() {
        true => String::new(),
        false => format!("<aside><h3>Assumed</h3><ul>{items}</ul></aside>"),
    }
}

/// The comparison as a table; the bar in the first column is the peak, its dark part what was in use.
fn runs(index: usize, comparison: &Comparison) -> String {
    let columns: Vec<_> =
        columns(&comparison.runs).filter(|column| column.is_on_page(comparison.rows())).collect();
    let mut text =
        String::from("<table class=\"runs\"><thead><tr><th scope=\"col\">allocator</th>");
    for column in &columns {
        let _ = write!(text, "<th scope=\"col\">{}</th>", escape(column.name));
    }
    text += "</tr></thead><tbody>";
    let most = comparison.runs.iter().map(|run| run.reserved_peak_bytes).max().unwrap_or(0).max(1);
    for (number, row) in comparison.rows().enumerate() {
        let class = if row.is_reference() { " class=\"reference\"" } else { "" };
        let label = escape(&row.run.label());
        let bar = bar(row.run, most);
        let _ = write!(
            text,
            "<tr{class} style=\"--run:var(--run-{index}-{number})\"><th scope=\"row\">{label}{bar}</th>"
        );
        for column in &columns {
            let cell = escape(&table::cell(column, &row));
            let class = match table::standing(column, &row, comparison) {
                table::Standing::Best => " class=\"best\"",
                table::Standing::Alarm => " class=\"alarm\"",
                table::Standing::Usual => "",
            };
            let _ = write!(text, "<td{class}>{cell}</td>");
        }
        text += "</tr>";
    }
    text + "</tbody></table>"
}

fn bar(run: &RunSummary, most: u64) -> String {
    let share = |bytes: u64| 100.0 * bytes as f64 / most as f64;
    let used = run.active_peak_bytes.min(run.reserved_peak_bytes);
    format!(
        "<i class=\"bar\" style=\"--held:{:.2}%;--used:{:.2}%\"></i>",
        share(run.reserved_peak_bytes),
        share(used)
    )
}

/// What each cause means, as a list that is also the legend.
fn causes() -> String {
    let item = |(number, cause): (usize, Cause)| {
        let (name, meaning) = (cause.name(), cause.meaning());
        format!("<dt style=\"--swatch:var(--cause-{number})\">{name}</dt><dd>{meaning}</dd>")
    };
    Cause::ALL.into_iter().enumerate().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_once() {
        let values = [("a", "{{b}}"), ("b", "2")];
        assert_eq!(fill("<{{a}}|{{b}}>", &values), "<{{b}}|2>");
    }

    #[test]
    fn a_sentence_begins_with_a_capital_unless_with_a_name() {
        let words = "lake reserves 1 GiB; with 2 GiB, caching runs out; lake fits; none was free.";
        let lake = RunSummary { allocator: "lake".to_owned(), ..RunSummary::default() };
        let shown = verdict_html(words, &[lake]);
        assert!(shown.contains("With 2") && shown.contains("lake fits."), "{shown}");
        assert!(shown.contains("None was free."), "{shown}");
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let name = "</script><img src=x onerror=\"alert('&')\">";
        let comparison = Comparison { file: name.to_owned(), ..Comparison::default() };
        let mut page = Vec::new();
        Page::default().write(&[comparison], &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script>").count(), 2, "one for the data, one for the code");
    }
}
