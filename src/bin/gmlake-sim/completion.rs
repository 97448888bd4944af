//! Completion: what a shell offers behind our commands.
//!
//! The shells' scripts are written by clap. It knows the options; the names that a value may have (allocators, cards,
//! profiles, pages) are added here, and only here, so that a wrong one is still answered by our own message.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command};
use clap_complete::Shell;
use gmlake::allocator::{ALL, Spec};
use gmlake::device::Profile;
use gmlake::plan::Card;

use crate::args;
use crate::topics::PAGES;

/// The script for a shell.
pub(crate) fn script(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command(), "gmlake-sim", &mut out);
    let text = String::from_utf8_lossy(&out).into_owned();
    if shell == Shell::Bash { for_bash(&text) } else { text }
}

/// What clap writes for bash looks for the commands of a program with a hyphen under another name than it puts them
/// under, and offers options where a file is wanted.
fn for_bash(text: &str) -> String {
    let mut text = text.replace("gmlake__subcmd__sim", "gmlake__sim");
    for depth in 1..=3 {
        text = text.replace(&format!(" || ${{COMP_CWORD}} -eq {depth} ]]"), " ]]");
    }
    let all = r#"            esac
            COMPREPLY=( $(compgen -W"#;
    text.replace(all, &all.replace("-W", "-X '-*' -W"))
}

/// The command line with the values that its options may have.
fn command() -> Command {
    let commands: Vec<String> =
        args::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    args::command().mut_subcommands(|command| {
        let command = command.mut_args(|argument| with_values(argument, &commands));
        command.mut_subcommands(|inner| inner.mut_args(|argument| with_values(argument, &commands)))
    })
}

fn with_values(argument: Arg, commands: &[String]) -> Arg {
    let values: Vec<String> = match argument.get_id().as_str() {
        "allocator" | "allocators" | "reference" => {
            ALL.iter().map(|spec| spec.name.to_owned()).chain(["all".to_owned()]).collect()
        }
        "card" => cards(),
        "cards" => cards().into_iter().chain(["all", "none"].map(str::to_owned)).collect(),
        "profile" => Profile::built_in_names().into_iter().map(str::to_owned).collect(),
        "set" => options(),
        "device_memory" => ["24GiB", "40GiB", "80GiB"].map(str::to_owned).to_vec(),
        "torch_version" => (1..=15).map(|minor| format!("2.{minor}")).collect(),
        "topic" => {
            let pages = PAGES.iter().map(|(page, _)| (*page).to_owned());
            commands.iter().cloned().chain(pages).chain(["all".to_owned()]).collect()
        }
        _ => return argument,
    };
    // Clap keeps names for ever; this program ends when it has printed them.
    let values = values.into_iter().map(|value| PossibleValue::new(&*value.leak()));
    argument.value_parser(PossibleValuesParser::new(values.collect::<Vec<_>>()))
}

/// As one types them: without blanks.
fn cards() -> Vec<String> {
    Card::built_in().into_iter().map(|card| card.name.replace(' ', "-")).collect()
}

/// Options of allocators, up to their values.
fn options() -> Vec<String> {
    let of = |spec: &'static Spec| {
        spec.options.iter().map(|option| format!("{}.{}=", spec.name, option.name))
    };
    ALL.iter().flat_map(of).collect()
}
