//! Cells of a table, as numbers.

use crate::error::excerpt;

/// A whole number, decimal or hexadecimal.
pub(crate) fn number(column: &str, text: &str, default: Option<u64>) -> Result<u64, String> {
    let parsed = match (text, text.strip_prefix("0x")) {
        ("", _) => default,
        (_, Some(hex)) => u64::from_str_radix(hex, 16).ok(),
        _ => text.parse().ok(),
    };
    let text = excerpt(text.as_bytes());
    parsed.ok_or_else(|| format!("{column} is \"{text}\", but must be a whole number from 0 on"))
}

/// `first:second`; a number alone is the second, as PyTorch numbers the pools of CUDA graphs.
pub(super) fn pool_id(text: &str) -> Result<(u64, u64), String> {
    let (first, second) = text.split_once(':').unwrap_or(("0", text));
    Ok((number("pool", first, None)?, number("pool", second, None)?))
}
