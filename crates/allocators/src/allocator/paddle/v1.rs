//! `paddle-v1`: auto-growth best fit over virtual memory (`FLAGS_use_virtual_memory_auto_growth`, 2021).
//!
//! What the cached memory cannot serve comes in one piece at the end of the arena, and is one with a free block there:
//! the block is then only extended. The piece is rounded up to 2 MiB, after 256 bytes were added for an alignment that
//! is never needed, so that a request for 4 MiB takes 6 MiB. A block is split if it is more than 256 bytes too large,
//! or more than twice as large.
//!
//! ```text
//!   arena   [####|   |######|      ]             a request larger than each free block
//!           [####|   |######|      + handle ]    only what the tail lacks, rounded up
//! ```
//!
//! Nothing is ever given back: `empty_cache` frees nothing, and no stream gets what another one cached. Only when no
//! block is in use at all, a trim here ends the allocator, as the end of the process does there.
//!
//! Not here: pre-allocation and larger minimal growth (flags that are off), and moving live tensors
//! (`FLAGS_enable_compact_mem`, `FLAGS_native_compact`, #75323), which changes addresses that clients hold: the tensor
//! finds its new address in Paddle's `Allocation`, and an [`Allocation`](crate::allocator::Allocation) of this port
//! cannot change.

use super::{Arenas, UNIT};
use crate::allocator::pool::{Place, Policy};
use crate::allocator::spec::settings;
use crate::allocator::{BlockView, Counter};
use crate::device::{Device, DevicePtr, GRANULE, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, round_up};

use super::blocks::Block;

/// Handles with their addresses and sizes, in order.
type Handles = Vec<(DevicePtr, Bytes, HandleId)>;

settings! {
    PaddleV1Options {
        /// `FLAGS_vmm_small_pool_size_in_mb`.
        small_pool: Bytes = size("small_pool", "1MiB"),
            "requests below this have a pool of their own; 0: one pool";
    }
}

/// Paddle's first allocator over virtual memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct PaddleV1 {
    options: PaddleV1Options,
    arenas: Arenas<Handles>,
    held: Bytes,
    growths: u64,
}

impl PaddleV1 {
    pub(crate) fn new(options: PaddleV1Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// More memory at the end of an arena, so that its last block holds `size` bytes.
    fn grow(&mut self, device: &mut dyn Device, arena: usize, size: Bytes) -> Result<()> {
        let arena = &mut self.arenas.list[arena];
        let bytes = round_up(size - arena.blocks.tail_free() + UNIT, GRANULE);
        let end = arena.room(bytes)?;
        let handle = device.create(bytes)?;
        let mapped = device.map_for_use(DevicePtr(end), &[handle], bytes);
        mapped.inspect_err(|_| device.release(handle))?;
        arena.backing.push((DevicePtr(end), bytes, handle));
        arena.blocks.add_merged(end, Block::fresh(bytes));
        self.held += bytes;
        self.growths += 1;
        Ok(())
    }
}

/// How much of a free block a request gets.
fn part(block: Bytes, size: Bytes) -> Bytes {
    if block > 2 * size || block - size > UNIT { size } else { block }
}

impl Policy for PaddleV1 {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, UNIT)
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let number =
            self.arenas.obtain(device, (stream, size < self.options.small_pool), 1, GRANULE)?;
        if self.arenas.list[number].blocks.best_fit(size).is_none() {
            self.grow(device, number, size)?;
        }
        let blocks = &mut self.arenas.list[number].blocks;
        let (at, found) = blocks.best_fit(size).expect("the tail holds it now");
        let size = part(found, size);
        blocks.activate(at, size);
        Ok(Place { at: DevicePtr(at), size })
    }

    fn give(&mut self, _device: &mut dyn Device, place: Place, _stream: StreamId) {
        self.arenas.of(place.at).blocks.release(place.at.0);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        if !self.arenas.list.iter().all(|arena| arena.blocks.is_idle()) {
            return;
        }
        device.synchronize();
        for arena in self.arenas.list.drain(..) {
            for (at, size, handle) in arena.backing {
                device.unmap(at, size);
                device.release(handle);
            }
            device.unreserve(arena.at, arena.size);
        }
        self.held = 0;
    }

    fn held(&self) -> Bytes {
        self.held
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.arenas.segment(at)
    }

    fn free(&self) -> Vec<BlockView> {
        self.arenas.free()
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("growths", self.growths)]
    }
}
