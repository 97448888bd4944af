//! `reports/plan.md`: how much memory some jobs need, the cards that run them, and the check by `compare`.

use anyhow::Result;
use gmlake::allocator::by_default;
use gmlake::beside::{self, Uses};
use gmlake::compare::compare;
use gmlake::plan::{
    Card, DEFAULT_RESOLUTION, Need, Plan, PlanOptions, Series, plan_job, show as words,
};
use gmlake::report::section;
use gmlake::sim::job::{Job, jobs, quantity};
use gmlake::sim::{Choices, Memory, Opened, Setup, choose};
use gmlake::units::{Bytes, GIB, MIB, Size};

use crate::{Table, Traces};

const HEAD: &str = "\
# How much memory it takes

For each job the smallest device memory on which every request is served, to 2 MiB, under each allocator with its own
behaviour under pressure (flushing, trying again, stitching), and the cards that run it. Sizes of cards are what the driver
reports to a program; of that the CUDA context and NCCL first get what they usually take there (`--reserve`). Success is
not strictly a matter of size, so every answer is checked: the run at the stated capacity serves everything, the run with
2 MiB less does not.

Made by `cargo run --release --example reports -- traces [more folders]`; each part by itself by the command above it.

";

/// Jobs that are planned one by one, and those that make a series by batch size.
const SINGLE: [&str; 2] = ["opt-1.3b-LR-var", "generate-7b"];
const SERIES: [(&str, &str); 3] = [
    ("32", "zero3-opt-1.3b-LR-w4.b32.r0"),
    ("64", "zero3-opt-1.3b-LR-w4.r0"),
    ("160", "zero3-opt-1.3b-LR-w4.b160.r0"),
];

const SERIES_HEAD: &str = "\
## zero3-opt-1.3b-LR-w4 by batch size per GPU

The recording without a `b` in its name has a batch size of 64: its activations have twice the size of those of `b32` and
two fifths of those of `b160`.

";

pub(crate) fn report(traces: &Traces) -> Result<String> {
    let options = options()?;
    let mut text = HEAD.to_owned();
    for name in SINGLE {
        let Some(path) = traces.path(name) else { continue };
        text += &format!("## {name}\n\n`gmlake-sim plan {name}.pickle.xz`\n\n");
        let job = jobs(&[path.to_owned()], false)?.remove(0);
        text += &planned(traces, name, &job, &options)?;
    }
    text += &series(traces, &options)?;
    Ok(text + &catalogue())
}

fn options() -> Result<PlanOptions> {
    let cards = Card::built_in();
    let uses = Uses::usual(1);
    let targets = cards.iter().map(|card| beside::target(card, &uses));
    // As `gmlake-sim plan` does.
    let usual = by_default().filter(|spec| spec.role.is_choice());
    let names: Vec<String> = usual.map(|spec| spec.name.to_owned()).collect();
    Ok(PlanOptions {
        choices: Choices { allocators: choose(&names, &[])?, ..Choices::default() },
        targets: targets.collect::<Result<_, _>>()?,
        resolution: DEFAULT_RESOLUTION,
    })
}

/// The tables of `gmlake-sim plan`, and the check.
fn planned(traces: &Traces, name: &str, job: &Job, options: &PlanOptions) -> Result<String> {
    let plan = plan_job(job, options, |_| ());
    let mut bytes = Vec::new();
    section::write_markdown(&words::job_sections(&plan), &mut bytes)?;
    let mut text = String::from_utf8(bytes)?;
    if let (Some(opened), Some(rank)) = (traces.open(name)?, plan.ranks.first()) {
        text += &check(&opened, rank, options)?;
    }
    Ok(text)
}

fn check(opened: &Opened, plan: &Plan, options: &PlanOptions) -> Result<String> {
    let mut table =
        Table::new(&["allocator", "`--device-memory`", "left out", "one step less", "left out "]);
    for need in &plan.needs {
        let Some(smallest) = need.smallest_bytes() else { continue };
        let below = smallest - plan.resolution_bytes;
        let ooms = |memory| left_out(opened, need, memory, options);
        let shown = |memory: Bytes| format!("{}MiB", memory / MIB);
        let (at, under) = (ooms(smallest)?, ooms(below)?);
        table.row(&[
            need.label(),
            shown(smallest),
            at.to_string(),
            shown(below),
            under.to_string(),
        ]);
    }
    let command = "`gmlake-sim compare FILE --device-memory SIZE --allocators NAME`";
    Ok(format!("\nThe check, requests that are left out by {command}:\n\n{}", table.text()))
}

fn left_out(opened: &Opened, need: &Need, memory: Bytes, options: &PlanOptions) -> Result<u64> {
    let choice = options.choices.allocators.iter().find(|c| c.spec.name == need.allocator);
    let setup = Setup { memory: Memory::Bytes(memory), ..Setup::default() };
    let allocators = choice.into_iter().cloned().collect();
    let choices = Choices { allocators, setup, ..Choices::default() };
    let found = compare(opened, &choices)?;
    Ok(found.run(&need.allocator).map_or(0, |run| run.oom_count))
}

fn series(traces: &Traces, options: &PlanOptions) -> Result<String> {
    let here: Vec<_> =
        SERIES.iter().filter_map(|(b, name)| Some((b, name, traces.path(name)?))).collect();
    if here.len() < 2 {
        return Ok(String::new());
    }
    let values = here.iter().map(|(batch, ..)| **batch).collect::<Vec<_>>().join(",");
    let files = here.iter().map(|(_, name, _)| format!("{name}.pickle.xz")).collect::<Vec<_>>();
    let mut text = SERIES_HEAD.to_owned();
    text += &format!("`gmlake-sim plan {} --by batch={values}`\n\n", files.join(" "));
    let paths: Vec<_> = here.iter().map(|(_, _, path)| path.to_path_buf()).collect();
    let found = jobs(&paths, false)?;
    let mut series = Series::default();
    for ((_, name, _), job) in here.iter().zip(&found) {
        text += &format!("### {name}\n\n");
        text += &planned(traces, name, job, options)?;
        series.jobs.push(plan_job(job, options, |_| ()));
    }
    if let Some((name, values)) = quantity(&found, Some(&format!("batch={values}")))? {
        (series.quantity, series.values) = (name, values);
    }
    let mut bytes = Vec::new();
    section::write_markdown(&words::series_section(&series), &mut bytes)?;
    Ok(text + "### Together\n\n" + &String::from_utf8(bytes)? + "\n")
}

fn catalogue() -> String {
    let mut table = Table::new(&["card", "sold as", "usable", "source"]);
    for card in Card::built_in() {
        let sold = format!("{} GB", card.marketing_gb);
        let share = 100.0 * card.usable_bytes as f64 / (f64::from(card.marketing_gb) * GIB as f64);
        let usable = format!("{} ({share:.1} %)", Size(card.usable_bytes));
        table.row(&[card.name, sold, usable, card.source]);
    }
    let head = "## The cards\n\nThe catalogue is `crates/core/src/cards.csv`; `--catalogue FILE` takes another.\n\n";
    format!("{head}{}", table.text().trim_end().to_owned() + "\n")
}
