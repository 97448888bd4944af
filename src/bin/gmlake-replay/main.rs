//! `gmlake-replay`: the simulated allocators on a real GPU, and how long its memory calls take.
//!
//! Exit codes: 0 if all went well, 1 if a run ended early or found something wrong, 2 if it could not begin.

mod args;
mod calibrate;
mod fit;
#[path = "../gmlake-sim/manual.rs"]
mod manual;
mod outputs;
mod overwrite;
mod prices;
mod run;
mod show;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches};
use gmlake::host_memory::OrEnd;
use gmlake::report::{remove_unfinished, usage_error};

use args::{Args, Command};

#[global_allocator]
static MEMORY: OrEnd = OrEnd { program: "gmlake-replay", remedy: "" };

fn main() -> ExitCode {
    let typed = <Args as CommandFactory>::command().try_get_matches();
    let typed = typed.and_then(|found| Ok((Args::from_arg_matches(&found)?, found)));
    let (args, matches) = match typed {
        Ok(typed) => typed,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            let line = usage_error(&error.to_string());
            show::complain(&format!("{line}; see 'gmlake-replay --help'"));
            return ExitCode::from(2);
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // The first Ctrl-C lets the run end in order, the second ends the program.
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            remove_unfinished();
            std::process::exit(130);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        show::complain(&format!("Ctrl-C will lose the results of the current run: {error}"));
    }
    match overwrite::refuse(&matches).and_then(|()| run_command(args.command(), &stop)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            show::complain(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Whether everything was as it should be.
fn run_command(command: Command, stop: &AtomicBool) -> anyhow::Result<bool> {
    match command {
        Command::Calibrate(options) => calibrate::calibrate(&options, stop),
        Command::Fit(options) => fit::fit(&options),
        Command::Run(options) => run::run(&options, stop),
        Command::Man(options) => man(&options.out),
    }
}

/// Writes the manual pages.
fn man(folder: &Path) -> anyhow::Result<bool> {
    let wrong = || format!("{}: cannot write the manual pages", folder.display());
    std::fs::create_dir_all(folder).with_context(wrong)?;
    manual::write_manual(<Args as CommandFactory>::command(), folder).with_context(wrong)?;
    Ok(true)
}
