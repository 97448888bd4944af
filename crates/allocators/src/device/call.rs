//! The driver's calls: their names, what one of them was about, and tables with one entry for each.

use std::ops::{AddAssign, Index, IndexMut, Sub};

use serde::{Deserialize, Serialize};

use super::{DeviceError, DevicePtr, Fence, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// One of the driver calls behind the device port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// `cuMemAlloc`
    MemAlloc,
    /// `cuMemFree`
    MemFree,
    /// `cuMemAddressReserve`
    AddressReserve,
    /// `cuMemAddressFree`
    AddressFree,
    /// `cuMemCreate`
    Create,
    /// `cuMemRelease`
    Release,
    /// `cuMemMap`
    Map,
    /// `cuMemSetAccess`
    SetAccess,
    /// `cuMemUnmap`
    Unmap,
    /// `cuCtxSynchronize`
    Synchronize,
    /// `cuEventRecord`
    EventRecord,
    /// `cuEventQuery`
    EventQuery,
    /// `cuStreamWaitEvent`
    StreamWait,
}

impl Call {
    /// All calls, in the order of every table.
    pub const ALL: [Self; 13] = [
        Self::MemAlloc,
        Self::MemFree,
        Self::AddressReserve,
        Self::AddressFree,
        Self::Create,
        Self::Release,
        Self::Map,
        Self::SetAccess,
        Self::Unmap,
        Self::Synchronize,
        Self::EventRecord,
        Self::EventQuery,
        Self::StreamWait,
    ];

    /// The name in our exports, which is that of the field in [`PerCall`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemAlloc => "mem_alloc",
            Self::MemFree => "mem_free",
            Self::AddressReserve => "address_reserve",
            Self::AddressFree => "address_free",
            Self::Create => "create",
            Self::Release => "release",
            Self::Map => "map",
            Self::SetAccess => "set_access",
            Self::Unmap => "unmap",
            Self::Synchronize => "synchronize",
            Self::EventRecord => "event_record",
            Self::EventQuery => "event_query",
            Self::StreamWait => "stream_wait",
        }
    }

    /// The driver's name.
    pub const fn driver_name(self) -> &'static str {
        match self {
            Self::MemAlloc => "cuMemAlloc",
            Self::MemFree => "cuMemFree",
            Self::AddressReserve => "cuMemAddressReserve",
            Self::AddressFree => "cuMemAddressFree",
            Self::Create => "cuMemCreate",
            Self::Release => "cuMemRelease",
            Self::Map => "cuMemMap",
            Self::SetAccess => "cuMemSetAccess",
            Self::Unmap => "cuMemUnmap",
            Self::Synchronize => "cuCtxSynchronize",
            Self::EventRecord => "cuEventRecord",
            Self::EventQuery => "cuEventQuery",
            Self::StreamWait => "cuStreamWaitEvent",
        }
    }
}

/// How many handles and bytes a call is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Handles.
    pub handles: u64,
    /// Bytes.
    pub size: Bytes,
}

impl Amount {
    /// Bytes of a handle, on average; all bytes, if it is about none.
    #[inline]
    pub fn each(self) -> Bytes {
        self.size / self.handles.max(1)
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It did what it was asked.
    Done,
    /// There was no memory.
    OutOfMemory,
    /// The driver failed otherwise.
    Failed,
}

impl Ending {
    /// That of a call with this result.
    #[inline]
    pub(super) fn of<T>(result: &Result<T>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(DeviceError::OutOfMemory { .. }) => Self::OutOfMemory,
            Err(_) => Self::Failed,
        }
    }
}

/// One call to the driver, or several of one kind in a row: what is asked, and afterwards what came of it.
#[derive(Debug, Clone, Copy)]
pub struct DriverCall<'a> {
    /// Which call.
    pub call: Call,
    /// Calls in a row, the one that failed included; `None`: a single one.
    pub row: Option<usize>,
    /// Where it acts, or what it gave.
    pub at: DevicePtr,
    /// What it is about, of a row each. What the arguments do not say is zero, unless a watcher wants amounts.
    pub amount: Amount,
    /// Handles that it names or gave.
    pub handles: &'a [HandleId],
    /// The stream that it is about.
    pub stream: Option<StreamId>,
    /// The fence that it is about, or that it gave.
    pub fence: Option<Fence>,
    /// Whether that was reached.
    pub reached: bool,
    /// How it ended.
    pub ending: Ending,
}

