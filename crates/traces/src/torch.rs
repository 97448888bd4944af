//! PyTorch's snapshot: from its parts, as a pickle or JSON reader finds them, to one [`Records`] per device.
//!
//! ```text
//!   {"segments": [...],              every device's, with a device index each
//!    "device_traces": [[...], ...],  one list for each device; the place in the list is the device index
//!    "external_annotations": [...],  with a device index each
//!    "allocator_settings": {...}}    one for all
//! ```
//!
//! `memory_snapshot()` returns the bare list of segments. What versions of PyTorch do differently (missing `time_us`
//! before 2.2, missing block addresses before 2.1, `pool_id` from 2.12 on) is settled here. So is the action `free` of
//! other tools, which stands for `free_requested` and `free_completed` side by side.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use super::both::halves;
use super::error::excerpt;
use super::numbers::Numbers;
use super::plausible::{Extent, plausible};
use super::room::no_room;
use super::settings::RawSettings;
use super::stack_table::StackTable;
use super::writer::{Evidence, Marks, Writer, is_known_key};
use super::{
    Action, Annotation, BlockState, Entry, PoolId, Position, Records, Result, Segment,
    SegmentBlock, StreamId, Total, TraceError,
};
use super::{Warning, WarningKind};
use gmlake_core::alloc_conf::TorchVersion;
use gmlake_core::units::Bytes;

/// The key that this library's own snapshots have in addition to PyTorch's. What they hold is not PyTorch's doing, so
/// that its segments say nothing about what PyTorch would have decided.
pub(super) const FOREIGN: &str = "gmlake";

/// The `action` of a trace entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RawAction {
    Known(Action),
    /// A free whose completion is not recorded apart.
    Free,
    #[default]
    Unknown,
}

impl RawAction {
    #[inline]
    pub(super) fn from_name(name: &[u8]) -> Self {
        match name {
            b"alloc" => Self::Known(Action::Alloc),
            b"free_requested" => Self::Known(Action::FreeRequested),
            b"free_completed" => Self::Known(Action::FreeCompleted),
            b"free" => Self::Free,
            _ => Action::from_name(name).map_or(Self::Unknown, Self::Known),
        }
    }
}

/// A trace entry with provisional numbers for stream, pool and stack.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawEntry {
    pub(super) addr: u64,
    pub(super) size: u64,
    pub(super) time_us: u64,
    pub(super) stack: u32,
    pub(super) stream: u16,
    pub(super) pool: u8,
    pub(super) action: RawAction,
}

const _: () = assert!(size_of::<RawEntry>() == 32);

impl RawEntry {
    /// The entry, of this kind.
    #[inline]
    fn with(&self, action: Action) -> Entry {
        let RawEntry { addr, size, time_us, stack, stream, pool, .. } = *self;
        let (stream, pool) = (StreamId(stream), PoolId(pool));
        let time_us = time_us.min(Entry::LATEST_US);
        Entry { addr, size, time_us, stack, stream, action, pool }
    }

    /// Adds its size, and its place if it is one of memory from the driver.
    #[inline]
    fn measure(&self, extent: &mut Extent) {
        extent.add(self.size);
        if matches!(self.action, RawAction::Known(action) if action.is_driver_call()) {
            extent.add_place(self.addr, self.size);
        }
    }
}

impl Default for RawEntry {
    fn default() -> Self {
        let (addr, size, time_us, stack) = (0, 0, 0, Entry::NO_STACK);
        Self { addr, size, time_us, stack, stream: 0, pool: 0, action: RawAction::Unknown }
    }
}

/// A segment as the file has it.
#[derive(Debug, Clone, Default)]
pub(super) struct RawSegment {
    pub(super) device: u32,
    pub(super) address: Option<u64>,
    pub(super) stream: u64,
    pub(super) pool: (u64, u64),
    pub(super) is_small: bool,
    pub(super) is_expandable: bool,
    pub(super) blocks: Vec<RawBlock>,
}

/// A block as the file has it; without an address it follows the one before.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawBlock {
    pub(super) address: Option<u64>,
    pub(super) size: u64,
    pub(super) requested: Option<u64>,
    pub(super) state: BlockState,
    /// Its call stack, as in [`RawEntry`].
    pub(super) stack: u32,
}

/// The state that PyTorch calls `name`.
pub(super) fn block_state(name: &[u8]) -> Option<BlockState> {
    match name {
        b"active_allocated" => Some(BlockState::Allocated),
        // The second is the name in PyTorch's documentation.
        b"active_pending_free" | b"active_awaiting_free" => Some(BlockState::PendingFree),
        b"inactive" => Some(BlockState::Inactive),
        _ => None,
    }
}

/// What a segment or an annotation takes besides its parts, in bytes.
const HEAD: Bytes = 64;

