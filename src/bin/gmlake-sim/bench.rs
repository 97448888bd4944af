//! `gmlake-sim bench`: every allocator on a set of traces, and submissions.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use gmlake::allocator::{ALL, Role};
use gmlake::bench::{self, Bench, Set, Submission, chart, show};
use gmlake::device::Profile;
use gmlake::page::bench_page;
use gmlake::remote::shown;
use gmlake::report::{Export, section};
use gmlake::sim::{Choice, RunCount, choose_with};
use gmlake::units::Count;

use crate::args::BenchArgs;
use crate::export::Exports;
use crate::{Answer, terminal, work};

/// Figures that do not come out, of which so many are named.
const NAMED: usize = 10;

pub(crate) fn main(args: &BenchArgs, json: bool) -> anyhow::Result<Answer> {
    if let Some(file) = &args.check {
        return check(args, file, json);
    }
    let submission = args.submit.as_deref().map(Export::open).transpose()?;
    let exports = exports(args)?;
    if !args.results.is_empty() {
        let found = Submission::join(&args.results)?;
        show(args, &found, json)?;
        exports.finish(&found)?;
        return Ok(Answer::Yes);
    }
    let allocators = chosen(args, &args.allocators, &args.option)?;
    let mut set = Set::open(args.set.as_deref().unwrap_or("small"), args.folder.as_deref())?;
    if let Some(part) = args.part {
        set = set.only(part)?;
    }
    let found = run(args, &set, &allocators, &args.profile)?;
    show(args, &found, json)?;
    if let Some(file) = submission {
        let named = |choice: &Choice| (choice.spec.name.to_owned(), choice.options.rows());
        let allocators = allocators.iter().map(named).collect();
        file.finish_json(&Submission::new(&found, &set, allocators)?)?;
    }
    exports.finish(&found)?;
    Ok(Answer::Yes)
}

fn show(args: &BenchArgs, found: &Bench, json: bool) -> anyhow::Result<()> {
    if json {
        return Ok(terminal::print_json("bench", found)?);
    }
    Ok(terminal::print(&section::text(&show::sections(found, args.each), terminal::look()))?)
}

/// The allocators: those named, or all that have a pool, and the plug-ins.
fn chosen(args: &BenchArgs, names: &[String], options: &[String]) -> anyhow::Result<Vec<Choice>> {
    let plug_ins = args.plugin.iter().map(|file| gmlake::plugin::load(file));
    let plug_ins = plug_ins.collect::<Result<Vec<_>, _>>()?;
    let pooled = ALL.iter().filter(|spec| spec.role != Role::Direct);
    let pooled: Vec<String> = pooled.map(|spec| spec.name.to_owned()).collect();
    Ok(choose_with(&plug_ins, if names.is_empty() { &pooled } else { names }, options)?)
}

fn run(args: &BenchArgs, set: &Set, allocators: &[Choice], profile: &str) -> anyhow::Result<Bench> {
    let profile = Profile::open(profile)?;
    let runs = Arc::new(RunCount::default());
    let bar = work::progress(set.traces.len(), &runs);
    let pool = work::pool(args.jobs)?;
    let rows = pool.install(|| bench::run(set, allocators, &profile, &runs, |_| bar.inc(1)));
    bar.finish_and_clear();
    Ok(Bench::new(&set.name, &profile.name, rows?))
}

/// Runs a submission again.
fn check(args: &BenchArgs, file: &Path, json: bool) -> anyhow::Result<Answer> {
    let submission = Submission::open(file)?;
    let names: Vec<String> = submission.allocators.keys().cloned().collect();
    let is_unknown = |name: &&String| gmlake::allocator::find(name).is_none();
    for library in &args.plugin {
        gmlake::plugin::load(library)?;
    }
    if let Some(name) = names.iter().find(is_unknown) {
        bail!("{}: {name} is a plug-in; give its library with --plugin", file.display());
    }
    let options = submission
        .allocators
        .iter()
        .flat_map(|(name, options)| options.iter().map(move |option| format!("{name}.{option}")));
    let allocators = chosen(args, &names, &options.collect::<Vec<_>>())?;
    let set = set_of(args, file, &submission)?;
    let whole = set.traces.len() as u64;
    let set = submission.traces_of(set)?;
    let found = run(args, &set, &allocators, &submission.profile)?;
    let differences = submission.differences(&found.rows);
    let figures = submission.rows.len();
    if json {
        let summaries = &found.summaries;
        let found = serde_json::json!({ "differences": differences, "summaries": summaries });
        terminal::print_json("bench", &found)?;
    } else if differences.is_empty() {
        let refusers = found.summaries.iter().filter(|summary| summary.oom_count > 0);
        let unscored = refusers.map(|one| {
            format!("; {} has no score: {}", one.allocator, Count(one.oom_count, "OOM"))
        });
        terminal::print(&format!(
            "{}: reproduces: {} of {} on {} of the {} of the set {}{}",
            shown(file),
            Count(figures as u64, "row"),
            Count(names.len() as u64, "allocator"),
            set.traces.len(),
            Count(whole, "trace"),
            set.name,
            unscored.collect::<String>()
        ))?;
    } else {
        let one = |d: &bench::Difference| {
            let bench::Difference { trace, allocator, figure, submitted, found } = d;
            format!("{trace}: {allocator}: {figure} is {found}, submitted as {submitted}")
        };
        let lines: Vec<String> = differences.iter().take(NAMED).map(one).collect();
        let count = Count(differences.len() as u64, "figure");
        let verb = if differences.len() == 1 { "differs" } else { "differ" };
        let head = format!("{}: does not reproduce: {count} {verb}", shown(file));
        terminal::print(&format!("{head}\n{}", lines.join("\n")))?;
    }
    Ok(if differences.is_empty() { Answer::Yes } else { Answer::No })
}

/// The set that a submission is checked on: the one given, or else its own, if that is a list of the program.
fn set_of(args: &BenchArgs, file: &Path, submission: &Submission) -> anyhow::Result<Set> {
    let own = Some(&submission.set).filter(|name| Set::is_built_in(name));
    let Some(name) = args.set.as_ref().or(own) else {
        let (file, name) = (file.display(), &submission.set);
        bail!("{file}: it is of the list {name}: give that with --set FILE");
    };
    Ok(Set::open(name, args.folder.as_deref())?)
}

/// What is to be written besides the table: pictures, tables and pages.
fn exports(args: &BenchArgs) -> anyhow::Result<Exports<'static, Bench>> {
    let each = args.each;
    let mut exports = Exports::new();
    exports.add_pictures(&args.export_plot, chart::write)?;
    exports.add(&args.export_markdown, move |found, out| {
        section::write_markdown(&show::sections(found, each), out)
    })?;
    exports.add(&args.export_html, move |found, out| {
        let page = bench_page(found, &show::sections(found, each), &crate::page::command())?;
        Ok(out.write_all(page.as_bytes())?)
    })?;
    Ok(exports)
}
