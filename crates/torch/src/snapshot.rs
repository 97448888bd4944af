//! Snapshots of the plug-in, as the dictionary of `torch.cuda.memory._snapshot()`, in JSON.
//!
//! PyTorch's viewer and this library's readers take it (the viewer after pickling, which Python does in a line). The
//! `segments` are ours: contiguous ranges as the allocator sees them, a stitched tensor being one of its own. A key
//! more than PyTorch has, `gmlake`, says so.

use std::collections::BTreeMap;
use std::io::{BufWriter, Error, Write};
use std::ops::Deref;
use std::path::Path;

use serde_json::json;

use super::GpuAllocator;
use super::block::Owner;
use gmlake_allocators::allocator::{Allocator, BlockUse, BlockView};
use gmlake_core::program::{Action, Entry};

/// Writes to a temporary file, which then takes the name.
pub(super) fn write<A: Deref<Target = GpuAllocator>>(
    path: &Path,
    allocators: &[A],
) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = write_to(BufWriter::new(std::fs::File::create(&part)?), allocators);
    let outcome = written.and_then(|()| std::fs::rename(&part, path));
    if outcome.is_err() {
        // The failure itself is what the caller wants to hear of.
        let _ = std::fs::remove_file(&part);
    }
    outcome
}

fn write_to<A: Deref<Target = GpuAllocator>>(
    mut out: impl Write,
    allocators: &[A],
) -> Result<(), Error> {
    let about: Vec<_> = allocators
        .iter()
        .map(|allocator| {
            let dropped = allocator.journal.dropped();
            let (conf, stats) = (&allocator.conf.text, allocator.stats());
            json!({"conf": conf, "dropped_entries": dropped, "stats": stats})
        })
        .collect();
    write!(out, "{{\"gmlake\":")?;
    serde_json::to_writer(&mut out, &about)?;
    let settings = json!({"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": false});
    write!(out, ",\"allocator_settings\":{settings},\"external_annotations\":[],\"segments\":[")?;
    let mut separator = "";
    for allocator in allocators {
        for segment in allocator.segments() {
            write!(out, "{separator}\n{segment}")?;
            separator = ",";
        }
    }
    write!(out, "],\"device_traces\":[")?;
    let devices = allocators.iter().map(|allocator| allocator.gpu.index + 1).max().unwrap_or(0);
    for index in 0..devices {
        write!(out, "{}[", if index > 0 { "],\n" } else { "" })?;
        if let Some(allocator) = allocators.iter().find(|allocator| allocator.gpu.index == index) {
            write_trace(&mut out, allocator)?;
        }
    }
    write!(out, "{}]}}", if devices > 0 { "]" } else { "" })?;
    out.flush()
}

fn write_trace(out: &mut impl Write, allocator: &GpuAllocator) -> Result<(), Error> {
    let mut separator = "";
    for entry in allocator.journal.entries() {
        let Entry { addr, size, time_us, stream, action, pool, .. } = *entry;
        let (name, stream) = (action.name(), allocator.streams.handle(stream));
        let place = if action == Action::Oom { "device_free" } else { "addr" };
        let (high, low) = allocator.pool_id(usize::from(pool.0));
        write!(
            out,
            "{separator}\n{{\"action\":\"{name}\",\"{place}\":{addr},\"size\":{size},\"stream\":{stream},\
             \"time_us\":{time_us},\"pool_id\":[{high},{low}]}}"
        )?;
        separator = ",";
    }
    Ok(())
}

impl GpuAllocator {
    /// PyTorch's number of the pool that the journal calls `pool`; `(0, 0)` is the default one.
    fn pool_id(&self, pool: usize) -> (u64, u64) {
        let found = pool.checked_sub(1).and_then(|place| self.pools.at(place));
        found.map_or((0, pool as u64), |pool| pool.id)
    }

    /// What is held, as PyTorch's segments, in address order.
    fn segments(&self) -> Vec<serde_json::Value> {
        let served = self.served_by();
        let mut found: Vec<_> =
            served.flat_map(|(owner, allocator)| self.segments_of(owner, allocator)).collect();
        for (owner, pool) in self.pools.iter() {
            found.extend(self.segments_of(owner, pool.allocator.as_ref()));
        }
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, segment)| segment).collect()
    }

    fn segments_of(&self, owner: Owner, from: &dyn Allocator) -> Vec<(u64, serde_json::Value)> {
        let pool = match owner {
            Owner::Main | Owner::Arena(_) => (0, 0),
            Owner::Graph(place) => self.pool_id(place as usize + 1),
        };
        runs(from).into_iter().map(|run| (run[0].at.0, self.segment(&run, pool))).collect()
    }

    fn segment(&self, run: &[BlockView], pool: (u64, u64)) -> serde_json::Value {
        let sum = |wanted: &[BlockUse]| -> u64 {
            run.iter().filter(|view| wanted.contains(&view.state)).map(|view| view.size).sum()
        };
        let (total, active) = (
            run.iter().map(|view| view.size).sum::<u64>(),
            sum(&[BlockUse::Allocated, BlockUse::Pending]),
        );
        let blocks: Vec<_> = run.iter().map(block).collect();
        json!({
            "device": self.gpu.index,
            "address": run[0].at.0,
            "total_size": total,
            "allocated_size": sum(&[BlockUse::Allocated]),
            "active_size": active,
            "requested_size": run.iter().map(|view| view.requested).sum::<u64>(),
            "stream": self.streams.handle_or_default(run[0].stream),
            "segment_type": if total <= 2 << 20 { "small" } else { "large" },
            "segment_pool_id": [pool.0, pool.1],
            "is_expandable": false,
            "frames": [],
            "blocks": blocks,
        })
    }
}

fn block(view: &BlockView) -> serde_json::Value {
    let state = match view.state {
        BlockUse::Allocated => "active_allocated",
        BlockUse::Pending => "active_pending_free",
        BlockUse::Free | BlockUse::Alias => "inactive",
    };
    json!({
        "address": view.at.0,
        "size": view.size,
        "requested_size": view.requested,
        "state": state,
        "frames": [],
    })
}

/// The blocks of each segment in address order, cut where they are not contiguous. Aliases own no memory and are left
/// out.
pub(super) fn runs(from: &dyn Allocator) -> Vec<Vec<BlockView>> {
    let mut segments: BTreeMap<_, Vec<BlockView>> = BTreeMap::new();
    for view in from.blocks().into_iter().filter(|view| view.state != BlockUse::Alias) {
        segments.entry((view.segment, view.stream)).or_default().push(view);
    }
    let mut runs = Vec::new();
    for blocks in segments.into_values() {
        let follows = |a: &BlockView, b: &BlockView| a.at.offset(a.size) == b.at;
        runs.extend(blocks.chunk_by(follows).map(<[BlockView]>::to_vec));
    }
    runs
}
