//! PaddlePaddle's allocators over virtual memory: `paddle-v1` (auto-growth best fit) and `paddle-v2` (with remapping).
//!
//! Each stream has an allocator of its own, which knows nothing of the others, and in it a pool for requests below
//! 1 MiB and one for the rest. A pool is an *arena*: one range of addresses, as large as the card's memory or four
//! times that, which grows only at its end. A request gets the smallest free block, the lowest of several.
//!
//! ```text
//!   stream 0   small  [##|#|  ]............      large  [########|  |#####|        ]......................
//!   stream 1   small  [#|    ].............      large  [####|              ]..............................
//!                              addresses only                                 more memory comes here
//! ```
//!
//! From PaddlePaddle (Apache-2.0), `paddle/phi/core/memory/allocation/`, at the state of July 2026, in stored copies of
//! the files: `virtual_memory_auto_growth_best_fit_allocator.cc`, `cuda_virtual_mem_allocator.cc`,
//! `aligned_allocator.cc` (V1); `vmm_auto_growth_best_fit_allocator_v2.cc`, `..._multi_pool_allocator_v2.cc`,
//! `cuda_virtual_mem_allocator_v2.cc`, `vmm_backing_map.cc`, `remap_transaction.cc` (V2: #78317, #78344, #79427,
//! #79514, and what followed); `stream_safe_cuda_allocator.cc`, `retry_allocator.cc`, `allocator_facade.cc` (both).

mod blocks;
mod pages;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

pub(super) use v1::{PaddleV1, PaddleV1Options};
pub(super) use v2::{PaddleV2, PaddleV2Options};

use super::BlockView;
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

use self::blocks::Blocks;

/// All sizes are multiples of this (`GpuMinChunkSize`).
const UNIT: Bytes = 256;
/// A card larger than this is taken for one of this size.
const LARGEST: Bytes = 1 << 40;

/// A pool of one stream: a range of addresses, its blocks, and the memory behind them.
#[derive(Debug, Clone)]
struct Arena<B> {
    stream: StreamId,
    is_small: bool,
    at: DevicePtr,
    size: Bytes,
    /// All memory comes in multiples of this.
    page: Bytes,
    blocks: Blocks,
    backing: B,
}

impl<B: Default> Arena<B> {
    /// An arena with addresses for `times` the memory of the card.
    fn new(
        device: &mut dyn Device,
        (stream, is_small): (StreamId, bool),
        times: u64,
        page: Bytes,
    ) -> Result<Self> {
        let total = device.memory_info().total.min(LARGEST);
        let size = round_up((total * times).max(GRANULE), page);
        let at = device.reserve(size)?;
        let (blocks, backing) = (Blocks::default(), B::default());
        Ok(Self { stream, is_small, at, size, page, blocks, backing })
    }

    /// The first address behind all blocks.
    fn end(&self) -> u64 {
        self.blocks.tail().map_or(self.at.0, |(at, block)| at + block.size)
    }

    /// Addresses for `size` more bytes at the end.
    fn room(&self, size: Bytes) -> Result<u64> {
        let end = self.end();
        let free = self.at.0 + self.size - end;
        if size > free {
            return Err(DeviceError::OutOfMemory { requested: size, free });
        }
        Ok(end)
    }

    fn holds(&self, at: DevicePtr) -> bool {
        self.at <= at && at.0 < self.at.0 + self.size
    }
}

/// The arenas of all streams.
#[derive(Debug, Clone, Default)]
struct Arenas<B> {
    list: Vec<Arena<B>>,
}

impl<B: Default> Arenas<B> {
    /// The number of a stream's arena; a new one has addresses for `times` the memory of the card.
    fn obtain(
        &mut self,
        device: &mut dyn Device,
        (stream, is_small): (StreamId, bool),
        times: u64,
        page: Bytes,
    ) -> Result<usize> {
        let is_it = |arena: &Arena<B>| (arena.stream, arena.is_small) == (stream, is_small);
        if let Some(found) = self.list.iter().position(is_it) {
            return Ok(found);
        }
        self.list.push(Arena::new(device, (stream, is_small), times, page)?);
        Ok(self.list.len() - 1)
    }

    /// The arena that a block is in.
    fn of(&mut self, at: DevicePtr) -> &mut Arena<B> {
        self.list.iter_mut().find(|arena| arena.holds(at)).expect("the block is in an arena")
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.list.iter().find(|arena| arena.holds(at)).map_or(at, |arena| arena.at)
    }

    fn free(&self) -> Vec<BlockView> {
        let of_arena = |arena: &Arena<B>| {
            let free = arena.blocks.iter_free();
            free.map(|(at, block)| BlockView::free(DevicePtr(at), block.size, arena.stream))
                .collect::<Vec<_>>()
        };
        self.list.iter().flat_map(of_arena).collect()
    }
}
