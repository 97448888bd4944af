//! Sizes and durations: how they are written by people and how they are printed.
//!
//! Memory is binary in this field, whatever the suffix says: PyTorch's `max_split_size_mb`, GMLake's
//! "2 MB chunks" and a card's "80 GB" all count in powers of 1024. So `80GB`, `80GiB` and `80g` are the same size.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
pub type Bytes = u64;

/// 2^10 bytes.
pub const KIB: Bytes = 1 << 10;
/// 2^20 bytes.
pub const MIB: Bytes = 1 << 20;
/// 2^30 bytes.
pub const GIB: Bytes = 1 << 30;
/// 2^40 bytes.
pub const TIB: Bytes = 1 << 40;

/// Reads a size such as `80GiB`, `1.5g`, `512 MiB` or `2097152`; a fraction of a byte is dropped.
///
/// # Errors
/// When the number or the suffix is not understood, or the size does not fit in 63 bits: says so in words.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let units = "write a number with B, KiB, MiB, GiB or TiB, such as 80GiB";
    let error = || format!("{text:?} is not a size: {units}");
    let too_large = || format!("{text:?} is too large: sizes end at 8388607TiB");
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, suffix) = trimmed.split_at(digits.unwrap_or(trimmed.len()));
    let unit = suffix_unit(suffix.trim()).ok_or_else(error)?;
    let number = number.replace('_', "");
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit).ok_or_else(too_large)?,
        Err(_) => {
            let scaled = number.parse::<f64>().map_err(|_| error())? * unit as f64;
            if scaled >= i64::MAX as f64 { return Err(too_large()) } else { scaled as u64 }
        }
    };
    if bytes <= i64::MAX as u64 { Ok(bytes) } else { Err(too_large()) }
}

/// Reads the memory of a device. As [`parse_size`], but a small number must have its unit: whoever writes `40` does not
/// mean bytes.
///
/// # Errors
/// When it is no size, or the unit is missing: says so in words.
pub fn parse_memory(text: &str) -> Result<Bytes, String> {
    let (size, text) = (parse_size(text)?, text.trim());
    let is_small = (1..MIB).contains(&size) || text.contains('.');
    if text.ends_with(|c: char| c.is_ascii_digit()) && is_small {
        let bytes = format!("{text} without a unit is {}", Count(size, "byte"));
        return Err(format!("{bytes}: write {text}GiB, or {size}B if you mean it"));
    }
    Ok(size)
}

/// Reads a share: `3%`, or `0.03`. It may be negative, or more than the whole.
///
/// # Errors
/// When it is no number, or none that is finite: says so in words.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, whole) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (text.trim(), 1.0),
    };
    let share = number.parse().ok().map(|number: f64| number / whole);
    let forms = "write a percentage such as 3%, or a number such as 0.03";
    let error = || format!("{text:?} is not a share: {forms}");
    share.filter(|share| share.is_finite()).ok_or_else(error)
}

/// No count that people type is larger.
pub const MOST_COUNT: u64 = 1_000_000_000_000;

/// Reads a whole number from `LEAST` to `MOST`.
///
/// # Errors
/// When it is another number, or none: the range, in words.
pub fn parse_whole<T: FromStr, const LEAST: u64, const MOST: u64>(text: &str) -> Result<T, String> {
    let known = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    let number = known.and_then(|_| text.parse().ok());
    let range = || format!("expected a whole number from {LEAST} to {}", Grouped(MOST));
    number.ok_or_else(range)
}

fn suffix_unit(suffix: &str) -> Option<Bytes> {
    match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "ki" | "kb" | "kib" => Some(KIB),
        "m" | "mi" | "mb" | "mib" => Some(MIB),
        "g" | "gi" | "gb" | "gib" => Some(GIB),
        "t" | "ti" | "tb" | "tib" => Some(TIB),
        _ => None,
    }
}

/// `value` rounded up to a multiple of `step`, which must not be zero.
#[inline]
pub const fn round_up(value: Bytes, step: Bytes) -> Bytes {
    value.div_ceil(step) * step
}

/// Prints a size in the largest unit that leaves at least one whole when it is rounded, with as few digits as tell it
/// apart.
///
/// ```
/// use gmlake_core::units::{Size, MIB};
/// assert_eq!(Size(20 * MIB).to_string(), "20 MiB");
/// assert_eq!(Size(64_245 * MIB).to_string(), "62.74 GiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub Bytes);

impl Size {
    /// The least that prints as it is and is not below `bytes`: what it prints is enough when it is typed.
    ///
    /// ```
    /// use gmlake_core::units::{Size, MIB};
    /// assert_eq!(Size::enough(39_154 * MIB).to_string(), "38.24 GiB");
    /// assert_eq!(Size::enough(39_160 * MIB).to_string(), "38.25 GiB");
    /// ```
    #[must_use]
    pub fn enough(bytes: Bytes) -> Self {
        let unit = unit(bytes).0;
        let hundredths = (u128::from(bytes) * 100).div_ceil(u128::from(unit));
        Self((hundredths * u128::from(unit)).div_ceil(100) as Bytes)
    }
}

