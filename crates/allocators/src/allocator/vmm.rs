//! `vmm`: the plain virtual memory allocator that the paper measures before it proposes a better one (section 2.5).
//!
//! Each request is rounded up to whole chunks, for which it reserves a range, creates the chunks, maps them and makes
//! them accessible; a free undoes all of it. There is no pool, so nothing is lost beyond the rounding, and every
//! tensor pays the full price: with 2 MiB chunks more than a hundred times that of `cuMemAlloc` (Table 1).
//!
//! ```text
//!   malloc(5 MiB)   reserve 6 MiB ─▶ 3 x (create, map, set_access)      free   unmap ─▶ 3 x release ─▶ unreserve
//! ```

use rustc_hash::FxHashMap;

use super::pool::{Place, Policy, Pool};
use super::spec::settings;
use crate::device::{Device, DevicePtr, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

/// The allocator that does nothing but call the driver.
pub type Vmm = Pool<Chunks>;

settings! {
    VmmOptions {
        chunk: Bytes = chunk("chunk", "2MiB"),
            "size of a physical chunk, a multiple of 2 MiB; requests are rounded up to it";
    }
}

impl Vmm {
    /// An allocator that holds nothing.
    pub(super) fn new(VmmOptions { chunk }: VmmOptions) -> Self {
        Self::of(Chunks { chunk, held: 0, handles: FxHashMap::default() })
    }
}

/// The policy to map chunks for each request.
#[derive(Debug, Clone)]
pub struct Chunks {
    chunk: Bytes,
    held: Bytes,
    /// The chunks of each place.
    handles: FxHashMap<DevicePtr, Vec<HandleId>>,
}

impl Chunks {
    /// Creates, maps and opens `count` chunks. After an error nothing is mapped.
    fn back(
        &self,
        device: &mut dyn Device,
        at: DevicePtr,
        count: u64,
        handles: &mut Vec<HandleId>,
    ) -> Result<()> {
        device.create_each(self.chunk, count as usize, handles)?;
        device.map(at, handles)?;
        device
            .set_access_each(at, self.chunk, count as usize)
            .inspect_err(|_| device.unmap(at, count * self.chunk))
    }
}

impl Policy for Chunks {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, self.chunk)
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, _stream: StreamId) -> Result<Place> {
        let at = device.reserve(size)?;
        let count = size / self.chunk;
        let mut handles = Vec::with_capacity(count as usize);
        match self.back(device, at, count, &mut handles) {
            Ok(()) => {
                self.held += size;
                self.handles.insert(at, handles);
                Ok(Place { at, size })
            }
            Err(error) => {
                device.release_each(&handles);
                device.unreserve(at, size);
                Err(error)
            }
        }
    }

    /// The other streams may be done with a block, but its own may not be, and `unmap` does not wait for the GPU: so we
    /// do.
    fn before_free(&mut self, device: &mut dyn Device) {
        device.synchronize();
    }

    fn give(&mut self, device: &mut dyn Device, Place { at, size }: Place, _stream: StreamId) {
        self.held -= size;
        device.unmap(at, size);
        let handles = self.handles.remove(&at).unwrap_or_default();
        device.release_each(&handles);
        device.unreserve(at, size);
    }

    fn held(&self) -> Bytes {
        self.held
    }
}
