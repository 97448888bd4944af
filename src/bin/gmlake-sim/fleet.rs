//! `gmlake-sim fleet`: the recordings of many jobs into Parquet tables.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use gmlake::fleet::{Config, Layout, Outcome, RunOptions, Shard, list, run};
use gmlake::remote::shown;
use gmlake::sim::Setup;
use gmlake::sweep::Grid;
use gmlake::trace::LoadOptions;
use gmlake::units::{Count, Grouped};
use serde::Serialize;

use crate::args::{FleetArgs, FleetCommand};
use crate::typed::{setup, warn_of_left_out};
use crate::{Answer, terminal, work};

/// What runs where nothing is chosen: what users can switch to.
const ALLOCATORS: [&str; 3] = ["caching", "expandable", "lake"];

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Document {
    out: PathBuf,
    recordings: usize,
    recordings_before: usize,
    runs: u64,
    errors: u64,
    parts_removed: usize,
}

pub(crate) fn main(args: &FleetArgs, json: bool) -> anyhow::Result<Answer> {
    if let Some(FleetCommand::Report(args)) = &args.command {
        return crate::fleet_report::main(args, json);
    }
    let Some(out) = &args.out else { bail!("give a folder for the tables with --out") };
    if args.inputs.iter().any(|input| input.as_os_str() == "-") {
        bail!("a fleet is read from files, not from standard input");
    }
    let config = config(args)?;
    let listing = list(&args.inputs, args.manifest.as_deref())?;
    warn_of_left_out(&listing.left_out);
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let layout = Layout::new(listing, &config);
    let recordings = layout.of(shard).map(|part| part.files.len()).sum();
    let bar = work::rate(recordings, "recordings");
    let inputs = inputs(args);
    let done = |_: &gmlake::fleet::FileEntry| bar.inc(1);
    let options = RunOptions {
        out,
        inputs: &inputs,
        shard,
        jobs: args.jobs,
        retries_errors: args.retry_errors,
    };
    let outcome = run(&layout, &config, options, &done);
    bar.finish_and_clear();
    let outcome = outcome?;
    tell(args, recordings, &outcome, json)?;
    Ok(if outcome.errors > 0 { Answer::Incomplete } else { Answer::Yes })
}

fn config(args: &FleetArgs) -> anyhow::Result<Config> {
    let torch_version = args.torch_version;
    let base = setup(torch_version, &args.device, args.alloc_conf.as_deref())?;
    let base = Setup { cache: Some(Arc::default()), ..base };
    // An option of an allocator, as in `caching.max_split_size_mb=128`, names it.
    let is_option = |axis: &String| axis.split('=').next().is_some_and(|name| name.contains('.'));
    let by_default = args.allocators.is_empty() && !args.set.iter().any(is_option);
    let names = match by_default {
        true => ALLOCATORS.map(str::to_owned).to_vec(),
        false => args.allocators.clone(),
    };
    let grid = Grid::new(&names, &args.set, &base)?;
    let (max_bytes, snapshot) = (args.limit.max_input, args.snapshot);
    let load = LoadOptions { torch_version, max_bytes, snapshot, ..LoadOptions::default() };
    Ok(Config { grid, load, has_steps: args.steps })
}

/// What was typed, for the next call to compare with.
fn inputs(args: &FleetArgs) -> Vec<String> {
    let inputs = args.inputs.iter().map(|input| shown(input));
    let manifest = args.manifest.iter().map(|path| format!("--manifest {}", shown(path)));
    inputs.chain(manifest).collect()
}

fn tell(args: &FleetArgs, recordings: usize, outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    let out = args.out.clone().unwrap_or_default();
    if json {
        let &Outcome { files_before, runs, errors, removed, .. } = outcome;
        return Ok(terminal::print_json(
            "fleet",
            &Document {
                out,
                recordings,
                recordings_before: files_before,
                runs,
                errors,
                parts_removed: removed,
            },
        )?);
    }
    let before = match outcome.files_before {
        0 => String::new(),
        count => format!(", {} of them done before", Grouped(count as u64)),
    };
    let (count, out) = (Count(recordings as u64, "recording"), shown(&out));
    terminal::print(&format!("{count}{before}: {out}/runs, {out}/ranks"))?;
    if outcome.errors > 0 {
        terminal::print_line(&format!(
            "problems with recordings: {}; see {out}/errors, or 'gmlake-sim fleet report {out}'",
            Grouped(outcome.errors)
        ));
    }
    Ok(())
}