impl DriverCall<'_> {
    /// A single call that has not been made.
    #[inline]
    pub(super) const fn new(call: Call, at: DevicePtr, handles: u64, size: Bytes) -> Self {
        let (amount, ending) = (Amount { handles, size }, Ending::Done);
        let (stream, fence, reached) = (None, None, false);
        Self { call, row: None, at, amount, handles: &[], stream, fence, reached, ending }
    }

    /// How many calls the driver gets: one for each handle that is mapped.
    #[inline]
    pub fn count(&self) -> u64 {
        match self.call {
            Call::Map => self.handles.len() as u64,
            _ => self.row.unwrap_or(1) as u64,
        }
    }

    /// Whether it did what it was asked.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.ending == Ending::Done
    }
}

/// One value for each driver call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerCall<T> {
    /// Of `cuMemAlloc`.
    pub mem_alloc: T,
    /// Of `cuMemFree`.
    pub mem_free: T,
    /// Of `cuMemAddressReserve`.
    pub address_reserve: T,
    /// Of `cuMemAddressFree`.
    pub address_free: T,
    /// Of `cuMemCreate`.
    pub create: T,
    /// Of `cuMemRelease`.
    pub release: T,
    /// Of `cuMemMap`.
    pub map: T,
    /// Of `cuMemSetAccess`.
    pub set_access: T,
    /// Of `cuMemUnmap`.
    pub unmap: T,
    /// Of `cuCtxSynchronize`.
    pub synchronize: T,
    /// Of `cuEventRecord`.
    #[serde(default)]
    pub event_record: T,
    /// Of `cuEventQuery`.
    #[serde(default)]
    pub event_query: T,
    /// Of `cuStreamWaitEvent`.
    #[serde(default)]
    pub stream_wait: T,
}

impl<T> Index<Call> for PerCall<T> {
    type Output = T;

    #[inline]
    fn index(&self, call: Call) -> &T {
        match call {
            Call::MemAlloc => &self.mem_alloc,
            Call::MemFree => &self.mem_free,
            Call::AddressReserve => &self.address_reserve,
            Call::AddressFree => &self.address_free,
            Call::Create => &self.create,
            Call::Release => &self.release,
            Call::Map => &self.map,
            Call::SetAccess => &self.set_access,
            Call::Unmap => &self.unmap,
            Call::Synchronize => &self.synchronize,
            Call::EventRecord => &self.event_record,
            Call::EventQuery => &self.event_query,
            Call::StreamWait => &self.stream_wait,
        }
    }
}

impl<T> IndexMut<Call> for PerCall<T> {
    #[inline]
    fn index_mut(&mut self, call: Call) -> &mut T {
        match call {
            Call::MemAlloc => &mut self.mem_alloc,
            Call::MemFree => &mut self.mem_free,
            Call::AddressReserve => &mut self.address_reserve,
            Call::AddressFree => &mut self.address_free,
            Call::Create => &mut self.create,
            Call::Release => &mut self.release,
            Call::Map => &mut self.map,
            Call::SetAccess => &mut self.set_access,
            Call::Unmap => &mut self.unmap,
            Call::Synchronize => &mut self.synchronize,
            Call::EventRecord => &mut self.event_record,
            Call::EventQuery => &mut self.event_query,
            Call::StreamWait => &mut self.stream_wait,
        }
    }
}

impl<T> PerCall<T> {
    /// Every call with its value, in order.
    pub fn rows(&self) -> impl Iterator<Item = (Call, &T)> {
        Call::ALL.into_iter().map(|call| (call, &self[call]))
    }
}

impl PerCall<u64> {
    /// The sum over all calls.
    pub fn total(&self) -> u64 {
        self.rows().map(|(_, value)| value).sum()
    }
}

impl AddAssign for PerCall<u64> {
    fn add_assign(&mut self, other: Self) {
        for call in Call::ALL {
            self[call] += other[call];
        }
    }
}

impl Sub for PerCall<u64> {
    type Output = Self;

    /// What came since `earlier`.
    fn sub(mut self, earlier: Self) -> Self {
        for call in Call::ALL {
            self[call] -= earlier[call];
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_fields() {
        let mut table = PerCall::default();
        for (value, call) in (1..).zip(Call::ALL) {
            table[call] = value;
        }
        let json = serde_json::to_value(table).unwrap();
        for call in Call::ALL {
            assert_eq!(json[call.name()], table[call], "{call:?}");
        }
        assert_eq!((table - table).total(), 0);
    }
}
