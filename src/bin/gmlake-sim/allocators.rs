//! `gmlake-sim allocators`: what there is to choose from.

use std::fmt::Write;

use gmlake::allocator::{ALL, Spec};

use crate::{Answer, terminal};

pub(crate) fn main(json: bool) -> anyhow::Result<Answer> {
    if json {
        terminal::print_json("allocators", &ALL.iter().map(listed).collect::<Vec<_>>())?;
        return Ok(Answer::Yes);
    }
    let texts: Vec<String> = ALL.iter().map(describe).collect();
    terminal::print(&texts.join("\n"))?;
    Ok(Answer::Yes)
}

/// The same for programs.
fn listed(spec: &Spec) -> serde_json::Value {
    let options = spec.options.iter().map(|option| {
        serde_json::json!({
            "name": format!("{}.{}", spec.name, option.name),
            "default": option.default,
            "help": option.help,
        })
    });
    let options: Vec<_> = options.collect();
    serde_json::json!({
        "name": spec.name,
        "summary": spec.summary,
        "by_default": spec.role.is_default(),
        "options": options,
    })
}

/// The allocator's name and summary, and a line for each option.
fn describe(spec: &Spec) -> String {
    let note = if spec.role.is_default() { "" } else { " (on request)" };
    let mut text = format!("{:<16} {}{note}\n", spec.name, spec.summary);
    let named = |name: &str| format!("{}.{name}", spec.name);
    let width = spec.options.iter().map(|option| named(option.name).len()).max().unwrap_or(0);
    for option in spec.options {
        let (name, default) = (named(option.name), option.default);
        let _ = writeln!(text, "    {name:<width$}  {} [default: {default}]", option.help);
    }
    text
}