/// What a device takes while it is finished, in bytes.
const DEVICE: Bytes = 64 << 10;

/// A snapshot under construction.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) numbers: Numbers,
    pub(super) stacks: StackTable,
    pub(super) settings: Option<RawSettings>,
    /// Whether the file describes what was held in the end.
    pub(super) has_segments: bool,
    /// Whether pinned memory of the host is read, as device 0.
    pub(super) is_host: bool,
    /// Whether another allocator than PyTorch's was at work.
    pub(super) is_foreign: bool,
    pub(super) marks: Marks,
    /// What the keys tell of the PyTorch that wrote the file.
    pub(super) evidence: Evidence,
    /// The first device whose events are not all there, and what is missing, if the file was cut off.
    cut: Option<(u32, String)>,
    unknown_keys: BTreeSet<String>,
    version: Option<TorchVersion>,
    devices: BTreeMap<u32, Device>,
    /// The memory that may still be taken. Shared objects let a small pickle describe a huge document.
    room: Bytes,
    limit: Bytes,
    extent: Extent,
}

#[derive(Debug, Default)]
struct Device {
    records: Records,
    unknown_first: Option<(usize, String)>,
    /// Other kinds that we do not know.
    unknown_others: BTreeSet<String>,
}

/// Unknown names that are reported.
const NAMED: usize = 8;

impl Snapshot {
    /// An empty snapshot that may take `room` bytes of memory.
    pub(super) fn new(version: Option<TorchVersion>, room: Bytes) -> Self {
        Self::with_rest(version, room, room)
    }

    /// The same where only `room` of `limit` bytes are left.
    pub(super) fn with_rest(version: Option<TorchVersion>, room: Bytes, limit: Bytes) -> Self {
        Self { version, room, limit, ..Self::default() }
    }

    /// Learns that the file has this key; whether it is one of ours, which say how it came about.
    pub(super) fn mark(&mut self, key: &str) -> bool {
        self.is_foreign |= key == FOREIGN;
        self.marks.set(key) || key == FOREIGN
    }

    /// Adds the next entry of a device's history.
    #[inline]
    pub(super) fn entry(&mut self, device: u32, raw: &RawEntry) -> Result<()> {
        self.spend(size_of::<Entry>() as Bytes)?;
        raw.measure(&mut self.extent);
        self.extent.check()?;
        let records = &mut self.device(device)?.records;
        match raw.action {
            RawAction::Known(action) => records.entries.push(raw.with(action)),
            RawAction::Free => {
                records.entries.push(raw.with(Action::FreeRequested));
                records.entries.push(raw.with(Action::FreeCompleted));
            }
            RawAction::Unknown => {
                let at = records.entries.len();
                self.unknown(device, at, b"?")?;
            }
        }
        Ok(())
    }

    /// Notes PyTorch's totals after the last entry of a device.
    pub(super) fn total(&mut self, device: u32, allocated: Bytes, reserved: Bytes) -> Result<()> {
        self.spend(size_of::<Total>() as Bytes)?;
        plausible(allocated.max(reserved))?;
        let records = &mut self.device(device)?.records;
        let entry = records.entries.len().saturating_sub(1);
        records.totals.push(Total { entry, allocated, reserved });
        Ok(())
    }

    /// Makes these the entries of a device: all of them, of known kinds. They stay where they are in memory. Fails if
    /// there are too many devices.
    pub(super) fn entries(
        &mut self,
        device: u32,
        entries: Vec<RawEntry>,
        has_stacks: bool,
    ) -> Result<()> {
        let stack = |raw: &RawEntry| if has_stacks { raw.stack } else { Entry::NO_STACK };
        let known = |raw: RawEntry| match raw.action {
            RawAction::Known(action) => Entry { stack: stack(&raw), ..raw.with(action) },
            _ => unreachable!("entries of other kinds are added one by one"),
        };
        if !entries.is_empty() {
            let mut extent = self.extent;
            let entries = entries.into_iter().inspect(|raw| raw.measure(&mut extent));
            self.device(device)?.records.entries = entries.map(known).collect();
            self.extent = extent;
            extent.check()?;
        }
        Ok(())
    }

    /// How many entries a device has by now.
    pub(super) fn entries_of(&self, device: u32) -> usize {
        self.devices.get(&device).map_or(0, |device| device.records.entries.len())
    }

    /// Counts an entry of a kind that we do not know, which comes before entry number `at`.
    pub(super) fn unknown(&mut self, device: u32, at: usize, name: &[u8]) -> Result<()> {
        self.spend(8)?;
        let device = self.device(device)?;
        device.records.unknown_actions += 1;
        let name = excerpt(name);
        match &device.unknown_first {
            None => device.unknown_first = Some((at, name)),
            Some((_, first)) if *first == name || device.unknown_others.len() >= NAMED => {}
            Some(_) => drop(device.unknown_others.insert(name)),
        }
        Ok(())
    }

