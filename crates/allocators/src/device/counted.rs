//! Counts the driver calls to a device.

use std::ops::{Add, Sub};

use super::call::{Call, DriverCall};
use super::watched::Watch;

/// Writes a structure with a counter for each of some calls.
macro_rules! counts {
    ($(#[$doc:meta])* $counts:ident { $($name:ident: $call:ident, $of:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $counts {
            $(#[doc = $of] pub $name: u64,)+
        }

        impl $counts {
            /// Name and count of every call, in the order of the fields.
            pub fn rows(&self) -> [(&'static str, u64); [$($of),+].len()] {
                [$((stringify!($name), self.$name)),+]
            }

            /// The counter of a call, if it is counted here.
            #[inline(always)]
            fn counter(&mut self, call: Call) -> Option<&mut u64> {
                match call {
                    $(Call::$call => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }

        impl Add for $counts {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name),+ }
            }
        }

        impl Sub for $counts {
            type Output = Self;

            /// The calls made since `earlier`.
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name - earlier.$name),+ }
            }
        }
    };
}

counts! {
    /// How often each driver call was made, failed calls included.
    CallCounts {
        mem_alloc: MemAlloc, "`cuMemAlloc`";
        mem_free: MemFree, "`cuMemFree`";
        address_reserve: AddressReserve, "`cuMemAddressReserve`";
        address_free: AddressFree, "`cuMemAddressFree`";
        create: Create, "`cuMemCreate`";
        release: Release, "`cuMemRelease`";
        map: Map, "`cuMemMap`, one for each handle";
        set_access: SetAccess, "`cuMemSetAccess`";
        unmap: Unmap, "`cuMemUnmap`";
    }
}

counts! {
    /// How often streams were put in order. These calls touch no memory, and are counted next to those that do.
    FenceCounts {
        event_record: EventRecord, "`cuEventRecord`";
        event_query: EventQuery, "`cuEventQuery`";
        stream_wait: StreamWait, "`cuStreamWaitEvent`";
    }
}

impl CallCounts {
    /// All calls together.
    pub fn total(&self) -> u64 {
        self.rows().iter().map(|(_, count)| count).sum()
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
        if let Some(counter) = calls.counter(call.call).or_else(|| fences.counter(call.call)) {
            *counter += call.count();
        }
    }
}
