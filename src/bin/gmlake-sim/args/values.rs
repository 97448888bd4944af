//! Values as they are typed: sizes, shares and numbers. Each error says what is expected.

use std::num::NonZeroUsize;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gmlake::fleet::MOST_JOBS;
use gmlake::sim::Memory;
use gmlake::units::{Bytes, TIB, parse_memory, parse_share};

/// A name as it is typed, what it means, and the value that it stands for.
pub(crate) type Named<T> = (&'static str, &'static str, T);

/// One of these names.
pub(crate) fn named<T: Clone + Send + Sync>(
    all: &'static [Named<T>],
) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|(name, help, _)| PossibleValue::new(name).help(*help));
    let value = |name: String| all.iter().find(|(own, ..)| *own == name).map(|one| one.2.clone());
    PossibleValuesParser::new(names).map(move |name| value(name).expect("clap knows the names"))
}

/// Devices have numbers of 32 bits.
pub(crate) const MOST_DEVICE: u64 = u32::MAX as u64;

/// More memory than any device has: a slip of the unit.
pub(crate) const MOST_MEMORY: Bytes = 1024 * TIB;

/// A size that a device may have.
pub(crate) fn capacity(text: &str) -> Result<Bytes, String> {
    match bytes(text)? {
        0 => Err("a device without memory serves nothing".to_owned()),
        size if size > MOST_MEMORY => Err("no device has more than 1024TiB".to_owned()),
        size => Ok(size),
    }
}

pub(crate) fn memory(text: &str) -> Result<Memory, String> {
    match text {
        "unlimited" => Ok(Memory::Unlimited),
        size => capacity(size).map(Memory::Bytes),
    }
}

pub(crate) fn bytes(text: &str) -> Result<Bytes, String> {
    parse_memory(text)
}

/// A number of threads; more than the most are as many as that.
pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| format!("it is a number from 1 to {MOST_JOBS}"))
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    let valid = |share: &f64| *share > 0.0 && *share <= 1.0;
    let known = parse_share(text)?;
    Some(known).filter(valid).ok_or_else(|| "a share is above 0 and at most 1".to_owned())
}

/// A share of which there is no more than the whole; 0 is one, too.
pub(crate) fn worth(text: &str) -> Result<f64, String> {
    let known = parse_share(text)?;
    let valid = |share: &f64| (0.0..=1.0).contains(share);
    Some(known).filter(valid).ok_or_else(|| "it must be a share from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    /// Every option whose value is a number: what clap says by itself names neither what is expected nor the range.
    #[test]
    fn a_wrong_number_is_told_what_is_expected() {
        const NUMBERS: [&str; 7] = ["N", "STEPS", "EVENTS", "SIZE", "SHARE", "I/N", "SHARE|SIZE"];
        let mut tried = 0;
        let command = super::super::command();
        for subcommand in command.get_subcommands() {
            let is_number = |argument: &&clap::Arg| {
                let names = argument.get_value_names().unwrap_or_default();
                let is_named = names.iter().any(|name| NUMBERS.contains(&name.as_str()));
                is_named && argument.get_action().takes_values()
            };
            for argument in subcommand.get_arguments().filter(is_number) {
                let long = argument.get_long().expect("it is an option");
                for wrong in ["x", "3..1", "1e400", "-5", "nan", "", "99999999999999999999"] {
                    let typed = format!("--{long}={wrong}");
                    let typed = ["gmlake-sim", subcommand.get_name(), &typed, "file"];
                    let error = super::super::command().try_get_matches_from(typed).unwrap_err();
                    let said = error.to_string();
                    let words =
                        ["expected", "write", "a number from", "must be", "above", "end at"];
                    let is_clear = words.iter().any(|word| said.contains(word));
                    let said = format!("{typed:?}: {said}");
                    assert!(error.kind() == clap::error::ErrorKind::ValueValidation, "{said}");
                    assert!(is_clear, "{said}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 200, "{tried}");
    }
}
