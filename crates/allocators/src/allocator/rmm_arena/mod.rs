//! `rmm-arena`: the arenas of RAPIDS' memory manager, one for each stream under a global one.
//!
//! The global arena is one range of memory, cut into superblocks of at least 1 MiB. A request above 1 MiB gets a
//! superblock of its own size from it, a smaller one a block of a superblock that belongs to its stream's arena. Both
//! are the first fit by address. Freed blocks of a stream stay in its arena until memory is short; then all superblocks
//! go back to the global arena, and what touches there becomes one.
//!
//! ```text
//!   global    [ superblock, large ][ superblock of stream 1 ][ superblock of stream 2 ][      empty      ]
//!   arenas                          [##|#|    |##|   ]        [#|        ]
//! ```
//!
//! From `arena.hpp` and `arena_memory_resource_impl.cpp` (rapidsai/rmm, 5d50a37). The original takes its whole range
//! from `cudaMalloc` at once, by default half of the free memory. Here addresses are reserved for all of it, and
//! memory is mapped as far up as it was ever used: what is held says how large an arena the program needs.

use super::pool::{Place, Policy};
use super::spec::settings;
use super::{BlockView, Counter};
use crate::device::{Device, DeviceError, DevicePtr, GRANULE, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, MIB, round_up};

use self::superblock::{Superblock, Superblocks};

mod superblock;

/// All sizes are multiples of this.
const UNIT: Bytes = 256;
/// The largest arena that the original makes.
const LARGEST: Bytes = 1 << 40;

settings! {
    RmmArenaOptions {
        size: Bytes = size("size", "0"), "size of the global arena; 0: all memory that is free";
    }
}

/// The range of the global arena.
#[derive(Debug, Clone, Copy)]
struct Range {
    at: DevicePtr,
    size: Bytes,
}

/// Memory behind the range, from its beginning on.
#[derive(Debug, Clone, Copy)]
struct Mapping {
    handle: HandleId,
    /// Where it begins, from the beginning of the range.
    offset: Bytes,
    size: Bytes,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RmmArena {
    options: RmmArenaOptions,
    range: Option<Range>,
    mappings: Vec<Mapping>,
    global: Superblocks,
    arenas: Vec<(StreamId, Superblocks)>,
    defragmentations: u64,
}

impl RmmArena {
    pub(super) fn new(options: RmmArenaOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The range, which is reserved with the first request.
    fn range(&mut self, device: &mut dyn Device) -> Result<Range> {
        if let Some(range) = self.range {
            return Ok(range);
        }
        let free = device.memory_info().free;
        let wanted = if self.options.size > 0 { self.options.size } else { free };
        let size = wanted.min(free).min(LARGEST) / GRANULE * GRANULE;
        if size == 0 {
            return Err(DeviceError::OutOfMemory { requested: GRANULE, free });
        }
        let range = Range { at: device.reserve(size)?, size };
        self.global.insert(range.at.0, Superblock::new(range.at.0, size));
        self.range = Some(range);
        Ok(range)
    }

    fn arena(&mut self, stream: StreamId) -> &mut Superblocks {
        let place = self.arenas.iter().position(|(owner, _)| *owner == stream);
        let place = place.unwrap_or_else(|| {
            self.arenas.push((stream, Superblocks::default()));
            self.arenas.len() - 1
        });
        &mut self.arenas[place].1
    }

    fn is_large(size: Bytes) -> bool {
        size > MIB
    }

    /// Address of a block, if there is one.
    fn find(&mut self, size: Bytes, stream: StreamId) -> Option<u64> {
        if Self::is_large(size) {
            let (start, mut superblock) = self.global.acquire(size)?;
            let at = superblock.first_fit(size);
            self.global.insert(start, superblock);
            return at;
        }
        if let Some(at) = self.arena(stream).first_fit(size) {
            return Some(at);
        }
        let (start, mut superblock) = self.global.acquire(size)?;
        let at = superblock.first_fit(size);
        self.arena(stream).insert(start, superblock);
        at
    }

    /// All superblocks of the arenas go back to the global one.
    fn defragment(&mut self, device: &mut dyn Device) {
        device.synchronize();
        self.defragmentations += 1;
        let Self { arenas, global, .. } = self;
        for (_, arena) in arenas {
            arena.drain().for_each(|(start, superblock)| global.coalesce(start, superblock));
        }
    }

    /// A free block goes back to where it is from. Where that is not the stream's own arena, the stream has to be done.
    fn put(&mut self, device: &mut dyn Device, (at, size): (u64, Bytes), stream: StreamId) {
        if Self::is_large(size) {
            device.synchronize();
            if self.global.give(at, size, true) {
                return;
            }
        }
        if self.arena(stream).give(at, size, false) {
            return;
        }
        device.synchronize();
        let was_theirs = self.arenas.iter_mut().any(|(_, arena)| arena.give(at, size, false));
        let is_known = was_theirs || self.global.give(at, size, true);
        assert!(is_known, "{at:#x} is in no superblock");
    }

    fn mapped(&self) -> Bytes {
        self.mappings.last().map_or(0, |last| last.offset + last.size)
    }

    /// Maps memory up to an address.
    fn map_up_to(&mut self, device: &mut dyn Device, range: Range, end: u64) -> Result<()> {
        let (offset, needed) = (self.mapped(), round_up(end - range.at.0, GRANULE));
        if needed <= offset {
            return Ok(());
        }
        let size = needed - offset;
        let handle = device.create(size)?;
        let mapped = device.map_for_use(range.at.offset(offset), &[handle], size);
        mapped.inspect_err(|_| device.release(handle))?;
        self.mappings.push(Mapping { handle, offset, size });
        Ok(())
    }

    /// The end of what is taken, from the beginning of the range.
    fn used(&self, range: Range) -> Bytes {
        let arenas = self.arenas.iter().map(|(_, arena)| arena);
        let ends = arenas.chain([&self.global]).filter_map(Superblocks::used_end);
        ends.max().map_or(0, |end| end - range.at.0)
    }
}

impl Policy for RmmArena {
    fn round(&self, size: Bytes) -> Bytes {
        round_up(size, UNIT)
    }

