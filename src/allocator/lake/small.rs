//! Tiny requests: slabs of 2 MiB out of the arena, cut up as PyTorch does it, and given back when they are empty.
//!
//! PyTorch does that up to 1 MiB. But a slab stays for its last block, and when that comes back depends on the GPU's
//! pace if other streams use it; so what is large enough to leave a useful piece behind is a tensor like any other, and
//! goes where it went before. Slabs are for what comes in thousands: searching a slab is faster.

use super::Lake;
use super::history::Asked;
use super::tensors::Place;
use crate::allocator::SlabIndex;
use crate::allocator::small_pool::SMALL_SEGMENT;
use crate::device::{Device, DeviceError, DevicePtr};
use crate::trace::StreamId;
use crate::units::{Bytes, KIB};

/// The largest request that is served from a slab.
pub(super) const TINY: Bytes = 32 * KIB;

impl Lake {
    /// A block for a request of up to [`TINY`] bytes.
    ///
    /// # Errors
    /// Out of memory, or a driver error.
    #[inline]
    pub(super) fn malloc_small(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<Place, DeviceError> {
        if let Some(block) = self.small.malloc(size, stream) {
            return Ok(Place::Small(block));
        }
        self.malloc_slab(device, stream, size)
    }

    #[cold]
    fn malloc_slab(
        &mut self,
        device: &mut dyn Device,
        stream: StreamId,
        size: Bytes,
    ) -> Result<Place, DeviceError> {
        if !self.options.slabs {
            return self.malloc_large(device, stream, size).map(Place::Large);
        }
        let asked = Asked { stream, size: SMALL_SEGMENT };
        let expected = self.repeats().then(|| self.history.expect_slab()).flatten();
        match self.find(device, asked, expected) {
            Ok(piece) => {
                if self.repeats() {
                    self.history.note_slab(self.spot());
                }
                let room = self.room(piece, SMALL_SEGMENT);
                let at = room.at;
                self.slabs.insert(at, room);
                self.small.adopt(at, stream);
                let block = self.small.malloc(size, stream).expect("a slab fits every small block");
                Ok(Place::Small(block))
            }
            Err(DeviceError::OutOfMemory { .. }) => {
                self.malloc_large(device, stream, size).map(Place::Large)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a block back.
    #[inline]
    pub(super) fn free_small(&mut self, block: SlabIndex) {
        if let Some((at, stream)) = self.small.free_and_take_idle(block) {
            self.give_slab(at, stream);
        }
    }

    #[cold]
    fn give_slab(&mut self, at: DevicePtr, stream: StreamId) {
        let room = self.slabs.remove(&at).expect("a slab has its room");
        self.return_room(room, stream);
    }

    /// Gives back slabs that were kept although they are empty.
    pub(super) fn drop_idle_slabs(&mut self) {
        for (at, stream) in self.small.take_idle() {
            self.give_slab(at, stream);
        }
    }
}
