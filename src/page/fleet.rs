//! A fleet's page: a chart of all ranks, and the tables that the terminal shows.

use serde_json::{Value, json};

use super::shell::{HELPERS, Shell, escape, fact_list, fill, in_script, loud, of_runs, variables};
use super::words;
use crate::fleet::{FleetSummary, FleetTotal, show as fleet};
use crate::report::section::{Section, capitalized};
use crate::report::{Result, palette};
use crate::units::{Grouped, Size};
use gmlake_core::cards::Target;

const BODY: &str = include_str!("fleet.html");
const READING: &str = include_str!("fleet-reading.html");
const SCRIPTS: [&str; 3] = [HELPERS, include_str!("js/shares.js"), include_str!("js/fleet.js")];

/// The page of a fleet. `command` is what made it, as a user would type it.
///
/// # Errors
/// If the data cannot be encoded.
pub fn fleet_page(summary: &FleetSummary, title: &str, command: &str) -> Result<String> {
    let names = summary.totals.iter().map(|total| total.allocator.as_str());
    let sections: String = fleet::sections(summary)[1..].iter().map(article).collect();
    let values = [
        ("title", escape(title)),
        ("verdict", loud(&fleet::clauses(summary))),
        ("facts", fact_list(&facts(summary))),
        ("left_out", left_out(summary)),
        ("sections", sections),
    ];
    let values = values.each_ref().map(|(name, text)| (*name, &**text));
    let page = Shell {
        title: format!("{title} · GPU memory of a fleet"),
        colours: variables(&of_runs(0, &palette::colours_of(names))),
        body: fill(BODY, &values),
        reading: READING.to_owned(),
        command,
        data: in_script(&data(summary))?,
        scripts: &SCRIPTS,
        lives: String::new(),
    };
    Ok(page.html())
}

/// What the chart shows; `shares` are bytes, and the share of the ranks that need at most so much.
fn data(summary: &FleetSummary) -> Value {
    let allocator =
        |total: &FleetTotal| json!({ "label": total.allocator, "shares": total.sizes.shares() });
    let card = |card: &Target| json!({ "name": card.name, "bytes": card.capacity_bytes });
    json!({
        "allocators": summary.totals.iter().map(allocator).collect::<Vec<_>>(),
        "cards": summary.targets.iter().map(card).collect::<Vec<_>>(),
    })
}

/// The numbers that the sentences do not say.
fn facts(summary: &FleetSummary) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if let Some(reference) = summary.totals.first() {
        let unused = reference.reserved_bytes.saturating_sub(reference.active_bytes);
        facts.push((Size(unused).to_string(), "reserved and not in use at the peaks".to_owned()));
    }
    let counts = [
        (summary.unlike_ranks, ["rank unlike its peers", "ranks unlike their peers"]),
        (
            summary.incomplete_ranks,
            ["rank not recorded completely", "ranks not recorded completely"],
        ),
        (
            summary.missing_ranks,
            [
                "rank without a recording that can be read",
                "ranks without a recording that can be read",
            ],
        ),
        (summary.errors, ["recording with a problem", "recordings with a problem"]),
    ];
    let found = counts.into_iter().filter(|&(count, _)| count > 0);
    facts.extend(found.map(|(count, [one, many])| {
        let what = if count == 1 { one } else { many };
        (Grouped(count).to_string(), what.to_owned())
    }));
    facts
}

fn left_out(summary: &FleetSummary) -> String {
    let (count, ranks) = (Grouped(summary.incomplete_ranks), Grouped(summary.ranks));
    let mut text = String::new();
    if summary.incomplete_ranks > 0 {
        text +=
            &format!(" Ranks that were not recorded completely are left out: {count} of {ranks}.");
    }
    if summary.totals.iter().any(|total| total.oom_ranks > 0) {
        text += " A rank that ran out of memory is left out of its allocator's curve.";
    }
    text
}

/// A section with a title of its own: what stands before the first colon or semicolon.
pub(super) fn article(section: &Section) -> String {
    let split = section.title.split_once([':', ';']);
    let (heading, lead) = split.unwrap_or((&section.title, ""));
    let lead = match lead.trim() {
        "" => String::new(),
        lead => format!("<p class=\"lead\">{}.</p>", escape(&capitalized(lead))),
    };
    let table = words::scrolling(section, heading);
    format!("<article><h2>{}</h2>{lead}{table}</article>\n", escape(heading))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{FleetJob, Problem, UnlikeRank};

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let name = "</script><img src=x onerror=\"alert('&')\">\u{1b}[31m".to_owned();
        let total = FleetTotal { allocator: name.clone(), ..FleetTotal::default() };
        let job = FleetJob { job: name.clone(), date: name.clone(), ..FleetJob::default() };
        let unlike = UnlikeRank { job: name.clone(), file: name.clone(), ..UnlikeRank::default() };
        let problem = Problem { text: name.clone(), count: 1, example: name.clone() };
        let summary = FleetSummary {
            totals: vec![total.clone(), total],
            worst_jobs: vec![job],
            unlike: vec![unlike],
            problems: vec![problem],
            ..FleetSummary::default()
        };
        let page = fleet_page(&summary, &name, &name).unwrap();
        assert!(!page.contains("<img") && !page.contains('\u{1b}') && !page.contains("{{"));
        assert_eq!(page.matches("</script>").count(), 2, "one for the data, one for the code");
    }
}
