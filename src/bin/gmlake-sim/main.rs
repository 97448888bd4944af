//! `gmlake-sim`: how much GPU memory a recorded job needs, and what another allocator would do.
//!
//! ```text
//!   args ──▶ what was typed ──▶ library types ──▶ compare | plan | fits | inspect | ... ──▶ an Answer
//! ```
//!
//! Tables go to standard output, everything else to standard error. The exit code is 0 if all went well, 1 if the
//! answer is no (memory ran out under `--fail-on-oom`, or a verification found a difference), 2 if the command or a
//! file was wrong, and 3 if a recording shows too little of its job for an answer.

mod allocators;
mod args;
mod bar;
mod bench;
mod blame;
mod compare;
mod completion;
mod demo;
mod diff;
mod export;
mod fits;
mod fleet;
mod fleet_report;
mod guide;
mod inspect;
mod manual;
mod message;
mod overwrite;
mod page;
mod pinned;
mod plan;
mod plot;
mod sweep;
mod terminal;
mod topics;
mod transcribe;
mod tune;
mod typed;
mod verify;
mod work;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches};
use gmlake::host_memory::OrEnd;
use gmlake::report::usage_error;

use args::{Args, Command};

#[global_allocator]
static MEMORY: OrEnd = OrEnd { program: "gmlake-sim", remedy: "use fewer threads (--jobs 1), or " };

/// How a command ended that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// All is well.
    Yes,
    /// The run finished, and the answer is no.
    No,
    /// Some files could not be used; they were reported on the way.
    Incomplete,
    /// The recording does not show enough of the job for an answer.
    Unknown,
}

fn main() -> ExitCode {
    if std::env::args_os().len() < 2 {
        return printed(terminal::print(guide::START), ExitCode::SUCCESS);
    }
    // Ctrl-C and SIGTERM leave no half-written files.
    let _ = ctrlc::set_handler(|| {
        gmlake::report::remove_unfinished();
        std::process::exit(130);
    });
    let mut matches = match typed() {
        Ok(matches) => matches,
        // Help and version are answers.
        Err(error) if !error.use_stderr() || shows_help(&error) => {
            let code = ExitCode::from(error.exit_code() as u8);
            return printed(error.print().and_then(|()| io::stdout().flush()), code);
        }
        Err(error) => {
            let help = guide::help_for(std::env::args().nth(1).as_deref());
            terminal::print_line(&format!("{}; see '{help}'", usage_error(&error.to_string())));
            return ExitCode::from(2);
        }
    };
    match run(&mut matches) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Incomplete) => ExitCode::from(2),
        Ok(Answer::Unknown) => ExitCode::from(3),
        Err(error) => {
            terminal::print_error(&error);
            ExitCode::from(2)
        }
    }
}

/// Reads the command line.
fn typed() -> Result<ArgMatches, clap::Error> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let error = match args::command().try_get_matches_from(&typed) {
        Err(error) if error.kind() == ErrorKind::UnknownArgument => error,
        other => return other,
    };
    match args::command().try_get_matches_from(with_negatives(&typed)) {
        Err(clearer) if is_about_a_value(clearer.kind()) => Err(clearer),
        _ => Err(error),
    }
}

fn is_about_a_value(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue)
}

/// A negative number is the value of the option before it, and none of its own: `--top -5` is `--top=-5`.
fn with_negatives(typed: &[OsString]) -> Vec<OsString> {
    let is_negative = |word: &str| {
        let number = word.strip_prefix('-').map(|number| number.trim_start_matches('.'));
        number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    };
    let takes_it = |word: &str| word.starts_with("--") && word.len() > 2 && !word.contains('=');
    let mut words: Vec<OsString> = Vec::new();
    for word in typed {
        match words.last_mut() {
            Some(last)
                if is_negative(&word.to_string_lossy()) && takes_it(&last.to_string_lossy()) =>
            {
                last.push("=");
                last.push(word);
            }
            _ => words.push(word.clone()),
        }
    }
    words
}

/// How the program ends once it has printed what it was asked for.
fn printed(result: io::Result<()>, code: ExitCode) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            terminal::print_error(&error.into());
            ExitCode::from(2)
        }
        _ => code,
    }
}

fn run(matches: &mut ArgMatches) -> anyhow::Result<Answer> {
    overwrite::refuse(matches)?;
    let args = Args::from_arg_matches_mut(matches)?;
    let json = args.common.json;
    terminal::set_manner(args.common);
    match &args.command {
        Command::Demo(args) => demo::main(args, json),
        Command::Compare(args) => compare::main(args),
        Command::Plan(args) => plan::main(args),
        Command::Fits(args) => fits::main(args, json),
        Command::Sweep(args) => sweep::main(args),
        Command::Fleet(args) => fleet::main(args, json),
        Command::Tune(args) => tune::main(args),
        Command::Report(args) => page::main(args, json),
        Command::Plot(args) => plot::main(args, json),
        Command::Inspect(args) => inspect::main(args),
        Command::Blame(args) => blame::main(args),
        Command::Diff(args) => diff::main(args),
        Command::Bench(args) => bench::main(args, json),
        Command::Verify(args) => verify::main(args),
        Command::Export(args) => transcribe::main(args, json),
        Command::Allocators => allocators::main(json),
        Command::Help(args) => guide::help(args),
        Command::Completions(args) => guide::completions(args),
        Command::Man(args) => guide::man(args),
    }
}

/// Whether somebody typed a command alone and gets its help.
fn shows_help(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}
