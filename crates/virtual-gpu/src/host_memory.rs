//! Host memory that the GPU can reach: pinned, registered and managed.
//!
//! This only keeps the books, by address. The system adds pages behind an address when something touches them. So a
//! hundred gigabytes of pinned memory that only travel to the GPU and back cost nothing here. What a real machine would
//! have to hold is counted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use gmlake_core::units::Bytes;

/// How memory came to be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// `cudaHostAlloc`
    Pinned,
    /// `cudaHostRegister`: the program's own memory.
    Registered,
    /// `cudaMallocManaged`: it moves between the host and a device.
    Managed,
}

/// One allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRange {
    /// Where it begins.
    pub at: u64,
    /// Its size.
    pub bytes: Bytes,
    /// How it came to be here.
    pub kind: HostKind,
    /// Whether it was last sent to a device. Only managed memory is.
    pub on_device: bool,
}

/// Bytes now and at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Level {
    now: Bytes,
    peak: Bytes,
}

impl Level {
    fn rise(&mut self, bytes: Bytes) {
        self.now += bytes;
        self.peak = self.peak.max(self.now);
    }
}

/// All host memory of a process that its GPUs can reach.
#[derive(Debug, Default)]
pub struct HostMemory {
    ranges: BTreeMap<u64, HostRange>,
    pinned: Level,
    managed_on_host: Level,
    managed_on_device: Level,
}

impl HostMemory {
    fn level(&mut self, of: HostRange) -> &mut Level {
        match (of.kind, of.on_device) {
            (HostKind::Managed, true) => &mut self.managed_on_device,
            (HostKind::Managed, false) => &mut self.managed_on_host,
            (HostKind::Pinned | HostKind::Registered, _) => &mut self.pinned,
        }
    }

    /// Notes an allocation. Managed memory is the host's until it is sent to a device.
    pub fn add(&mut self, at: u64, bytes: Bytes, kind: HostKind) {
        self.remove(at);
        let range = HostRange { at, bytes, kind, on_device: false };
        self.level(range).rise(bytes);
        self.ranges.insert(at, range);
    }

    /// Forgets what begins at an address, and says what it was.
    pub fn remove(&mut self, at: u64) -> Option<HostRange> {
        let range = self.ranges.remove(&at)?;
        self.level(range).now -= range.bytes;
        Some(range)
    }

    /// What an address lies in.
    pub fn find(&self, at: u64) -> Option<HostRange> {
        let (_, range) = self.ranges.range(..=at).next_back()?;
        (at < range.at + range.bytes).then_some(*range)
    }

    /// Sends the managed memory that an address lies in to a device or to the host; false if there is none.
    pub fn send(&mut self, at: u64, to_device: bool) -> bool {
        let Some(range) = self.find(at).filter(|range| range.kind == HostKind::Managed) else {
            return false;
        };
        if range.on_device != to_device {
            let sent = HostRange { on_device: to_device, ..range };
            self.level(range).now -= range.bytes;
            self.level(sent).rise(range.bytes);
            self.ranges.insert(range.at, sent);
        }
        true
    }

    /// How many pinned ranges there are now, and their bytes.
    pub fn pinned(&self) -> (usize, Bytes) {
        let is_pinned = |range: &&HostRange| range.kind != HostKind::Managed;
        (self.ranges.values().filter(is_pinned).count(), self.pinned.now)
    }

    /// The most that there ever was, of each kind, for the report.
    pub fn peaks(&self) -> Value {
        json!({
            "pinned": self.pinned.peak,
            "managed_on_host": self.managed_on_host.peak,
            "managed_on_device": self.managed_on_device.peak,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_counted_and_found_by_any_address_in_it() {
        let mut host = HostMemory::default();
        host.add(0x1000, 0x100, HostKind::Pinned);
        host.add(0x2000, 0x80, HostKind::Registered);
        assert_eq!(host.find(0x10ff).unwrap().at, 0x1000);
        assert!(host.find(0x1100).is_none() && host.find(0xfff).is_none());
        assert_eq!(host.remove(0x1000).unwrap().bytes, 0x100);
        assert!(host.remove(0x1000).is_none());
        host.add(0x2000, 0x40, HostKind::Registered);
        assert_eq!(host.peaks()["pinned"], 0x180);
        assert_eq!((host.pinned(), host.pinned.peak), ((1, 0x40), 0x180));
    }

    #[test]
    fn managed_memory_counts_where_it_was_last_sent() {
        let mut host = HostMemory::default();
        host.add(0x1000, 0x100, HostKind::Managed);
        host.add(0x2000, 0x100, HostKind::Managed);
        for _ in 0..2 {
            assert!(host.send(0x1040, true));
        }
        assert!(host.send(0x2000, true) && host.send(0x1000, false));
        host.remove(0x2000);
        assert!(!host.send(0x2000, true), "it is gone");
        let peaks = host.peaks();
        assert_eq!(
            (&peaks["managed_on_host"], &peaks["managed_on_device"]),
            (&json!(0x200), &json!(0x200))
        );
        assert_eq!(peaks["pinned"], 0);
        assert_eq!((host.managed_on_host.now, host.managed_on_device.now), (0x100, 0));
        host.add(0x9000, 8, HostKind::Pinned);
        assert!(!host.send(0x9000, true), "pinned memory stays");
    }
}
