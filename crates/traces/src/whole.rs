//! Whole numbers, as tools write them: `512`, `512.0`, `"512"`, `"0x200"`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A whole number from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

/// An address, which C may have taken for a negative number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address(pub(super) u64);

impl Whole {
    /// The number, or 0 if there is none.
    pub(super) fn or_zero(number: Option<Self>) -> u64 {
        number.map_or(0, |number| number.0)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Number { may_be_negative: false }).map(Self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Number { may_be_negative: true }).map(Self)
    }
}

/// The whole number that a number with a fraction of 0 is.
pub(super) fn of_float(number: f64) -> Option<u64> {
    let is_whole = number.fract() == 0.0 && (0.0..1.8e19).contains(&number);
    is_whole.then_some(number as u64)
}

/// The whole number that a text is, decimal or hexadecimal.
pub(super) fn of_text(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

struct Number {
    may_be_negative: bool,
}

impl Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 on")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        let whole = u64::try_from(number).ok();
        let whole = whole.or_else(|| self.may_be_negative.then_some(number as u64));
        whole.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        of_float(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        of_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_numbers_however_they_are_written() {
        for text in ["512", "512.0", "5.12e2", "\"512\"", "\"0x200\""] {
            assert_eq!(serde_json::from_str::<Whole>(text).unwrap(), Whole(512), "{text}");
        }
        let top = serde_json::from_str::<Whole>("18446744073709551615").unwrap();
        assert_eq!(top, Whole(u64::MAX));
        for wrong in ["512.5", "-1", "-1.0", "1e30", "\"x\"", "\"\"", "true", "[1]", "null"] {
            assert!(serde_json::from_str::<Whole>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(serde_json::from_str::<Address>("-1").unwrap(), Address(u64::MAX));
    }
}