    fn take(&mut self, device: &mut dyn Device, size: Bytes, stream: StreamId) -> Result<Place> {
        let range = self.range(device)?;
        let mut found = self.find(size, stream);
        if found.is_none() {
            self.defragment(device);
            found = self.find(size, stream);
        }
        let free = range.size - self.mapped();
        let at = found.ok_or(DeviceError::OutOfMemory { requested: size, free })?;
        if let Err(error) = self.map_up_to(device, range, at + size) {
            self.put(device, (at, size), stream);
            return Err(error);
        }
        Ok(Place { at: DevicePtr(at), size })
    }

    fn give(&mut self, device: &mut dyn Device, place: Place, stream: StreamId) {
        self.put(device, (place.at.0, place.size), stream);
    }

    fn trim(&mut self, device: &mut dyn Device) {
        let Some(range) = self.range else { return };
        self.defragment(device);
        let used = self.used(range);
        while let Some(top) = self.mappings.pop_if(|top| top.offset >= used) {
            device.unmap(range.at.offset(top.offset), top.size);
            device.release(top.handle);
        }
        if used == 0 {
            device.unreserve(range.at, range.size);
            self.global.clear();
            self.range = None;
        }
    }

    fn held(&self) -> Bytes {
        self.mapped()
    }

    fn segment(&self, at: DevicePtr) -> DevicePtr {
        self.range.map_or(at, |range| range.at)
    }

    fn free(&self) -> Vec<BlockView> {
        let end = self.range.map_or(0, |range| range.at.0 + self.mapped());
        let mut views = Vec::new();
        let arenas = self.arenas.iter().map(|(stream, arena)| (*stream, arena));
        for (stream, arena) in arenas.chain([(StreamId(0), &self.global)]) {
            for (at, size) in arena.free().filter(|&(at, _)| at < end) {
                views.push(BlockView::free(DevicePtr(at), size.min(end - at), stream));
            }
        }
        views
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("defragmentations", self.defragmentations)]
    }
}
