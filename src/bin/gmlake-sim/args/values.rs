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
#[path = "wrong_numbers.rs"]
mod wrong_numbers;

#[cfg(test)]
mod tests {
    #[test]
    fn a_wrong_number_is_told_what_is_expected() {
        let names = ["N", "STEPS", "EVENTS", "SIZE", "SHARE", "I/N", "SHARE|SIZE"];
        let words = ["expected", "write", "a number from", "must be", "above", "end at"];
        let typed = |long: &str, wrong: &str| vec![format!("--{long}={wrong}"), "file".to_owned()];
        let command = super::super::command();
        let tried = super::wrong_numbers::try_all(&command, &names, &words, typed);
        assert!(tried > 200, "{tried}");
    }
}
