//! The running account of an allocator's memory: four numbers and their peaks.

use super::Usage;
use gmlake_core::units::Bytes;

/// Present usage and peaks, updated at each change.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ledger {
    now: Usage,
    peak: Usage,
}

impl Ledger {
    /// The present numbers.
    #[inline]
    pub fn now(&self) -> Usage {
        self.now
    }

    /// The highest value of each number.
    #[inline]
    pub fn peak(&self) -> Usage {
        self.peak
    }

    /// A block of `size` bytes was handed out for a request of `requested`.
    #[inline]
    pub fn malloc(&mut self, requested: Bytes, size: Bytes) {
        self.now.requested += requested;
        self.now.allocated += size;
        self.now.active += size;
        let Self { now, peak } = self;
        if now.requested > peak.requested
            || now.allocated > peak.allocated
            || now.active > peak.active
        {
            self.rise();
        }
    }

    /// A peak is rare.
    #[cold]
    fn rise(&mut self) {
        self.peak = self.peak.max(self.now);
    }

    /// The client let go of a block.
    #[inline]
    pub fn free_requested(&mut self, size: Bytes) {
        self.now.allocated -= size;
    }

    /// A block that the client had let go became free.
    #[inline]
    pub fn free_completed(&mut self, requested: Bytes, size: Bytes) {
        self.now.requested -= requested;
        self.now.active -= size;
    }

    /// Memory came from the device.
    #[inline]
    pub fn grow(&mut self, size: Bytes) {
        self.hold(self.now.reserved + size);
    }

    /// This much memory of the device is held.
    #[inline]
    pub fn hold(&mut self, size: Bytes) {
        self.now.reserved = size;
        self.peak.reserved = self.peak.reserved.max(size);
    }

    /// Memory went back to the device.
    #[inline]
    pub fn shrink(&mut self, size: Bytes) {
        self.now.reserved -= size;
    }
}
