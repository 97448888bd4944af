//! Values of options: from text, with what PyTorch says is wrong with them.

use super::version::TorchVersion;
use crate::units::{Bytes, GIB, MIB};

/// An amount of addresses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reserve {
    /// A share of the device's memory.
    Share(f64),
    /// This many GiB.
    Gib(f64),
}

impl Reserve {
    /// In bytes, on a device of `total` bytes.
    pub fn bytes(self, total: Bytes) -> Bytes {
        match self {
            Self::Share(share) => (share * total as f64) as Bytes,
            Self::Gib(gib) => (gib * GIB as f64) as Bytes,
        }
    }
}

impl std::fmt::Display for Reserve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{share}"),
            Self::Gib(gib) => write!(f, "{gib}G"),
        }
    }
}

/// A whole number. PyTorch reads the digits that a value begins with and passes over the rest: `128MB` is 128.
pub(super) fn whole(key: &str, value: &str) -> Result<u64, String> {
    let digits = value.strip_prefix('+').unwrap_or(value);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().map_err(|_| format!("{key} is {value:?}, but must be a whole number"))
}

/// A number with a fraction, read in the same way: `0.8x` is 0.8.
fn number(value: &str) -> Option<f64> {
    let ends = (1..=value.len()).rev().filter(|&end| value.is_char_boundary(end));
    let is_plain =
        |text: &&str| text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    ends.map(|end| &value[..end]).filter(is_plain).find_map(|text| text.parse().ok())
}

pub(super) fn at_least_segment(key: &str, value: &str, segment: Bytes) -> Result<Bytes, String> {
    let mib = whole(key, value)?;
    match mib.checked_mul(MIB) {
        Some(size) if size >= segment => Ok(size),
        _ => Err(format!("{key} is {value}, but must be at least {}", segment / MIB)),
    }
}

pub(super) fn large_segment(value: &str) -> Result<Bytes, String> {
    let key = "large_segment_size_mb";
    match whole(key, value)? {
        mib @ 11..=0xffff_ffff => Ok(mib * MIB),
        _ => Err(format!("{key} is {value}, but must be above 10")),
    }
}

/// A share between 0 and 1, either of which may be allowed, too.
pub(super) fn fraction(key: &str, value: &str, ends_allowed: bool) -> Result<f64, String> {
    match number(value) {
        Some(share) if share > 0.0 && share < 1.0 => Ok(share),
        Some(end) if ends_allowed && (end == 0.0 || end == 1.0) => Ok(end),
        _ => Err(format!("{key} is {value}, but must be between 0 and 1")),
    }
}

/// `0.5` of the device's memory, or `40G`.
pub(super) fn reserve(value: &str) -> Option<Reserve> {
    let (number, reserve): (_, fn(f64) -> Reserve) = match value.strip_suffix(['G', 'g']) {
        Some(number) => (number, Reserve::Gib),
        None => (value, Reserve::Share),
    };
    let number = number.parse::<f64>().ok();
    number.filter(|number| number.is_finite() && *number > 0.0).map(reserve)
}

pub(super) fn boolean(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(format!("{key} is {value:?}, but must be True or False")),
    }
}

/// `8`, or `[256:1,512:2,>:8]`: the first key fills the slots below it too, `>` those after the last one.
pub(super) fn divisions(value: &str, version: TorchVersion) -> Result<[u32; 16], String> {
    let Some(list) = value.strip_prefix('[') else {
        return match division(value)? {
            0 => Err("roundup_power2_divisions of \"0\" is not a power of two".to_owned()),
            count => Ok([count; 16]),
        };
    };
    let list = list.strip_suffix(']').unwrap_or(list);
    let mut table = [0; 16];
    let mut last = None;
    for item in list.split(',').filter(|item| !item.is_empty()) {
        let (key, count) = item
            .split_once(':')
            .ok_or_else(|| format!("{item:?} in roundup_power2_divisions is not size:divisions"))?;
        let count = division(count)?;
        if key == ">" {
            let after_last = usize::from(version.is_at_least(11) && last.is_some());
            let from = match last {
                Some(slot) => slot + after_last,
                None => usize::from(version.is_at_least(11)),
            };
            table.iter_mut().skip(from).for_each(|slot| *slot = count);
            continue;
        }
        let slot = division_slot(key)?;
        let from = if last.is_none() { 0 } else { slot };
        table[from..=slot].fill(count);
        last = Some(slot);
    }
    Ok(table)
}

pub(super) fn division_slot(key: &str) -> Result<usize, String> {
    match whole("", key) {
        Ok(mib) if mib.is_power_of_two() => Ok((mib.ilog2() as usize).min(15)),
        _ => Err(format!("{key:?} in roundup_power2_divisions is not a power of two (in MB)")),
    }
}

pub(super) fn division(count: &str) -> Result<u32, String> {
    match whole("", count).ok().and_then(|count| u32::try_from(count).ok()) {
        Some(count) if count == 0 || count.is_power_of_two() => Ok(count),
        _ => Err(format!("roundup_power2_divisions of {count:?} is not 0 or a power of two")),
    }
}
