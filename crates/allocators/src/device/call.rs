//! The driver's calls: their names, what one of them was about, and tables with one entry for each.

use std::ops::{AddAssign, Index, IndexMut, Sub};

use serde::{Deserialize, Serialize};

use super::{DeviceError, DevicePtr, Fence, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Writes [`Call`] and [`PerCall`] from a table: the call, its name in our exports, the driver's name.
macro_rules! calls {
    ($($(#[$of_field:meta])* $call:ident $name:ident $driver:literal)+) => {
        /// One of the driver calls behind the device port.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Call {
            $(
                #[doc = concat!("`", $driver, "`")]
                $call,
            )+
        }

        impl Call {
            /// All calls, in the order of every table.
            pub const ALL: [Self; [$($driver),+].len()] = [$(Self::$call),+];

            /// The name in our exports, which is that of the field in [`PerCall`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$call => stringify!($name),)+
                }
            }

            /// The driver's name.
            pub const fn driver_name(self) -> &'static str {
                match self {
                    $(Self::$call => $driver,)+
                }
            }
        }

        /// One value for each driver call.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct PerCall<T> {
            $(
                #[doc = concat!("Of `", $driver, "`.")]
                $(#[$of_field])*
                pub $name: T,
            )+
        }

        impl<T> Index<Call> for PerCall<T> {
            type Output = T;

            #[inline]
            fn index(&self, call: Call) -> &T {
                match call {
                    $(Call::$call => &self.$name,)+
                }
            }
        }

        impl<T> IndexMut<Call> for PerCall<T> {
            #[inline]
            fn index_mut(&mut self, call: Call) -> &mut T {
                match call {
                    $(Call::$call => &mut self.$name,)+
                }
            }
        }
    };
}

calls! {
    MemAlloc mem_alloc "cuMemAlloc"
    MemFree mem_free "cuMemFree"
    AddressReserve address_reserve "cuMemAddressReserve"
    AddressFree address_free "cuMemAddressFree"
    Create create "cuMemCreate"
    Release release "cuMemRelease"
    Map map "cuMemMap"
    SetAccess set_access "cuMemSetAccess"
    Unmap unmap "cuMemUnmap"
    Synchronize synchronize "cuCtxSynchronize"
    #[serde(default)] EventRecord event_record "cuEventRecord"
    #[serde(default)] EventQuery event_query "cuEventQuery"
    #[serde(default)] StreamWait stream_wait "cuStreamWaitEvent"
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

impl<T> PerCall<T> {
    /// Every call with its value, in order.
    pub fn rows(&self) -> impl Iterator<Item = (Call, &T)> {
        Call::ALL.into_iter().map(|call| (call, &self[call]))
    }
}

impl PerCall<u64> {
    /// The sum over all calls, or the largest number.
    pub fn total(&self) -> u64 {
        self.rows().fold(0, |sum, (_, &value)| sum.saturating_add(value))
    }
}

impl AddAssign for PerCall<u64> {
    fn add_assign(&mut self, other: Self) {
        for call in Call::ALL {
            self[call] = self[call].saturating_add(other[call]);
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
