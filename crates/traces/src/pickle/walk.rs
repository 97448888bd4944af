//! The walk: from the values of a finished pickle to the parts of a snapshot, by path.
//!
//! Only here does it matter where a value is: `device_traces[*][*]` are events, the same dict elsewhere is not. The
//! walk follows the paths that it knows, at most four levels deep, and so ends on any document, cyclic ones included.

use super::super::settings::{RawSettings, TEXT_KEYS};
use super::super::torch::{RawAction, RawBlock, RawSegment, Snapshot, block_state};
use super::super::{Annotation, Position, Result, TraceError};
use super::containers::Open;
use super::document::{Document, MAX_NAME, Place, REMEDY, position};
use super::stacks::StackNumbers;
use super::value::{Dict, Map, Value, text};
use gmlake_core::units::Grouped;

/// How pinned memory of the host gets into a snapshot.
pub const RECORD_HOST: &str = "record it with PyTorch 2.14 or later and \
    torch.cuda.memory._record_memory_history(record_pinned_host_memory=True)";
/// Keys of a dict that are looked at.
const MOST_KEYS: usize = 256;

impl Document<'_> {
    /// Hands every part of the document to `out`.
    pub(super) fn snapshot(&mut self, root: Value, out: &mut Snapshot) -> Result<()> {
        let place = Place::ROOT;
        let mut stacks = StackNumbers::default();
        if let Value::List(_) | Value::Tuple(_) = root {
            let first = self.list(root, &place)?.next();
            if first.is_some_and(|first| self.is_entry(first)) {
                // The list of one device's entries.
                return self.entries_of_one(root, &mut stacks, out);
            }
            return self.segments(root, &place, &mut stacks, out);
        }
        let map = self.map(root, &place)?;
        let [segments, traces] = match out.is_host {
            true => ["host_segments", "host_traces"],
            false => ["segments", "device_traces"],
        };
        let known = [segments, traces, "external_annotations", "allocator_settings"];
        let parts = known.map(|key| self.field(map, key));
        if parts[0].is_none() && parts[1].is_none() {
            if self.keys(map).any(|key| key.starts_with("allocated_bytes.")) {
                let problem = "is torch.cuda.memory_stats(), which has sums and no allocations";
                return Err(TraceError::new(Position::File, problem, REMEDY));
            }
            let problem = format!("holds neither {segments:?} nor {traces:?}");
            let remedy = if out.is_host { RECORD_HOST } else { REMEDY };
            return Err(TraceError::new(Position::File, problem, remedy));
        }
        let others: Vec<&str> = self.keys(map).filter(|key| !out.mark(key)).collect();
        if !out.is_foreign {
            others.into_iter().for_each(|key| out.key(key));
        }
        let [segments, traces, annotations, settings] = parts;
        if let Some(value) = traces {
            match out.is_host {
                true => self.entries_of_one(value, &mut stacks, out)?,
                false => self.device_traces(value, &place.key(known[1]), &mut stacks, out)?,
            }
        }
        if let Some(value) = segments {
            self.segments(value, &place.key(known[0]), &mut stacks, out)?;
        }
        out.evidence.has_host = self.field(map, "host_traces").is_some();
        out.evidence.has_annotations = annotations.is_some();
        if let Some(value) = annotations {
            self.annotations(value, &place.key(known[2]), out)?;
        }
        if let Some(value) = settings {
            out.settings = Some(self.settings(value, &place.key(known[3]), out)?);
        }
        Ok(())
    }

    /// Notes how far a document goes that was cut off.
    pub(super) fn note_the_end(&self, root: Value, open: &Open, out: &mut Snapshot) {
        let key = if out.is_host { "host_traces" } else { "device_traces" };
        let traces = self.map(root, &Place::ROOT).ok().and_then(|map| self.field(map, key));
        let Some(Value::List(list)) = traces else {
            out.cut(0, "the file ends before its events".to_owned());
            return;
        };
        let devices = match out.is_host {
            true => 1,
            false => self.heap.items(self.heap.sequences[list as usize]).count() as u32,
        };
        if !open.lists.contains(&list) {
            // Every event is there; the settings may not be.
            out.cut(devices, "the file ends behind its events".to_owned());
            return;
        }
        let last = devices.saturating_sub(1);
        let entry = Grouped(out.entries_of(last) as u64 + 1);
        out.cut(last, format!("the file ends in the middle of entry {entry} of device {last}"));
    }

    /// The snapshots in a document: those that it holds among other things, or else the root.
    pub(super) fn snapshots(&self, root: Value) -> Vec<Value> {
        let map = |value| match value {
            Value::Dict(dict) => match self.heap.dicts[dict as usize] {
                Dict::Map(map) => Some(self.heap.maps[map as usize]),
                _ => None,
            },
            _ => None,
        };
        let has = |map: Map, key| self.field(map, key).is_some();
        let is_snapshot = |&value: &Value| {
            map(value).is_some_and(|map| has(map, "segments") || has(map, "device_traces"))
        };
        let items = map(root).map(|map| map.items).or_else(|| self.sequence(root));
        let items = items.filter(|_| !is_snapshot(&root));
        let items = items.into_iter().flat_map(|items| self.heap.items(items));
        let found: Vec<Value> = items.filter(is_snapshot).collect();
        if found.is_empty() { vec![root] } else { found }
    }

    /// An entry that was not recognised by its keys: of an unknown kind, or wrong.
    #[cold]
    pub(super) fn odd_entry(
        &self,
        item: Value,
        (device, at): (u32, usize),
        place: &Place,
        out: &mut Snapshot,
    ) -> Result<()> {
        let map = self.map(item, place)?;
        let action = self.string(map, "action", place)?;
        let action = action.ok_or_else(|| self.wrong_at(place, map.at, "has no \"action\""))?;
        if RawAction::from_name(action) == RawAction::Unknown {
            return out.unknown(device, at, action);
        }
        let address = if action == b"oom" { "device_free" } else { "addr" };
        for key in [address, "size"] {
            let value = self.whole(map, key, place)?;
            value.ok_or_else(|| self.wrong_at(place, map.at, &format!("has no {key:?}")))?;
        }
        for key in ["stream", "time_us"] {
            self.whole(map, key, place)?;
        }
        Err(self.wrong_at(place, map.at, "has a \"frames\" or \"pool_id\" of the wrong kind"))
    }

    fn segments(
        &self,
        value: Value,
        place: &Place,
        stacks: &mut StackNumbers,
        out: &mut Snapshot,
    ) -> Result<()> {
        out.has_segments = true;
        for (index, item) in self.list(value, place)?.enumerate() {
            let place = place.index(index);
            let map = self.map(item, &place)?;
            let pool = self.field(map, "segment_pool_id");
            let pool = pool.map_or(Some((0, 0)), |pool| self.heap.pair(pool));
            let device = match out.is_host {
                true => None, // it says -1
                false => self.whole(map, "device", &place)?,
            };
            let device = device.unwrap_or(0);
            let raw = RawSegment {
                device: u32::try_from(device)
                    .map_err(|_| self.wrong(&place, "has an absurd device"))?,
                address: self.whole(map, "address", &place)?,
                stream: self.whole(map, "stream", &place)?.unwrap_or(0),
                pool: pool.ok_or_else(|| {
                    self.wrong_at(&place, map.at, "has a pool id that is no pair")
                })?,
                is_small: self.string(map, "segment_type", &place)? == Some(b"small"),
                is_expandable: self.field(map, "is_expandable") == Some(Value::Bool(true)),
                blocks: self.blocks(map, &place, stacks, out)?,
            };
            let placed = out.segment(&raw);
            placed.map_err(|error| TraceError { position: position(&place, map.at), ..error })?;
        }
        Ok(())
    }

    fn blocks(
        &self,
        segment: Map,
        place: &Place,
        stacks: &mut StackNumbers,
        out: &mut Snapshot,
    ) -> Result<Vec<RawBlock>> {
        let place = place.key("blocks");
        let Some(value) = self.field(segment, "blocks") else {
            return Err(self.wrong_at(&place, segment.at, "is missing"));
        };
        let mut blocks = Vec::new();
        for (index, item) in self.list(value, &place)?.enumerate() {
            // Paid for at once: a shared list of blocks must not fill the memory before it is added up.
            out.spend(size_of::<RawBlock>() as u64)?;
            let place = place.index(index);
            let map = self.map(item, &place)?;
            let size = self.whole(map, "size", &place)?;
            let state = self.string(map, "state", &place)?.and_then(block_state);
            blocks.push(RawBlock {
                address: self.whole(map, "address", &place)?,
                size: size.ok_or_else(|| self.wrong_at(&place, map.at, "has no \"size\""))?,
                state: state
                    .ok_or_else(|| self.wrong_at(&place, map.at, "has no state that we know"))?,
                requested: match self.whole(map, "requested_size", &place)? {
                    None => self
                        .latest_of_history(map)
                        .and_then(|latest| self.field(latest, "real_size")?.as_u64()),
                    requested => requested,
                },
                stack: self.block_stack(map, stacks, &place, out)?,
            });
        }
        Ok(blocks)
    }

    /// PyTorch 2.0 kept the requested size and the stack of a block in the first item of its `history`.
    pub(super) fn latest_of_history(&self, block: Map) -> Option<Map> {
        let history = self.sequence(self.field(block, "history")?)?;
        self.map(self.heap.items(history).next()?, &Place::ROOT).ok()
    }

    fn annotations(&self, value: Value, place: &Place, out: &mut Snapshot) -> Result<()> {
        for (index, item) in self.list(value, place)?.enumerate() {
            let place = place.index(index);
            let map = self.map(item, &place)?;
            let name = self.string(map, "name", &place)?.unwrap_or_default();
            let stage = self.string(map, "stage", &place)?.unwrap_or_default();
            let time_us = self.whole(map, "time_us", &place)?.unwrap_or(0);
            // An annotation outside any device has -1 here; it concerns none.
            let device = self.field(map, "device").and_then(Value::as_u64);
            let Some(device) = device.and_then(|device| u32::try_from(device).ok()) else {
                continue;
            };
            let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]).into_owned();
            let is_start = stage == b"START";
            out.annotation(device, Annotation { name, is_start, time_us })?;
        }
        Ok(())
    }

    fn settings(&self, value: Value, place: &Place, out: &mut Snapshot) -> Result<RawSettings> {
        if let Some(conf) = text(self.bytes, value) {
            let text = Some(String::from_utf8_lossy(conf).into_owned());
            return Ok(RawSettings { text, ..RawSettings::default() });
        }
        let map = self.map(value, place)?;
        for key in self.keys(map) {
            out.evidence.setting(key);
            out.key(key);
        }
        let version = self.field(map, "torch_version").and_then(|value| text(self.bytes, value));
        let version = version.and_then(|version| std::str::from_utf8(version).ok());
        out.evidence.version = version.and_then(|version| version.parse().ok());
        let text = TEXT_KEYS.iter().find_map(|key| text(self.bytes, self.field(map, key)?));
        let divisions = self.field(map, "roundup_power2_divisions");
        Ok(RawSettings {
            text: text.map(|text| String::from_utf8_lossy(text).into_owned()),
            max_split_size: match self.field(map, "max_split_size") {
                Some(Value::Int(limit)) => Some(limit),
                Some(Value::Unsigned(_)) => Some(-1),
                _ => None,
            },
            garbage_collection_threshold: match self.field(map, "garbage_collection_threshold") {
                Some(Value::Float(share)) if share.is_finite() => Some(share),
                _ => None,
            },
            expandable_segments: match self.field(map, "expandable_segments") {
                Some(Value::Bool(expandable)) => Some(expandable),
                _ => None,
            },
            pinned: ["max_round_threshold", "max_cached_size"]
                .map(|key| self.field(map, key)?.as_u64()),
            roundup_power2_divisions: divisions
                .map(|value| self.divisions(value))
                .unwrap_or_default(),
        })
    }

    /// The first keys of a dict that are texts.
    fn keys(&self, map: Map) -> impl Iterator<Item = &str> {
        let keys = self.heap.items(map.items).step_by(2).take(MOST_KEYS);
        keys.filter_map(|key| std::str::from_utf8(text(self.bytes, key)?).ok())
    }

    fn divisions(&self, value: Value) -> Vec<(u64, u64)> {
        let Ok(map) = self.map(value, &Place::ROOT) else { return Vec::new() };
        let items: Vec<Value> = self.heap.items(map.items).take(64).collect();
        let pair = |pair: &[Value]| {
            let key = std::str::from_utf8(text(self.bytes, pair[0])?).ok()?;
            Some((key.parse().ok()?, pair[1].as_u64()?))
        };
        items.chunks_exact(2).filter_map(pair).collect()
    }
}
