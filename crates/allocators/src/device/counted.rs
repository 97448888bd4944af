//! Counts the driver calls to a device.

use std::ops::{Add, Sub};

use super::call::{Call, DriverCall};
use super::watched::Watch;

/// How often each driver call was made, failed calls included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CallCounts {
    /// `cuMemAlloc`
    pub mem_alloc: u64,
    /// `cuMemFree`
    pub mem_free: u64,
    /// `cuMemAddressReserve`
    pub address_reserve: u64,
    /// `cuMemAddressFree`
    pub address_free: u64,
    /// `cuMemCreate`
    pub create: u64,
    /// `cuMemRelease`
    pub release: u64,
    /// `cuMemMap`, one for each handle
    pub map: u64,
    /// `cuMemSetAccess`
    pub set_access: u64,
    /// `cuMemUnmap`
    pub unmap: u64,
}

impl CallCounts {
    /// Name and count of every call, in the order of the fields.
    pub fn rows(&self) -> [(&'static str, u64); 9] {
        [
            ("mem_alloc", self.mem_alloc),
            ("mem_free", self.mem_free),
            ("address_reserve", self.address_reserve),
            ("address_free", self.address_free),
            ("create", self.create),
            ("release", self.release),
            ("map", self.map),
            ("set_access", self.set_access),
            ("unmap", self.unmap),
        ]
    }

    /// All calls together.
    pub fn total(&self) -> u64 {
        self.rows().iter().map(|(_, count)| count).sum()
    }

    fn zip(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            mem_alloc: op(self.mem_alloc, other.mem_alloc),
            mem_free: op(self.mem_free, other.mem_free),
            address_reserve: op(self.address_reserve, other.address_reserve),
            address_free: op(self.address_free, other.address_free),
            create: op(self.create, other.create),
            release: op(self.release, other.release),
            map: op(self.map, other.map),
            set_access: op(self.set_access, other.set_access),
            unmap: op(self.unmap, other.unmap),
        }
    }
}

impl Add for CallCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl Sub for CallCounts {
    type Output = Self;

    /// The calls made since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, |a, b| a - b)
    }
}

/// How often streams were put in order. These calls touch no memory, and are counted next to those that do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FenceCounts {
    /// `cuEventRecord`
    pub event_record: u64,
    /// `cuEventQuery`
    pub event_query: u64,
    /// `cuStreamWaitEvent`
    pub stream_wait: u64,
}

impl FenceCounts {
    /// Name and count of every call, in the order of the fields.
    pub fn rows(&self) -> [(&'static str, u64); 3] {
        [
            ("event_record", self.event_record),
            ("event_query", self.event_query),
            ("stream_wait", self.stream_wait),
        ]
    }
}

impl Sub for FenceCounts {
    type Output = Self;

    /// The calls made since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            event_record: self.event_record - earlier.event_record,
            event_query: self.event_query - earlier.event_query,
            stream_wait: self.stream_wait - earlier.stream_wait,
        }
    }
}

/// Counts calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    /// The calls so far.
    pub calls: CallCounts,
    /// The fences so far.
    pub fences: FenceCounts,
}

impl Watch for Counted {
    const ROWS: bool = true;

    #[inline(always)]
    fn after(&mut self, call: &DriverCall<'_>) {
        let Self { calls, fences } = self;
        let counter = match call.call {
            Call::MemAlloc => &mut calls.mem_alloc,
            Call::MemFree => &mut calls.mem_free,
            Call::AddressReserve => &mut calls.address_reserve,
            Call::AddressFree => &mut calls.address_free,
            Call::Create => &mut calls.create,
            Call::Release => &mut calls.release,
            Call::Map => &mut calls.map,
            Call::SetAccess => &mut calls.set_access,
            Call::Unmap => &mut calls.unmap,
            Call::EventRecord => &mut fences.event_record,
            Call::EventQuery => &mut fences.event_query,
            Call::StreamWait => &mut fences.stream_wait,
            Call::Synchronize => return,
        };
        *counter += call.count();
    }
}