    /// Notes a key of the snapshot, or of its settings, if it is not one that we know.
    pub(super) fn key(&mut self, key: &str) {
        if !is_known_key(key) && self.unknown_keys.len() < NAMED {
            self.unknown_keys.insert(excerpt(key.as_bytes()));
        }
    }

    /// Adds a segment; `Err` says what is wrong with it.
    pub(super) fn segment(&mut self, raw: &RawSegment) -> Result<()> {
        self.spend(HEAD + (size_of::<SegmentBlock>() * raw.blocks.len()) as Bytes)?;
        let stream = StreamId(self.numbers.stream(raw.stream)?);
        let pool = PoolId(self.numbers.pool(raw.pool)?);
        let first = raw.blocks.first().and_then(|block| block.address);
        let address = raw.address.or(first).unwrap_or(0);
        let (blocks, live_stacks) = place_blocks(address, &raw.blocks)?;
        let size = blocks.iter().map(|block| block.size).sum();
        self.extent.add(size);
        self.extent.add_place(address, size);
        self.extent.check()?;
        let (is_small, is_expandable) = (raw.is_small, raw.is_expandable);
        let segment = Segment { address, size, stream, pool, is_small, is_expandable, blocks };
        let records = &mut self.device(raw.device)?.records;
        records.segments.push(segment);
        records.live_stacks.extend(live_stacks);
        Ok(())
    }

    /// Adds an annotation.
    pub(super) fn annotation(&mut self, device: u32, mut annotation: Annotation) -> Result<()> {
        annotation.time_us = annotation.time_us.min(Entry::LATEST_US);
        self.spend(HEAD + annotation.name.len() as Bytes)?;
        self.device(device)?.records.annotations.push(annotation);
        Ok(())
    }

    /// The file was cut off: from this device on, events are missing.
    pub(super) fn cut(&mut self, from_device: u32, what: String) {
        self.cut = Some((from_device, what));
    }

    /// The file was cut off if this says what is missing of a file without devices.
    pub(super) fn cut_if(&mut self, what: Option<String>) {
        self.cut = what.map(|what| (0, what));
    }

    /// One record for every device that has entries or segments.
    pub(super) fn finish(mut self) -> Result<Vec<Records>> {
        let written_by = self.written_by();
        let version = self.version.or_else(|| Some(written_by?.taken())).unwrap_or_default();
        let (settings, warning) = match self.settings.take() {
            Some(raw) => raw.resolve(version),
            None => (None, None),
        };
        let mut out = Vec::new();
        for (index, device) in std::mem::take(&mut self.devices) {
            let Device { mut records, unknown_first, unknown_others } = device;
            if records.entries.is_empty() && records.segments.is_empty() {
                continue;
            }
            (records.device, records.has_segments) = (index, self.has_segments);
            records.is_foreign = self.is_foreign;
            if self.is_foreign {
                records.forget_end();
            }
            records.settings.clone_from(&settings);
            (records.written_by, records.marks) = (written_by, self.marks);
            records.warnings.extend(warning.clone());
            if let Some((at, name)) = unknown_first {
                let (kind, count) = (WarningKind::UnknownAction, records.unknown_actions);
                let others = unknown_others.iter().map(|name| format!("; also {name:?}"));
                let others: String = others.collect();
                let first = format!("{name:?} before entry {at}{others}");
                records.warnings.push(Warning { kind, count, first });
            }
            if !self.unknown_keys.is_empty() {
                let count = self.unknown_keys.len() as u64;
                let names: Vec<_> =
                    self.unknown_keys.iter().map(|key| format!("{key:?}")).collect();
                let (kind, first) = (WarningKind::UnknownKey, names.join(", "));
                records.warnings.push(Warning { kind, count, first });
            }
            records.annotations.sort_by_key(|annotation| annotation.time_us);
            records.segments.sort_by_key(|segment| segment.address);
            records.live_stacks.sort_unstable();
            if let Some((from, what)) = &self.cut {
                cut_off(&mut records, index >= *from, what);
            }
            self.renumber(&mut records);
            out.push(records);
        }
        Ok(out)
    }

    /// Who wrote the file, if it was PyTorch and the keys tell.
    fn written_by(&self) -> Option<Writer> {
        let mut evidence = self.evidence;
        evidence.has_entries = self.devices.values().any(|one| !one.records.entries.is_empty());
        evidence.has_labels = self.numbers.entries_have_labels;
        evidence.has_pools = self.numbers.entries_have_pools;
        evidence.writer().filter(|_| !self.is_foreign)
    }

