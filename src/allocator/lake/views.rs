//! Views: handles mapped a second time, side by side in another order.
//!
//! A view is GMLake's stitched block, with one difference: nobody owns it, and it is never active or idle as a whole.
//! Any part of it whose memory is free is a run like those of the arena, and serves any request that fits. So a view is
//! worth keeping: most requests that cannot be served from the arena find the view that served their like before.

use rustc_hash::FxHashMap;

use super::addresses::Addresses;
use super::streams::Users;
use crate::allocator::caching::FreeIndex;
use crate::allocator::{BlockId, NIL, Slab, SlabIndex};
use crate::device::DevicePtr;
use crate::trace::StreamId;
use crate::units::Bytes;

/// A handle in a view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// The handle; `NIL` once it was released.
    pub(super) handle: SlabIndex,
    /// Where it begins in the view.
    pub(super) offset: Bytes,
}

/// A range of addresses over handles.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// Its first address.
    pub(super) at: DevicePtr,
    /// Bytes.
    pub(super) size: Bytes,
    /// Its handles, in order.
    pub(super) slots: Vec<Slot>,
    /// Tensors that live at its addresses.
    pub(super) tensors: u32,
    /// When it last served a request.
    pub(super) used: u64,
    /// Streams that freed a tensor in it, and before which of their fences.
    pub(super) users: Users,
    /// Whether it serves no more requests, and goes as soon as nobody uses it.
    pub(super) is_closed: bool,
    /// Whether it is gone.
    pub(super) is_gone: bool,
}

/// Views that served one size, latest last, that are remembered.
const RECENT: usize = 4;

/// All views.
#[derive(Debug, Clone, Default)]
pub(super) struct Views {
    /// Where they are mapped.
    pub(super) addresses: Addresses,
    pub(super) all: Slab<View>,
    /// Open ones by size.
    pub(super) by_size: FreeIndex,
    recent: FxHashMap<Bytes, Vec<BlockId>>,
    /// Views that exist.
    pub(super) count: usize,
    /// Bytes that they map.
    pub(super) stitched: Bytes,
    /// Requests served so far.
    pub(super) clock: u64,
    pub(super) closed: usize,
}

/// All views are in one list, whatever stream.
pub(super) const ANY: StreamId = StreamId(0);

impl Views {
    /// Adds a view.
    pub(super) fn add(&mut self, at: DevicePtr, slots: Vec<Slot>, size: Bytes) -> SlabIndex {
        let view = View {
            at,
            size,
            slots,
            tensors: 0,
            used: self.clock,
            users: Users::new(),
            is_closed: false,
            is_gone: false,
        };
        let index = self.all.insert(view);
        self.by_size.insert(ANY, size, at.0, index);
        self.count += 1;
        self.stitched += size;
        index
    }

    /// From now on the view serves no requests.
    pub(super) fn close(&mut self, view: SlabIndex) {
        let View { size, at, is_closed, .. } = self.all[view];
        if !is_closed {
            self.by_size.remove(ANY, size, at.0);
            self.all[view].is_closed = true;
            self.closed += 1;
        }
    }

    /// Forgets a closed view.
    pub(super) fn remove(&mut self, view: SlabIndex) {
        let entry = &mut self.all[view];
        debug_assert!(entry.is_closed && !entry.is_gone && entry.tensors == 0);
        entry.is_gone = true;
        entry.slots = Vec::new();
        self.count -= 1;
        self.closed -= 1;
        self.stitched -= entry.size;
        self.all.remove(view);
    }

    /// Notes that a view served a request of this size.
    pub(super) fn note_use(&mut self, view: SlabIndex, size: Bytes) {
        self.clock += 1;
        let entry = &mut self.all[view];
        entry.tensors += 1;
        entry.used = self.clock;
        if self.recent.len() > 65_536 {
            self.recent.clear();
        }
        let id = self.all.id(view);
        let list = self.recent.entry(size).or_default();
        if list.last() != Some(&id) {
            list.retain(|&other| other != id);
            if list.len() == RECENT {
                list.remove(0);
            }
            list.push(id);
        }
    }

    /// The `back`-th latest view that served a request of this size and is still open.
    pub(super) fn recent(&self, size: Bytes, back: usize) -> Option<SlabIndex> {
        let list = self.recent.get(&size)?;
        let id = list[list.len().checked_sub(back + 1)?];
        Some(self.all.find(id).filter(|&view| !self.all[view].is_closed).unwrap_or(NIL))
    }

    /// Views that exist, in no particular order.
    pub(super) fn existing(&self) -> impl Iterator<Item = SlabIndex> + '_ {
        (0..self.all.len() as SlabIndex).filter(|&view| !self.all[view].is_gone)
    }
}
