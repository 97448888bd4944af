//! Amounts: sizes as PyTorch prints them, which are rounded. What is said of two of them must hold however they were.

use crate::units::{Bytes, GIB, KIB, MIB, Size, TIB};

/// A size, and how far the true one may be from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) bytes: Bytes,
    /// Half of the last digit's worth.
    pub(super) doubt: Bytes,
}

/// Beyond any device: where a driver knows nothing it says 2^64 - 1.
const ABSURD: Bytes = 1 << 60;

impl Amount {
    pub(super) const fn exact(bytes: Bytes) -> Self {
        Self { bytes, doubt: 0 }
    }

    /// The amount that a text begins with, and its length: `2.00 MiB`, `0 bytes`.
    pub(super) fn read(text: &str) -> Option<(Self, usize)> {
        let is_digit = |c: char| c.is_ascii_digit() || c == '.';
        let number = &text[..text.find(|c| !is_digit(c)).unwrap_or(text.len())];
        let rest = &text[number.len()..];
        let gap = rest.len() - rest.trim_start_matches(' ').len();
        let letters = rest[gap..].find(|c: char| !c.is_ascii_alphabetic());
        let name = &rest[gap..gap + letters.unwrap_or(rest.len() - gap)];
        let unit = match name.to_ascii_lowercase().as_str() {
            "bytes" | "byte" | "b" => 1,
            "kib" | "kb" => KIB,
            "mib" | "mb" => MIB,
            "gib" | "gb" => GIB,
            "tib" | "tb" => TIB,
            "pib" | "pb" => TIB << 10,
            _ => return None,
        };
        let places = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let value = number.parse::<f64>().ok()? * unit as f64;
        let doubt = if unit == 1 { 0.0 } else { unit as f64 / 10_f64.powi(places as i32) / 2.0 };
        let amount = Self { bytes: value.round() as Bytes, doubt: doubt.ceil() as Bytes };
        Some((amount, number.len() + gap + name.len()))
    }

    /// The same, unless no device has so much.
    pub(super) fn sane(self) -> Option<Self> {
        (self.bytes < ABSURD).then_some(self)
    }

    /// The least and the most that it may be.
    fn least(self) -> Bytes {
        self.bytes.saturating_sub(self.doubt)
    }

    fn most(self) -> Bytes {
        self.bytes.saturating_add(self.doubt)
    }

    /// Nothing, if it may be nothing.
    pub(super) fn above_doubt(self) -> Self {
        if self.bytes > self.doubt { self } else { Self { bytes: 0, ..self } }
    }

    /// Whether it is at least as much as `other`, however both were rounded.
    pub(super) fn surely_covers(self, other: Self) -> bool {
        self.least() >= other.most()
    }

    /// Whether it may be as much as `other`.
    pub(super) fn may_cover(self, other: Self) -> bool {
        self.most() >= other.least()
    }

    /// What is left of it without `other`; nothing below zero.
    pub(super) fn less(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_sub(other.bytes);
        Self { bytes, doubt: self.doubt + other.doubt }
    }
}

/// The whole number that a text begins with, and what comes behind it.
pub(super) fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Self { bytes, doubt: self.doubt + other.doubt }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Size(self.bytes).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_what_rounding_leaves_open() {
        for (text, bytes, doubt, length) in [
            ("2.00 MiB. GPU", 2 * MIB, 5243, 8),
            ("0 bytes is free", 0, 0, 7),
            ("512 bytes", 512, 0, 9),
            ("10.50 GiB;", 21 * GIB / 2, 5_368_710, 9),
            ("4096 KiB |", 4 * MIB, 512, 8),
            ("79GB)", 79 * GIB, GIB / 2, 4),
        ] {
            assert_eq!(Amount::read(text), Some((Amount { bytes, doubt }, length)), "{text}");
        }
        for text in ["", "x", "12", "12 apples", ". GiB", "1.2.3 GiB"] {
            assert_eq!(Amount::read(text), None, "{text}");
        }
        assert_eq!(Amount::read("17179869184.00 GiB").and_then(|(it, _)| it.sane()), None);
    }

    #[test]
    fn equal_figures_decide_nothing() {
        let of = |text: &str| Amount::read(text).unwrap().0;
        let (a, b) = (of("2.00 GiB"), of("2.00 GiB"));
        assert!(a.may_cover(b) && !a.surely_covers(b));
        assert!(of("2.02 GiB").surely_covers(a) && !of("1.98 GiB").may_cover(a));
    }
}
