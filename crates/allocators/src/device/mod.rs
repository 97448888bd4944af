//! The device port: all that an allocator may ask of a GPU.
//!
//! CUDA has two ways to give out memory. `cuMemAlloc` gives memory and an address at once. The virtual memory
//! management calls take the two apart, which is what stitching lives on:
//!
//! ```text
//!   reserve(6 MiB)          create(2 MiB) = h0   create(4 MiB) = h1        map(at, [h1, h0]); set_access(at, 6 MiB)
//!   ┌──────────────────┐    ┌────┐ ┌─────────┐                             ┌─────────┬────┐
//!   │ addresses only   │    │ h0 │ │   h1    │   memory, no address   ──▶  │   h1    │ h0 │  one contiguous tensor
//!   └──────────────────┘    └────┘ └─────────┘                             └─────────┴────┘
//! ```
//!
//! A handle is mapped whole, at as many addresses as one likes at the same time; its memory goes back to the device
//! when it has been released *and* its last mapping is gone. An allocator is *handed* a `&mut dyn Device` with each
//! request, so the same object runs against [`SimDevice`], a recording or a real GPU.

mod book;
mod call;
mod counted;
mod driver_addresses;
mod faulty;
mod fence;
mod forward;
mod limited;
mod logged;
mod order;
mod pages;
mod priced;
mod profile;
mod record;
mod simulated;
mod timed;
mod watched;
mod zeroing;

pub use call::{Amount, Call, DriverCall, Ending, PerCall};
pub use counted::{CallCounts, Counted, FenceCounts};
pub use driver_addresses::DriverAddresses;
pub use faulty::Faulty;
pub use fence::Fence;
pub use forward::forward;
pub use limited::Limited;
pub use logged::{CallLog, LogEntry, Place};
pub use order::{LastUse, Order};
pub use priced::{Bill, Priced};
pub use profile::{Line, Profile, ProfileError};
pub use record::{Extent, Record};
pub use simulated::{AddressPolicy, SimDevice};
pub use timed::{Histogram, Observation, Timed};
pub use watched::{Lent, Watch, Watched};

use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, Size};

/// The smallest unit of physical memory that a GPU maps: `cuMemGetAllocationGranularity` says 2 MiB on every card
/// that we know of.
pub const GRANULE: Bytes = 2 << 20;

/// An address in the GPU's virtual address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address `bytes` further on.
    #[inline]
    #[must_use]
    pub const fn offset(self, bytes: Bytes) -> Self {
        Self(self.0 + bytes)
    }
}

impl std::fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// One `cuMemCreate` result: physical memory without an address. Devices may hand out the number of a handle again
/// once its memory is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u32);

/// Why the device did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is not enough physical memory (or address space) left.
    #[error("device out of memory: {} asked for, {} free", Size(*.requested), Size(*.free))]
    OutOfMemory {
        /// Bytes asked for.
        requested: Bytes,
        /// Bytes that were free.
        free: Bytes,
    },
    /// The driver refused a call for another reason; nothing can be done about it here.
    #[error("{call} failed: {reason}")]
    Driver {
        /// The driver's name of the call.
        call: &'static str,
        /// What the driver said.
        reason: String,
    },
}

/// What a call to the device returns.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// Physical memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not held by anybody.
    pub free: Bytes,
    /// Of the device as a whole.
    pub total: Bytes,
}

/// What an allocator may ask of a GPU: CUDA's memory calls, one method each, and nothing else.
///
/// A call that returns an error has changed nothing. Calls that only give back return nothing: a correct allocator
/// cannot make them fail, so implementations treat a failure as a bug (simulation) or keep the first error (GPU).
pub trait Device {
    /// `cuMemGetInfo`.
    fn memory_info(&self) -> MemoryInfo;

    /// `cuMemAlloc`: memory and an address at once.
    ///
    /// # Errors
    /// Out of memory, or a driver error.
    fn malloc(&mut self, size: Bytes) -> Result<DevicePtr>;

    /// `cuMemFree`. Waits until the GPU is idle.
    fn free(&mut self, at: DevicePtr);

    /// `cuMemAddressReserve`: addresses without memory. `size` is a multiple of [`GRANULE`].
    ///
    /// # Errors
    /// No address space left, or a driver error.
    fn reserve(&mut self, size: Bytes) -> Result<DevicePtr>;

