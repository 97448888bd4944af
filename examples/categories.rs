//! Accuracy of the rule of `gmlake-sim blame --by category`, on recordings that note what each block is for.
//!
//! usage: categories FILE... (made by `python -m gmlake predict --stacks --categories --out DIR SCRIPT`)
//!
//! A line for each file: bytes at the peak of live bytes, and the share of which the rule says what the program noted.
//! Below it come the largest mistakes: what was noted, what the rule says, and the line.

#![allow(clippy::print_stdout)]

use std::path::PathBuf;

use anyhow::Result;
use gmlake::blame::{Question, verdicts};
use gmlake::sim::open;
use gmlake::trace::LoadOptions;
use gmlake::units::Size;

fn main() -> Result<()> {
    for file in std::env::args_os().skip(1).map(PathBuf::from) {
        let options = LoadOptions { stacks: true, ..LoadOptions::default() };
        let rows = verdicts(&open(&file, &options)?, &Question::default())?;
        let all: u64 = rows.iter().map(|row| row.3).sum();
        let right: u64 = rows.iter().filter(|row| row.0 == row.1).map(|row| row.3).sum();
        let share = right as f64 / all.max(1) as f64 * 100.0;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        println!("{name:<24} {:>10}  {share:5.1} % right", Size(all).to_string());
        for (noted, rule, line, bytes) in rows.iter().filter(|row| row.0 != row.1).take(5) {
            let share = *bytes as f64 / all.max(1) as f64 * 100.0;
            println!("    {share:5.1} %  {} taken for {}: {line}", noted.name(), rule.name());
        }
    }
    Ok(())
}
