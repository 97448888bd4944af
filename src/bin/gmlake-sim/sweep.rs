//! `gmlake-sim sweep`: a grid of options, devices and profiles.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::bail;
use gmlake::report::section;
use gmlake::sweep::chart::write_sweep;
use gmlake::sweep::{Grid, Journal, Sweep, SweepPlan, Swept, show as report, sweep};
use gmlake::units::Count;

use crate::args::{SweepArgs, SweepOutputArgs};
use crate::export::Exports;
use crate::typed::setup;
use crate::{Answer, terminal, work};

pub(crate) fn main(args: &SweepArgs) -> anyhow::Result<Answer> {
    let base = setup(args.input.torch_version, &args.device, args.alloc_conf.as_deref())?;
    let mut grid = Grid::new(&args.allocators, &args.set, &base)?;
    if let Some(shard) = args.shard {
        grid.keep_share(shard.index, shard.count);
    }
    let exports = exports(&args.output)?;
    let open = args.input.open(false);
    let journal = journal(&args.output)?;
    let (is_strict, only_fitting) = (args.input.strict, args.only_fitting);
    let plan = SweepPlan { grid, open, is_strict, only_fitting, journal };
    plan.check_journal(&args.input.files)?;
    let (rows, answer) = run(&args.input.files, args.output.jobs, &plan)?;
    let found = Sweep { axes: plan.grid.axes.clone(), rows };
    if found.rows.is_empty() && answer == Answer::Incomplete {
        return Ok(answer);
    }
    if found.rows.is_empty() {
        terminal::print_line(match plan.grid.points.len() {
            0 => "nothing was run: this shard has no points",
            _ => "nothing fits: every device has less memory than is live at once",
        });
    } else if !exports.has_stdout() {
        terminal::print(&section::text(&report::sections(&found), terminal::look()))?;
    }
    exports.finish(&found)?;
    // A file that could not be used keeps the others' results in the journal, for when it can.
    if let Some(journal) = plan.journal.filter(|_| answer == Answer::Yes) {
        journal.finish()?;
    }
    Ok(answer)
}

/// Makes the runs; what is wrong with a file is reported, and the others continue.
pub(crate) fn run(
    files: &[PathBuf],
    jobs: Option<NonZeroUsize>,
    plan: &SweepPlan,
) -> anyhow::Result<(Vec<gmlake::sweep::SweepRow>, Answer)> {
    let kept = plan.journal.as_ref().map_or(0, Journal::runs);
    if kept > 0 && !terminal::is_quiet() {
        terminal::print_line(&format!(
            "going on with {} of an earlier sweep",
            Count(kept as u64, "run")
        ));
    }
    let bar = work::rate(files.len() * plan.grid.points.len(), "runs");
    let pool = work::pool(jobs)?;
    let results = pool.install(|| sweep(files, plan, || bar.inc(1)));
    bar.finish_and_clear();
    let results = results.into_iter().map(|result| result.map_err(anyhow::Error::from));
    let (found, answer) = terminal::usable(results);
    found.iter().for_each(print_counts);
    Ok((found.into_iter().flat_map(|one| one.rows).collect(), answer))
}

/// What the recording lacks, and how many points needed no run, on standard error.
fn print_counts(found: &Swept) {
    let Swept { rows, shared, left_out, caution } = found;
    if let Some(caution) = caution {
        terminal::warn(caution);
    }
    if (*shared > 0 || *left_out > 0) && !terminal::is_quiet() {
        let mut words = vec![Count(rows.len() as u64 - shared, "run").to_string()];
        if *shared > 0 {
            let goes = if *shared == 1 { "goes" } else { "go" };
            words.push(format!("{} {goes} as without a memory limit", Count(*shared, "point")));
        }
        if *left_out > 0 {
            let points = Count(*left_out, "point");
            words.push(format!("{points} left out, with less memory than is live at once"));
        }
        terminal::print_line(&words.join("; "));
    }
}

fn exports(args: &SweepOutputArgs) -> anyhow::Result<Exports<'static, Sweep>> {
    let mut exports = Exports::json("sweep", &args.export_json)?;
    exports.add(&args.export_csv, report::write_csv)?;
    exports.add(&args.export_parquet, report::write_parquet)?;
    exports.add(&args.export_markdown, |sweep, out| {
        section::write_markdown(&report::sections(sweep), out)
    })?;
    exports.add_pictures(&args.plot, write_sweep)?;
    Ok(exports)
}

/// The journal, if there is a file that it can stand next to or one was named. Its name does not change from run to
/// run.
fn journal(args: &SweepOutputArgs) -> anyhow::Result<Option<Journal>> {
    let lists = [&args.export_csv, &args.export_json, &args.export_markdown, &args.plot];
    let first = lists.into_iter().flatten().find(|path| path.as_os_str() != "-");
    let first = first.or_else(|| args.export_parquet.iter().find(|path| path.as_os_str() != "-"));
    let journal_of = |path: &PathBuf| {
        let mut name = path.clone().into_os_string();
        name.push(".journal");
        PathBuf::from(name)
    };
    // Nothing can stand next to a pipe or a device.
    let plain = first.filter(|path| !path.exists() || path.is_file());
    match args.journal.clone().or_else(|| plain.map(journal_of)) {
        Some(path) if path.is_dir() => bail!("{}: a journal is a file", path.display()),
        Some(path) => Ok(Some(Journal::open(&path)?)),
        None => Ok(None),
    }
}
