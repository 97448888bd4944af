//! `vmm`: the plain virtual memory allocator that the paper measures before it proposes a better one (section 2.5).
//!
//! Each request is rounded up to whole chunks, for which it reserves a range, creates the chunks, maps them and makes
//! them accessible; a free undoes all of it. There is no pool, so nothing is lost beyond the rounding, and every
//! tensor pays the full price: with 2 MiB chunks more than a hundred times that of `cuMemAlloc` (Table 1).
//!
//! ```text
//!   malloc(5 MiB)   reserve 6 MiB ─▶ 3 x (create, map, set_access)      free   unmap ─▶ 3 x release ─▶ unreserve
//! ```

use super::live::{Live, LiveBlock};
use super::{
    AllocError, AllocResult, Allocator, BlockId, BlockKind, BlockView, OptionError, OptionSpec,
    Options, Request, Usage,
};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

/// The allocator that does nothing but call the driver.
#[derive(Debug, Clone)]
pub struct Vmm {
    live: Live<Vec<HandleId>>,
    chunk: Bytes,
    retries: u64,
}

impl Vmm {
    /// The options as a user sees them.
    pub const SPECS: &'static [OptionSpec] = &[OptionSpec {
        name: "chunk",
        default: "2MiB",
        help: "size of a physical chunk, a multiple of 2 MiB; requests are rounded up to it",
    }];

    /// An allocator that holds nothing; `chunk` is a multiple of 2 MiB, in bytes.
    pub fn new(chunk: Bytes) -> Self {
        Self { live: Live::default(), chunk, retries: 0 }
    }

    /// Makes the allocator from its options.
    ///
    /// # Errors
    /// If the size of a chunk is not a multiple of 2 MiB.
    pub fn from_options(options: &mut Options) -> Result<Self, OptionError> {
        Ok(Self::new(options.chunk("chunk", GRANULE)?))
    }

    /// Memory for `size` bytes; when there is none, once more after all frees that only wait for a stream.
    fn obtain(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
    ) -> Result<(DevicePtr, Vec<HandleId>), AllocError> {
        match self.obtain_once(device, size) {
            Err(DeviceError::OutOfMemory { .. }) if self.live.has_pending() => {}
            other => return other.map_err(|error| self.live.explain(error, size)),
        }
        self.retries += 1;
        device.synchronize();
        for block in self.live.take_pending() {
            self.give_back(device, &block);
        }
        self.obtain_once(device, size).map_err(|error| self.live.explain(error, size))
    }

    fn obtain_once(
        &self,
        device: &mut dyn Device,
        size: Bytes,
    ) -> Result<(DevicePtr, Vec<HandleId>)> {
        let at = device.reserve(size)?;
        let count = size / self.chunk;
        let mut handles = Vec::with_capacity(count as usize);
        match self.back(device, at, count, &mut handles) {
            Ok(()) => Ok((at, handles)),
            Err(error) => {
                device.release_each(&handles);
                device.unreserve(at, size);
                Err(error)
            }
        }
    }

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

    fn give_back(&mut self, device: &mut dyn Device, block: &LiveBlock<Vec<HandleId>>) {
        self.live.shrink(block.size);
        device.unmap(block.at, block.size);
        device.release_each(&block.place);
        device.unreserve(block.at, block.size);
    }
}

impl Allocator for Vmm {
    fn malloc(&mut self, device: &mut dyn Device, request: Request) -> AllocResult {
        let size = round_up(request.size, self.chunk);
        let (at, handles) = self.obtain(device, size)?;
        self.live.grow(size);
        Ok(self.live.hand_out(handles, at, request, size))
    }

    fn free_requested(&mut self, block: BlockId, _users: &[StreamId]) {
        self.live.request_free(block);
    }

    /// The other streams are done, but its own may not be, and `unmap` does not wait for the GPU: so we do.
    fn free_completed(&mut self, device: &mut dyn Device, block: BlockId) {
        if let Some(block) = self.live.complete(block) {
            device.synchronize();
            self.give_back(device, &block);
        }
    }

    fn free(&mut self, device: &mut dyn Device, block: BlockId) {
        let block = self.live.free(block);
        device.synchronize();
        self.give_back(device, &block);
    }

    fn trim(&mut self, _device: &mut dyn Device) {}

    fn usage(&self) -> Usage {
        self.live.usage()
    }

    fn peak(&self) -> Usage {
        self.live.peak()
    }

    fn retries(&self) -> u64 {
        self.retries
    }

    fn walk(&self, visit: &mut dyn FnMut(BlockView)) {
        self.live.walk(BlockKind::Large, visit);
    }
}