/// The largest unit of which a size has at least one, rounded to hundredths, with its name.
fn unit(bytes: Bytes) -> (Bytes, &'static str) {
    const UNITS: [(Bytes, &str); 4] = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    // From half a hundredth of the unit below on, which is a part in 204,800 of this one. Bytes are whole.
    let least = |unit: Bytes| unit - if unit == KIB { 0 } else { unit / 204_800 };
    UNITS.into_iter().find(|&(unit, _)| bytes >= least(unit)).unwrap_or((1, "B"))
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = unit(self.0);
        let text = match self.0 % unit {
            0 => format!("{} {name}", self.0 / unit),
            _ => format!("{:.2} {name}", self.0 as f64 / unit as f64),
        };
        f.pad(&text)
    }
}

/// Prints a duration given in nanoseconds with three digits: `840 ns`, `12.3 µs`, `4.56 ms`, `7.89 s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nanos(pub f64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each bound is where the number is rounded up to the next one.
        let (value, name) = match self.0 {
            ns if ns < 999.5 => (ns, "ns"),
            ns if ns < 999.5e3 => (ns / 1e3, "µs"),
            ns if ns < 999.5e6 => (ns / 1e6, "ms"),
            ns => (ns / 1e9, "s"),
        };
        let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
        f.pad(&format!("{value:.digits$} {name}"))
    }
}

/// Prints a whole number with a comma before every three digits: `311,534`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A number as [`Grouped`] prints it.
pub fn grouped(value: u64) -> String {
    Grouped(value).to_string()
}

/// Prints how many there are: `Count(1, "rank")` is `1 rank`, `Count(2048, "rank")` is `2,048 ranks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count<'w>(pub u64, pub &'w str);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = *self;
        write!(f, "{} {what}{}", Grouped(count), if count == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_a_number() {
        for (text, share) in
            [("3%", 0.03), (" 2.5 % ", 0.025), ("0.03", 0.03), ("1", 1.0), ("-1%", -0.01)]
        {
            assert_eq!(parse_share(text), Ok(share), "{text}");
        }
        for text in ["", "%", "x", "3%%", "nan", "inf%", "3 per cent"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_has_no_plural() {
        assert_eq!(Count(1, "rank").to_string(), "1 rank");
        assert_eq!([0, 2048].map(|n| Count(n, "rank").to_string()), ["0 ranks", "2,048 ranks"]);
    }

    #[test]
    fn sizes_are_binary_whatever_the_suffix() {
        for text in ["80GiB", "80GB", "80g", " 80 gib ", "85899345920", "81920MiB"] {
            assert_eq!(parse_size(text), Ok(80 * GIB), "{text}");
        }
        assert_eq!(parse_size("1.5GiB"), Ok(3 * GIB / 2));
        assert_eq!(parse_size("0"), Ok(0));
    }

    #[test]
    fn memory_below_a_mebibyte_needs_a_unit() {
        for text in ["1", "40", " 80 ", "1048575", "0.5e1", "1_000"] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
        assert_eq!(parse_memory("40B"), Ok(40));
        assert_eq!(parse_memory("40GiB"), Ok(40 * GIB));
        assert_eq!(parse_memory("0"), Ok(0));
        assert_eq!(parse_memory("85899345920"), Ok(80 * GIB));
        let message = parse_memory("40").unwrap_err().to_string();
        assert_eq!(message, "40 without a unit is 40 bytes: write 40GiB, or 40B if you mean it");
        let message = parse_memory("1").unwrap_err().to_string();
        assert!(message.starts_with("1 without a unit is 1 byte: "), "{message}");
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in ["", "GiB", "-1", "80 GiBs", "1e99TiB", "99999999999TiB", "1.2.3", "nan"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_durations_print_short() {
        let sizes =
            [(0, "0 B"), (512, "512 B"), (1536, "1.50 KiB"), (2 * MIB, "2 MiB"), (TIB, "1 TiB")];
        for (bytes, text) in sizes {
            assert_eq!(Size(bytes).to_string(), text);
        }
        for (ns, text) in
            [(41.8, "41.8 ns"), (840.0, "840 ns"), (1234.0, "1.23 µs"), (9.0e9, "9.00 s")]
        {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }

    proptest! {
        /// Rounding never comes to 1024 of a unit. What is printed is the size, to half a hundredth of its unit.
        #[test]
        fn sizes_that_are_rounded_up_carry_to_the_next_unit(
            power in 0_u32..5,
            below in 0_u64..200_000_000_000,
            digits in 1_u32..12,
        ) {
            let bytes = (1024_u64.pow(power) - 1).saturating_sub(below % 10_u64.pow(digits));
            let text = Size(bytes).to_string();
            let (number, unit) = text.split_once(' ').unwrap();
            let number: f64 = number.parse().unwrap();
            let unit = parse_size(&format!("1{unit}")).unwrap();
            prop_assert!(number < 1024.0 && (unit == 1 || number >= 1.0), "{bytes}: {text}");
            let off = (number * unit as f64 - bytes as f64).abs();
            prop_assert!(off <= 0.005_000_001 * unit as f64, "{bytes}: {text}");
        }

        #[test]
        fn durations_that_are_rounded_up_carry_to_the_next_unit(
            power in 0_i32..9,
            below in -0.01..0.01,
        ) {
            let ns: f64 = 10_f64.powi(power) * (1.0 + below);
            let text = Nanos(ns).to_string();
            let (number, _) = text.split_once(' ').unwrap();
            prop_assert!(number.parse::<f64>().unwrap() < 1000.0, "{ns}: {text}");
            let digits = number.chars().filter(char::is_ascii_digit).count();
            prop_assert!(digits == 3, "{ns}: {text}");
        }
    }
}