    /// Gives streams, pools and stacks of one device their final numbers.
    fn renumber(&self, records: &mut Records) {
        let of_entries = halves(&mut records.entries, |_, part| used_by(part));
        let of_segments = records.segments.iter().map(|segment| (segment.stream, segment.pool));
        let (mut streams, mut pools) = (vec![false; 1 << 16], vec![false; 1 << 8]);
        for (stream, pool) in of_entries.into_iter().flatten().chain(of_segments) {
            streams[usize::from(stream.0)] = true;
            pools[usize::from(pool.0)] = true;
        }
        let (handles, stream_place) = self.numbers.sort_streams(&streams);
        let (ids, pool_place) = self.numbers.sort_pools(&pools);
        let renumber = |stream: &mut StreamId, pool: &mut PoolId| {
            stream.0 = stream_place[usize::from(stream.0)];
            pool.0 = pool_place[usize::from(pool.0)] as u8;
        };
        halves(&mut records.entries, |_, part| {
            part.iter_mut().for_each(|entry| renumber(&mut entry.stream, &mut entry.pool));
        });
        for segment in &mut records.segments {
            renumber(&mut segment.stream, &mut segment.pool);
        }
        (records.streams, records.pools) = (handles, ids);
        records.has_pools = self.numbers.entries_have_pools;
        let of_entries = records.entries.iter_mut().map(|entry| &mut entry.stack);
        let of_blocks = records.live_stacks.iter_mut().map(|(_, stack)| stack);
        records.stacks = self.stacks.renumber(of_entries.chain(of_blocks));
    }

    #[inline]
    fn device(&mut self, index: u32) -> Result<&mut Device> {
        match self.devices.entry(index) {
            Place::Occupied(known) => Ok(known.into_mut()),
            Place::Vacant(new) => {
                take(&mut self.room, DEVICE, self.limit)?;
                Ok(new.insert(Device::default()))
            }
        }
    }

    /// Takes `cost` bytes of memory.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64) -> Result<()> {
        take(&mut self.room, cost, self.limit)
    }
}

/// The streams and pools of some entries, each pair once.
fn used_by(entries: &[Entry]) -> FxHashSet<(StreamId, PoolId)> {
    let mut used = FxHashSet::default();
    let mut last = None;
    for entry in entries {
        let pair = (entry.stream, entry.pool);
        if last.replace(pair) != Some(pair) {
            used.insert(pair);
        }
    }
    used
}

/// Says of a device what a file that was cut off does not show of it.
fn cut_off(records: &mut Records, lacks_events: bool, what: &str) {
    let (kind, first) = (WarningKind::CutOff, what.to_owned());
    records.warnings.push(Warning { kind, count: 1, first });
    if !lacks_events {
        return;
    }
    records.cut_off = Some(what.to_owned());
    if !records.entries.is_empty() {
        // They tell of the end of the job, which is not where the entries end.
        records.segments.clear();
        records.live_stacks.clear();
        records.has_segments = false;
    }
}

fn take(room: &mut Bytes, cost: Bytes, limit: Bytes) -> Result<()> {
    *room = room.checked_sub(cost).ok_or_else(|| no_room(limit))?;
    Ok(())
}

type PlacedBlocks = (Vec<SegmentBlock>, Vec<(u64, u32)>);

/// Puts blocks at their addresses. Older files have none, so blocks follow each other; gaps, which other tools leave,
/// become free blocks. Returned with the address and stack of each block in use that has one.
fn place_blocks(start: u64, raw: &[RawBlock]) -> Result<PlacedBlocks> {
    let remedy = "a segment's blocks follow each other without overlap: record it again";
    let fail = |problem: String| TraceError::new(Position::File, problem, remedy);
    let (mut blocks, mut stacks) = (Vec::with_capacity(raw.len()), Vec::new());
    let mut end = start;
    for block in raw.iter().filter(|block| block.size > 0) {
        plausible(block.size)?;
        let address = block.address.unwrap_or(end);
        if address < end {
            return Err(fail(format!(
                "block at {address:#x} begins before the last one ends, {end:#x}"
            )));
        }
        if address > end {
            let (size, state) = (address - end, BlockState::Inactive);
            blocks.push(SegmentBlock { address: end, size, requested: 0, state });
        }
        let stop = address.checked_add(block.size);
        end = stop.ok_or_else(|| fail(format!("block at {address:#x} is {} bytes", block.size)))?;
        let fallback = if block.state == BlockState::Inactive { 0 } else { block.size };
        let (size, state) = (block.size, block.state);
        let requested = block.requested.filter(|&bytes| bytes > 0).unwrap_or(fallback);
        blocks.push(SegmentBlock { address, size, requested, state });
        if block.stack != Entry::NO_STACK && state != BlockState::Inactive {
            stacks.push((address, block.stack));
        }
    }
    Ok((blocks, stacks))
}