    /// `cuMemAddressFree` of one whole reservation, with nothing mapped in it.
    fn unreserve(&mut self, at: DevicePtr, size: Bytes);

    /// `cuMemCreate`: memory without an address. `size` is a multiple of [`GRANULE`].
    ///
    /// # Errors
    /// Out of memory, or a driver error.
    fn create(&mut self, size: Bytes) -> Result<HandleId>;

    /// `cuMemRelease`. The memory itself stays until the last mapping of the handle is gone.
    fn release(&mut self, handle: HandleId);

    /// `cuMemMap`, one call for each of `handles`, side by side from `at`.
    ///
    /// # Errors
    /// A driver error; what this call had mapped is unmapped again.
    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) -> Result<()>;

    /// `cuMemSetAccess`: makes a fully mapped range readable and writable, in one call.
    ///
    /// # Errors
    /// A driver error.
    fn set_access(&mut self, at: DevicePtr, size: Bytes) -> Result<()>;

    /// `cuMemUnmap` of whole mappings. Does *not* wait for the GPU.
    fn unmap(&mut self, at: DevicePtr, size: Bytes);

    /// [`Device::map`] and [`Device::set_access`]: handles of `size` bytes in all, side by side from `at`, to be used.
    ///
    /// # Errors
    /// A driver error; nothing is mapped.
    fn map_for_use(&mut self, at: DevicePtr, handles: &[HandleId], size: Bytes) -> Result<()> {
        self.map(at, handles)?;
        self.set_access(at, size).inspect_err(|_| self.unmap(at, size))
    }

    /// New handles of `each` bytes, the last one perhaps smaller: `size` bytes in all, side by side from `at`, for use.
    ///
    /// # Errors
    /// Out of memory, or a driver error; nothing is left of them.
    fn create_for_use(&mut self, at: DevicePtr, size: Bytes, each: Bytes) -> Result<Vec<HandleId>> {
        let mut handles = Vec::with_capacity(size.div_ceil(each) as usize);
        let rest = size % each;
        let mut made = self.create_each(each, (size / each) as usize, &mut handles);
        if made.is_ok() && rest > 0 {
            made = self.create(rest).map(|handle| handles.push(handle));
        }
        match made.and_then(|()| self.map_for_use(at, &handles, size)) {
            Ok(()) => Ok(handles),
            Err(error) => {
                self.release_each(&handles);
                Err(error)
            }
        }
    }

    /// `count` calls of [`Device::create`], one after the other. Allocators that work in chunks make very many of them,
    /// and a simulated device can make them at once.
    ///
    /// # Errors
    /// That of the first call that fails; the handles of the calls before it are in `handles`.
    fn create_each(
        &mut self,
        size: Bytes,
        count: usize,
        handles: &mut Vec<HandleId>,
    ) -> Result<()> {
        (0..count).try_for_each(|_| self.create(size).map(|handle| handles.push(handle)))
    }

    /// A call of [`Device::release`] for each of `handles`.
    fn release_each(&mut self, handles: &[HandleId]) {
        handles.iter().for_each(|&handle| self.release(handle));
    }

    /// A call of [`Device::set_access`] for each of `count` chunks of `size` bytes, side by side from `at`.
    ///
    /// # Errors
    /// That of the first call that fails.
    fn set_access_each(&mut self, at: DevicePtr, size: Bytes, count: usize) -> Result<()> {
        (0..count as u64).try_for_each(|number| self.set_access(at.offset(number * size), size))
    }

    /// `cuCtxSynchronize`: waits until the GPU has done all that was queued.
    fn synchronize(&mut self);

    /// `cuEventRecord`: the end of what is queued on `stream` now.
    fn fence(&mut self, stream: StreamId) -> Fence;

    /// `cuEventQuery`: whether the GPU has got to a fence. Does not wait.
    fn reached(&mut self, fence: Fence) -> bool;

    /// `cuStreamWaitEvent`: what is queued on `stream` from now on begins after `fence`. The host does not wait.
    fn stream_wait(&mut self, stream: StreamId, fence: Fence);

    /// Gives a fence back. A stream that waits for it goes on waiting.
    fn drop_fence(&mut self, fence: Fence);

    /// The program has gone on by this many events, in this many nanoseconds (zero where it is not known): the clock of
    /// a simulated GPU. A real one has its own.
    fn elapse(&mut self, _events: u64, _ns: u64) {}
}
