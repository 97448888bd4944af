//! Chunks: physical memory of 32 MiB each, mapped where it is needed, and moved there from where it is not.
//!
//! ```text
//!   addresses  [####|##  |    |####]          a request that needs two more chunks behind the end:
//!   memory      0    1    2    3              chunk 2 is free and moves; one more is created
//! ```

use std::collections::BTreeMap;

use crate::device::{Device, DevicePtr, HandleId, Result};
use gmlake_core::units::{Bytes, MIB};

pub(super) const CHUNK: Bytes = 32 * MIB;

/// The memory behind a range of addresses.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunks {
    mapped: BTreeMap<u64, HandleId>,
}

impl Chunks {
    pub(super) fn held(&self) -> Bytes {
        self.mapped.len() as u64 * CHUNK
    }

    /// The numbers of the chunks with bytes in a range.
    pub(super) fn touched(at: u64, size: Bytes) -> std::ops::Range<u64> {
        at / CHUNK..(at + size).div_ceil(CHUNK)
    }

    /// Chunks of a range behind which there is no memory.
    pub(super) fn missing(&self, at: u64, size: Bytes) -> impl Iterator<Item = u64> {
        Self::touched(at, size).filter(|number| !self.mapped.contains_key(number))
    }

    /// Chunks that lie in a range as a whole and have memory, by number.
    pub(super) fn inside(&self, at: u64, size: Bytes) -> impl DoubleEndedIterator<Item = u64> {
        let (first, end) = (at.div_ceil(CHUNK), (at + size) / CHUNK);
        self.mapped.range(first..end.max(first)).map(|(&number, _)| number)
    }

    /// The parts of a range that have memory, as offset and size.
    pub(super) fn parts(&self, at: u64, size: Bytes) -> Vec<(u64, Bytes)> {
        let mut parts: Vec<(u64, Bytes)> = Vec::new();
        for (&number, _) in self.mapped.range(Self::touched(at, size)) {
            let from = at.max(number * CHUNK);
            let bytes = (at + size).min((number + 1) * CHUNK) - from;
            match parts.last_mut() {
                Some(last) if last.0 + last.1 == from => last.1 += bytes,
                _ => parts.push((from, bytes)),
            }
        }
        parts
    }

    /// Gives chunks the memory of others, and creates what those others do not have. Errors: out of memory, with
    /// nothing changed; or a driver error, after which some chunks have lost their memory.
    pub(super) fn back(
        &mut self,
        device: &mut dyn Device,
        base: DevicePtr,
        missing: &[u64],
        idle: &[u64],
    ) -> Result<()> {
        let mut handles = Vec::new();
        let created = device.create_each(CHUNK, missing.len() - idle.len(), &mut handles);
        created.inspect_err(|_| device.release_each(&handles))?;
        handles.extend(idle.iter().filter_map(|&number| self.unmap(device, base, number)));
        for (place, (&number, &handle)) in missing.iter().zip(&handles).enumerate() {
            let mapped = device.map_for_use(base.offset(number * CHUNK), &[handle], CHUNK);
            mapped.inspect_err(|_| device.release_each(&handles[place..]))?;
            self.mapped.insert(number, handle);
        }
        Ok(())
    }

    fn unmap(&mut self, device: &mut dyn Device, base: DevicePtr, number: u64) -> Option<HandleId> {
        let handle = self.mapped.remove(&number)?;
        device.unmap(base.offset(number * CHUNK), CHUNK);
        Some(handle)
    }

    /// Gives the memory of a chunk back.
    pub(super) fn release(&mut self, device: &mut dyn Device, base: DevicePtr, number: u64) {
        if let Some(handle) = self.unmap(device, base, number) {
            device.release(handle);
        }
    }
}
