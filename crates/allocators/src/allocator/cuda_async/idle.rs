//! The pool's own free ranges, which no stream uses any more, and the memory behind them.

use std::collections::{BTreeMap, BTreeSet};

use super::chunks::{CHUNK, Chunks};
use super::ranges::{Range, Ranges};
use crate::device::{Device, DeviceError, DevicePtr, Result};
use gmlake_core::units::Bytes;

#[derive(Debug, Clone, Default)]
pub(super) struct Idle {
    pub(super) ranges: Ranges,
    /// Those with memory behind all of it, by size and age, with their offsets.
    whole: BTreeSet<(Bytes, u64, u64)>,
    pub(super) chunks: Chunks,
    /// Chunks that were moved.
    pub(super) moved: u64,
}

impl Idle {
    pub(super) fn held(&self) -> Bytes {
        self.chunks.held()
    }

    /// Adds bytes that no stream uses.
    pub(super) fn free(&mut self, bytes: (u64, Bytes)) {
        let mut merged = Vec::new();
        let range = self.ranges.free(bytes, None, &mut merged);
        merged.iter().for_each(|range| self.unlist(range));
        self.list(&range);
    }

    fn list(&mut self, range: &Range) {
        if self.chunks.missing(range.at, range.size).next().is_none() {
            self.whole.insert((range.size, range.entered, range.at));
        }
    }

    fn unlist(&mut self, range: &Range) {
        self.whole.remove(&(range.size, range.entered, range.at));
    }

    /// The memory of chunks came or went. Many of them may lie in one range, which is looked at once.
    fn list_again<'c>(&mut self, chunks: impl Iterator<Item = &'c u64>) {
        let met = |&chunk: &u64| self.ranges.overlapping(chunk * CHUNK, (chunk + 1) * CHUNK);
        let ranges: BTreeMap<u64, Range> =
            chunks.flat_map(met).map(|range| (range.at, range)).collect();
        for range in ranges.values() {
            self.unlist(range);
            self.list(range);
        }
    }

    /// The best fit of ranges with memory behind all of it.
    pub(super) fn take_whole(&mut self, size: Bytes) -> Option<u64> {
        let &(_, _, at) = self.whole.range((size, 0, 0)..).next()?;
        let range = *self.ranges.overlapping(at, at + 1).first()?;
        Some(self.cut(&range, size))
    }

    fn cut(&mut self, range: &Range, size: Bytes) -> u64 {
        self.unlist(range);
        if let Some(rest) = self.ranges.cut(range, size) {
            self.list(&rest);
        }
        range.at
    }

    /// The best fit of all ranges, with memory moved or created where there is none. Errors: out of memory, with
    /// nothing changed; or a driver error.
    pub(super) fn take_any(
        &mut self,
        device: &mut dyn Device,
        base: DevicePtr,
        size: Bytes,
    ) -> Result<u64> {
        let short = DeviceError::OutOfMemory { requested: size, free: device.memory_info().free };
        let range = self.ranges.best(size, |_| true).ok_or(short)?;
        let missing: Vec<_> = self.chunks.missing(range.at, size).collect();
        if !missing.is_empty() {
            let used = Chunks::touched(range.at, size);
            let spare = self.spare().into_iter().filter(|chunk| !used.contains(chunk));
            let spare: Vec<_> = spare.take(missing.len()).collect();
            let backed = self.chunks.back(device, base, &missing, &spare);
            self.list_again(missing.iter().chain(&spare));
            backed?;
            self.moved += spare.len() as u64;
        }
        Ok(self.cut(&range, size))
    }

    /// Chunks with memory that are free as a whole, the highest first.
    fn spare(&self) -> Vec<u64> {
        let of_range = |range: &Range| self.chunks.inside(range.at, range.size).rev();
        self.ranges.iter().rev().flat_map(of_range).collect()
    }

    /// Gives back the memory of all chunks that are free as a whole.
    pub(super) fn trim(&mut self, device: &mut dyn Device, base: DevicePtr) {
        let spare = self.spare();
        spare.iter().for_each(|&chunk| self.chunks.release(device, base, chunk));
        self.list_again(spare.iter());
    }
}
