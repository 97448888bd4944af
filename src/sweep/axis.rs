//! Axes: what a sweep varies, as it is typed.
//!
//! ```text
//!   gmlake.fragment_limit=2MiB..1GiB:x2           2MiB, 4MiB, ... 1GiB
//!   gmlake.fragment_limit=0..10MiB:+2MiB          0B, 2MiB, ... 10MiB
//!   caching.max_split_size_mb=default,128,512     each of these; 'default' leaves the option alone
//!   device-memory=24GiB..80GiB:+8GiB,unlimited    the device
//!   profile=h200,a100-paper                       what the driver's calls cost
//!   alloc-conf=;expandable_segments:True          PyTorch's settings, separated by semicolons
//! ```

use std::fmt::Display;

use super::data::Axis;
use crate::alloc_conf::split_outside_brackets;
use crate::input_error::InputError;
use crate::units::{Bytes, GIB, KIB, MIB, TIB, parse_size};

/// More values than this on one axis are a slip.
const MOST_VALUES: usize = 10_000;

/// What an axis sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Option { allocator: &'a str, option: &'a str },
    Memory,
    Profile,
    Conf,
}

/// Why an axis was refused.
pub(super) fn refused(text: &str, problem: impl Display) -> InputError {
    InputError(format!("--set {text:?}: {problem}"))
}

/// Reads an axis. Fails if it is not `NAME=VALUES`, a range has no end, or there are far too many values.
pub(super) fn parse(text: &str) -> Result<Axis, InputError> {
    let fail = |problem: &str| refused(text, problem);
    let usage = "write NAME=VALUE,... with NAME an allocator's option, such as \
                 gmlake.fragment_limit, or device-memory, profile or alloc-conf";
    let (name, values) = text.split_once('=').ok_or_else(|| fail(usage))?;
    let name = name.trim();
    kind(name).ok_or_else(|| fail(usage))?;
    let separator = if name == "alloc-conf" { ';' } else { ',' };
    let mut all = Vec::new();
    for item in split_outside_brackets(values, separator) {
        match item.split_once("..") {
            Some(range) if name != "alloc-conf" && name != "profile" => {
                all.extend(expand(range).map_err(|problem| refused(text, problem))?);
            }
            _ => all.push(item.trim().to_owned()),
        }
    }
    if all.len() > MOST_VALUES {
        return Err(fail("these are more than 10,000 values"));
    }
    if name != "alloc-conf" && all.iter().any(String::is_empty) {
        return Err(fail("a value is empty"));
    }
    let mut sorted = all.clone();
    sorted.sort();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(fail("a value is given twice"));
    }
    Ok(Axis { name: name.to_owned(), values: all })
}

/// What an axis of this name sets.
pub(super) fn kind(name: &str) -> Option<Kind<'_>> {
    match name {
        "device-memory" => Some(Kind::Memory),
        "profile" => Some(Kind::Profile),
        "alloc-conf" => Some(Kind::Conf),
        _ => name.split_once('.').map(|(allocator, option)| Kind::Option { allocator, option }),
    }
}

/// The values of `first..last:STEP`.
fn expand((first, rest): (&str, &str)) -> Result<Vec<String>, String> {
    let usage = "write a range as 2MiB..1GiB:x2 (times two) or 0..64MiB:+8MiB (plus eight)";
    let (last, step) = rest.split_once(':').ok_or(usage)?;
    let plain = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    let is_size = plain(first).is_none() || plain(last).is_none();
    let number = |text: &str| match is_size {
        true => parse_size(text).map(|bytes| bytes as f64),
        false => plain(text).ok_or_else(|| format!("{text:?} is not a number")),
    };
    let show = |value: f64| if is_size { size(value as Bytes) } else { value.to_string() };
    let (from, to) = (number(first)?, number(last)?);
    let next: Box<dyn Fn(f64) -> f64> = match step.split_at_checked(1) {
        Some(("x", factor)) => {
            let factor = plain(factor).filter(|&factor| factor > 1.0 && from > 0.0);
            let factor = factor.ok_or("a factor is above 1, and multiplies no zero")?;
            Box::new(move |value| value * factor)
        }
        Some(("+", width)) => {
            let width = number(width)?;
            if width <= 0.0 {
                return Err("a range goes on by more than nothing".to_owned());
            }
            Box::new(move |value| value + width)
        }
        _ => return Err(usage.to_owned()),
    };
    if from > to {
        return Err(format!("the range ends before it begins: {first} is above {last}"));
    }
    // Sums of fractions miss the end by a hair.
    let end = to * (1.0 + 1e-9);
    let values = std::iter::successors(Some(from), |&value| Some(next(value)));
    Ok(values.take_while(|&value| value <= end).take(MOST_VALUES + 1).map(show).collect())
}

/// A size in the largest unit of which it is a whole number.
fn size(bytes: Bytes) -> String {
    let units = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    let fits = |&&(unit, _): &&(Bytes, &str)| bytes > 0 && bytes.is_multiple_of(unit);
    match units.iter().find(fits) {
        Some(&(unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        parse(text).unwrap().values
    }

    #[test]
    fn lists_and_ranges_are_expanded() {
        assert_eq!(values("a.b=1,2,x"), ["1", "2", "x"]);
        assert_eq!(values("a.b=2MiB..16MiB:x2"), ["2MiB", "4MiB", "8MiB", "16MiB"]);
        assert_eq!(values("a.b=0..5MiB:+2MiB,1GiB"), ["0B", "2MiB", "4MiB", "1GiB"]);
        assert_eq!(values("a.b=0.1..0.3:+0.1"), ["0.1", "0.2", "0.30000000000000004"]);
        assert_eq!(values("a.b=1..100:x10"), ["1", "10", "100"]);
        assert_eq!(values("caching.roundup_power2_divisions=4,[256:1,>:2]"), ["4", "[256:1,>:2]"]);
        assert_eq!(values("alloc-conf=;a:1,b:2"), ["", "a:1,b:2"]);
    }
}
