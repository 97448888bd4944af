//! Poisoned memory: free memory must not change.
//!
//! Freed memory is filled with a pattern, in the order of the stream that freed it. When it is handed out again, all of
//! it that was filled must still be so. The books are kept by physical memory and not by address, because one piece of
//! memory has many addresses as soon as blocks are stitched.

use std::collections::BTreeMap;

use super::print_error;
use gmlake_allocators::device::{DevicePtr, Extent, Record};
use gmlake_core::units::Bytes;
use gmlake_cuda::{DriverError, Poison};

/// Pieces of physical memory, none of which overlap.
#[derive(Debug, Default)]
struct Pieces(BTreeMap<u64, Bytes>);

impl Pieces {
    fn insert(&mut self, extent: Extent) {
        self.0.insert(extent.start, extent.size);
    }

    /// Takes out what lies in an extent, and returns it.
    fn take(&mut self, extent: Extent) -> Vec<Extent> {
        let first = self.0.range(..=extent.start).next_back();
        let from = first.map_or(extent.start, |(&start, _)| start);
        let near = self.0.range(from..extent.end());
        let near: Vec<_> = near.map(|(&start, &size)| Extent { start, size }).collect();
        let mut taken = Vec::new();
        for piece in near {
            let (low, high) = (piece.start.max(extent.start), piece.end().min(extent.end()));
            if low >= high {
                continue;
            }
            self.0.remove(&piece.start);
            if piece.start < low {
                self.0.insert(piece.start, low - piece.start);
            }
            if high < piece.end() {
                self.0.insert(high, piece.end() - high);
            }
            taken.push(Extent { start: low, size: high - low });
        }
        taken
    }
}

/// What was found out.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Findings {
    /// Blocks that held poison when they were handed out.
    pub(super) checks: u64,
    /// Bytes that held it.
    pub(super) checked_bytes: Bytes,
    /// Bytes that should have, and did not.
    pub(super) corrupted_bytes: Bytes,
    /// The first case.
    pub(super) first: Option<String>,
}

/// The poisoner and its books.
#[derive(Debug)]
pub(super) struct Debug {
    poison: Poison,
    /// Where the memory behind each address is.
    pub(super) record: Record,
    poisoned: Pieces,
    pub(super) findings: Findings,
}

impl Debug {
    /// Nothing is poisoned yet.
    pub(super) fn new() -> Result<Self, DriverError> {
        let (record, poisoned) = (Record::default(), Pieces::default());
        Ok(Self { poison: Poison::new()?, record, poisoned, findings: Findings::default() })
    }

    /// Fills a block that is about to be free on its stream.
    pub(super) fn freed(
        &mut self,
        stream: u64,
        at: DevicePtr,
        size: Bytes,
    ) -> Result<(), DriverError> {
        self.poison.fill(stream, at, size)?;
        for extent in self.record.translate(at, size).unwrap_or_default() {
            self.poisoned.insert(extent);
        }
        Ok(())
    }

    /// Checks a block that is about to be handed out for use on a stream.
    pub(super) fn handed_out(
        &mut self,
        stream: u64,
        at: DevicePtr,
        size: Bytes,
    ) -> Result<(), DriverError> {
        let mut place = at;
        let mut checked = 0;
        for extent in self.record.translate(at, size).unwrap_or_default() {
            for piece in self.poisoned.take(extent) {
                let start = place.offset(piece.start - extent.start);
                let wrong = self.poison.check(stream, start, piece.size)?;
                checked += piece.size;
                self.note(wrong, start, piece.size);
            }
            place = place.offset(extent.size);
        }
        self.findings.checks += u64::from(checked > 0);
        self.findings.checked_bytes += checked;
        Ok(())
    }

    /// Memory may have gone back to the device, and its pattern with it.
    pub(super) fn forget(&mut self) {
        self.poisoned.0.clear();
    }

    fn note(&mut self, wrong: Bytes, at: DevicePtr, size: Bytes) {
        if wrong == 0 {
            return;
        }
        self.findings.corrupted_bytes += wrong;
        let text = format!("{wrong} of {size} freed bytes at {at} were written to");
        print_error(&format!("gmlake: {text}"));
        self.findings.first.get_or_insert(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, size: Bytes) -> Extent {
        Extent { start, size }
    }

    #[test]
    fn what_is_taken_out_leaves_the_rest() {
        let mut pieces = Pieces::default();
        pieces.insert(extent(1000, 10));
        pieces.insert(extent(1020, 10));
        pieces.insert(extent(2000, 100));
        assert_eq!(pieces.take(extent(1005, 20)), [extent(1005, 5), extent(1020, 5)]);
        assert_eq!(pieces.take(extent(1000, 100)), [extent(1000, 5), extent(1025, 5)]);
        assert_eq!(pieces.take(extent(2040, 10)), [extent(2040, 10)]);
        assert_eq!(pieces.take(extent(2030, 30)), [extent(2030, 10), extent(2050, 10)]);
        assert_eq!(pieces.take(extent(0, 100)), []);
    }
}
