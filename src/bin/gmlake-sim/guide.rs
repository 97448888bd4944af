//! Guide: help that fits a screen, help that tells all, and the pages that errors point to.
//!
//! ```text
//!   gmlake-sim                  what to do with a snapshot
//!   gmlake-sim --help           the commands              gmlake-sim compare --help    the usual options
//!   gmlake-sim help all         everything                gmlake-sim help compare      all options
//!   gmlake-sim help recording   a page of docs/
//! ```

use std::fs;

use anyhow::{Context, bail};
use clap::Command;

use crate::args::{self, CompletionsArgs, HelpArgs, ManArgs};
use crate::manual::write_manual;
use crate::topics::PAGES;
use crate::{Answer, completion, terminal};

/// What is shown when nothing was typed.
pub(crate) const START: &str = "\
gmlake-sim: GPU memory of PyTorch jobs, from a memory snapshot, without a GPU.

With a snapshot:
  gmlake-sim compare snapshot.pickle         what PyTorch reserved, and what other allocators would
  gmlake-sim blame snapshot.pickle           which lines of the program use the memory
  gmlake-sim blame snapshot.pickle --at oom  why it ran out of memory
  gmlake-sim tune snapshot.pickle            the best PYTORCH_CUDA_ALLOC_CONF
  gmlake-sim plan snapshot.pickle            which cards run the job
  gmlake-sim report snapshot.pickle          all of it as one page for a browser

Without one, record it:
  import sys, torch
  torch.cuda.memory._record_memory_history(max_entries=sys.maxsize)  # before anything is on the GPU
  train()
  torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")

Just to look: gmlake-sim demo. All commands: gmlake-sim --help.";

/// Shows the help of a command, a page, or everything.
pub(crate) fn help(args: &HelpArgs) -> anyhow::Result<Answer> {
    let mut command = args::command();
    command.build();
    let text = match args.topic.as_deref() {
        None if !args.all => command.render_help().to_string(),
        None | Some("all") => everything(&command),
        Some(name) => topic(&command, name)?,
    };
    terminal::print(text.trim_end())?;
    Ok(Answer::Yes)
}

/// What shows how the command that was typed is used.
pub(crate) fn help_for(typed: Option<&str>) -> String {
    let command = typed.filter(|name| args::command().find_subcommand(name).is_some());
    command.map_or("gmlake-sim --help".to_owned(), |name| format!("gmlake-sim help {name}"))
}

fn topic(command: &Command, name: &str) -> anyhow::Result<String> {
    if let Some(found) = command.find_subcommand(name) {
        return Ok(found.clone().render_long_help().to_string());
    }
    let page = PAGES.iter().find(|(page, _)| *page == name);
    let Some((_, text)) = page else {
        let pages = PAGES.map(|(page, _)| page).join(", ");
        bail!("there is no command or page {name:?}; the pages are: {pages}, all");
    };
    Ok((*text).to_owned())
}

/// Every command with every option, as `docs/commands.md` has it.
fn everything(command: &Command) -> String {
    let mut text = "# Commands of gmlake-sim\n\n".to_owned();
    text += "Written by `gmlake-sim help all`.\n\n";
    text += &section("gmlake-sim", &command.clone().render_help().to_string());
    for found in command.get_subcommands() {
        let title = format!("gmlake-sim {}", found.get_name());
        text += &section(&title, &found.clone().render_long_help().to_string());
    }
    text
}

fn section(title: &str, help: &str) -> String {
    let lines = help.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    format!("## {title}\n\n```text\n{lines}\n```\n\n")
}

/// Prints what a shell needs to complete our commands.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Answer> {
    terminal::print(completion::script(args.shell).trim_end())?;
    Ok(Answer::Yes)
}

/// The same command line, where options that the short help leaves out have their words in the manual.
fn with_long_help(command: Command) -> Command {
    let command =
        command.mut_args(|argument| match (argument.get_long_help(), argument.get_help()) {
            (None, Some(help)) => {
                let help = help.clone();
                argument.long_help(help)
            }
            _ => argument,
        });
    command.mut_subcommands(with_long_help)
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Answer> {
    let folder = &args.out;
    let wrong = || format!("{}: cannot write the manual pages", folder.display());
    fs::create_dir_all(folder).with_context(wrong)?;
    write_manual(with_long_help(args::command()), folder).with_context(wrong)?;
    Ok(Answer::Yes)
}
