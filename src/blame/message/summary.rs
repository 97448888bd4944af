//! The table of `torch.cuda.memory_summary()`:
//!
//! ```text
//!   |            CUDA OOMs: 1            |        cudaMalloc retries: 2         |
//!   |        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
//!   | Allocated memory      |   4096 KiB |   8192 KiB |  20480 KiB |  16384 KiB |
//!   |       from large pool |      0 KiB | ...
//! ```

use super::amount::{Amount, digits};
use super::{MemorySummary, SummaryRow};

/// The table, if the text has one, and the GPU that it is of.
pub(super) fn summary(text: &str) -> Option<(MemorySummary, Option<u32>)> {
    let (_, table) = text.split_once("memory summary, device ID")?;
    let number = |words: &str| Some(digits(table.split_once(words)?.1.trim_start())?.0);
    let id = digits(table.trim_start()).and_then(|(id, _)| id.try_into().ok());
    let (ooms, retries) = (number("OOMs:"), number("retries:"));
    let rows = table.lines().filter_map(row).collect();
    Some((MemorySummary { ooms, retries, rows }, id))
}

fn row(line: &str) -> Option<SummaryRow> {
    let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
    let metric = cells.next().filter(|name| !name.is_empty() && !name.starts_with("from "))?;
    let amounts: Vec<u64> = cells.map_while(|cell| Some(Amount::read(cell)?.0.bytes)).collect();
    Some(SummaryRow { metric: metric.to_owned(), bytes: amounts.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    #[test]
    fn rows_are_sizes_of_all_pools() {
        let text = "x\n|  PyTorch CUDA memory summary, device ID 3   |\n\
            |   CUDA OOMs: 1   |   cudaMalloc retries: 2   |\n\
            | Metric | Cur Usage | Peak Usage | Tot Alloc | Tot Freed |\n\
            | Allocated memory      |   4096 KiB |   8192 KiB |  20480 KiB |  16384 KiB |\n\
            |       from large pool |      0 KiB |      0 KiB |      0 KiB |      0 KiB |\n\
            | GPU reserved memory   |     20 MiB |     20 MiB |     22 MiB |      2 MiB |\n\
            | Allocations           |      4    |       8    |      20    |      16    |\n";
        let (summary, device) = summary(text).unwrap();
        assert_eq!((device, summary.ooms, summary.retries), (Some(3), Some(1), Some(2)));
        assert_eq!(summary.rows.len(), 2);
        let allocated = summary.row("Allocated memory").unwrap();
        assert_eq!(allocated, [4 * MIB, 8 * MIB, 20 * MIB, 16 * MIB]);
        assert_eq!(summary.row("GPU reserved memory").unwrap()[1], 20 * MIB);
    }
}
