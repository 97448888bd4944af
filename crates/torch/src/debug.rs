//! Poisoned memory: free memory must not change.
//!
//! Freed memory is filled with a pattern, in the order of the stream that freed it. When it is handed out again, all of
//! it that was filled must still be so. The books are kept by physical memory and not by address, because one piece of
//! memory has many addresses as soon as blocks are stitched.

use super::print_error;
use gmlake_allocators::device::{DevicePtr, Record};
use gmlake_core::ranges::Ranges;
use gmlake_core::units::Bytes;
use gmlake_cuda::{DriverError, Poison};

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
    /// Physical memory that holds the pattern.
    poisoned: Ranges<()>,
    pub(super) findings: Findings,
}

impl Debug {
    /// Nothing is poisoned yet.
    pub(super) fn new() -> Result<Self, DriverError> {
        let (record, poisoned) = (Record::default(), Ranges::default());
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
            self.poisoned.set(extent.start..extent.end(), ());
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
            for (piece, ()) in self.poisoned.take(extent.start..extent.end()) {
                let (start, size) =
                    (place.offset(piece.start - extent.start), piece.end - piece.start);
                let wrong = self.poison.check(stream, start, size)?;
                checked += size;
                self.note(wrong, start, size);
            }
            place = place.offset(extent.size);
        }
        self.findings.checks += u64::from(checked > 0);
        self.findings.checked_bytes += checked;
        Ok(())
    }

    /// Memory may have gone back to the device, and its pattern with it.
    pub(super) fn forget(&mut self) {
        self.poisoned = Ranges::default();
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
