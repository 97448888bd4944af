//! PyTorch's snapshot, written: the counterpart of [`super::torch`].
//!
//! The keys are those of PyTorch 2.11, with `pool_id` in each entry as from 2.12 on if there are private pools, so that
//! nothing must be inferred. Every call stack and every frame is written once, and shared from then on.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::pickle::{Pickler, Value};
use super::stack_table::NOT_COMPILED;
use super::{Action, BlockState, Entry, Frame, Records, Segment, StreamId, Writer};
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::units::{Bytes, MIB};

/// Writes what is known of one device as a pickled snapshot, which [`load`](super::load) and PyTorch's viewer read.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_snapshot(records: &Records, out: impl Write) -> io::Result<()> {
    let mut pickle = Pickler::new(out)?;
    let mut stacks = Shared::default();
    pickle.dict(|pickle| {
        pickle.key("segments")?;
        pickle.list(&records.segments, |pickle, segment| {
            write_segment(pickle, records, segment, &mut stacks)
        })?;
        pickle.key("device_traces")?;
        pickle.list(0..=records.device, |pickle, device| {
            let entries: &[Entry] = if device == records.device { &records.entries } else { &[] };
            pickle.list(entries, |pickle, entry| write_entry(pickle, records, entry, &mut stacks))
        })?;
        pickle.key("allocator_settings")?;
        let conf = records.settings.clone().unwrap_or_default();
        write_settings(pickle, &conf, records.written_by)?;
        records.marks.keys().try_for_each(|key| pickle.item(key, 1_u64))?;
        pickle.key("external_annotations")?;
        pickle.list(&records.annotations, |pickle, annotation| {
            pickle.dict(|pickle| {
                pickle.item(
                    "stage",
                    Value::Text(if annotation.is_start { "START" } else { "END" }),
                )?;
                pickle.item("name", Value::Text(&annotation.name))?;
                pickle.item("device", u64::from(records.device))?;
                pickle.item("time_us", annotation.time_us)
            })
        })
    })?;
    pickle.finish()
}

fn write_segment<W: Write>(
    pickle: &mut Pickler<W>,
    records: &Records,
    segment: &Segment,
    stacks: &mut Shared,
) -> io::Result<()> {
    let sum = |states: &[BlockState], bytes: fn(&super::SegmentBlock) -> Bytes| -> Bytes {
        segment.blocks.iter().filter(|block| states.contains(&block.state)).map(bytes).sum()
    };
    let active = [BlockState::Allocated, BlockState::PendingFree];
    pickle.dict(|pickle| {
        pickle.item("device", u64::from(records.device))?;
        pickle.item("address", segment.address)?;
        pickle.item("total_size", segment.size)?;
        pickle.item("allocated_size", sum(&active[..1], |block| block.size))?;
        pickle.item("active_size", sum(&active, |block| block.size))?;
        pickle.item("requested_size", sum(&active, |block| block.requested))?;
        pickle.item("stream", stream(records, segment.stream))?;
        let kind = if segment.is_small { "small" } else { "large" };
        pickle.item("segment_type", Value::Text(kind))?;
        pickle.item("segment_pool_id", pool(records, segment.pool.0))?;
        pickle.item("is_expandable", Value::Bool(segment.is_expandable))?;
        stacks.frames(pickle, records, Entry::NO_STACK)?;
        pickle.key("blocks")?;
        pickle.list(&segment.blocks, |pickle, block| {
            pickle.dict(|pickle| {
                pickle.item("address", block.address)?;
                pickle.item("size", block.size)?;
                pickle.item("requested_size", block.requested)?;
                pickle.item("state", Value::Text(state(block.state)))?;
                stacks.frames(pickle, records, live_stack(records, block.address))
            })
        })
    })
}

fn write_entry<W: Write>(
    pickle: &mut Pickler<W>,
    records: &Records,
    entry: &Entry,
    stacks: &mut Shared,
) -> io::Result<()> {
    let stack = records.stacks.get(entry.stack);
    let context = stack.and_then(|stack| stack.compile_context.as_deref());
    let metadata = stack.and_then(|stack| stack.user_metadata.as_deref());
    let place = if entry.action == Action::Oom { "device_free" } else { "addr" };
    pickle.dict(|pickle| {
        pickle.item("action", Value::Text(entry.action.name()))?;
        pickle.item(place, entry.addr)?;
        pickle.item("size", entry.size)?;
        pickle.item("stream", stream(records, entry.stream))?;
        pickle.item("time_us", entry.time_us)?;
        pickle.item("compile_context", Value::Text(context.unwrap_or(NOT_COMPILED)))?;
        pickle.item("user_metadata", Value::Text(metadata.unwrap_or_default()))?;
        if stack.is_some_and(|stack| !stack.frames.is_empty()) {
            stacks.frames(pickle, records, entry.stack)?;
        }
        match records.has_pools {
            true => pickle.item("pool_id", pool(records, entry.pool.0)),
            false => Ok(()),
        }
    })
}

fn write_settings<W: Write>(
    pickle: &mut Pickler<W>,
    conf: &AllocConf,
    writer: Option<Writer>,
) -> io::Result<()> {
    pickle.dict(|pickle| {
        if let Some(writer) = writer {
            pickle.item("torch_version", Value::Text(&writer.taken().to_string()))?;
        }
        pickle.item("PYTORCH_CUDA_ALLOC_CONF", Value::Text(&only_in_text(conf)))?;
        let limit = conf.max_split_size.map_or(-1, i128::from);
        pickle.item("max_split_size", Value::Int(limit))?;
        let threshold = Value::Float(conf.garbage_collection_threshold);
        pickle.item("garbage_collection_threshold", threshold)?;
        pickle.item("expandable_segments", Value::Bool(conf.expandable_segments))?;
        pickle.item("pinned_num_register_threads", 1)?;
        pickle.item("release_lock_on_cudamalloc", Value::Bool(false))?;
        pickle.item("pinned_use_cuda_host_register", Value::Bool(false))?;
        pickle.item("graph_capture_record_stream_reuse", Value::Bool(false))?;
        pickle.key("roundup_power2_divisions")?;
        pickle.dict(|pickle| {
            conf.roundup_power2_divisions.iter().enumerate().try_for_each(|(slot, &divisions)| {
                pickle.item(&(1_u64 << slot).to_string(), u64::from(divisions))
            })
        })
    })
}

/// What only the configuration text tells: the dict has no fields for it.
pub(super) fn only_in_text(conf: &AllocConf) -> String {
    let default = AllocConf::default();
    let mut parts = Vec::new();
    if conf.large_segment_size != default.large_segment_size {
        parts.push(format!("large_segment_size_mb:{}", conf.large_segment_size / MIB));
    }
    if conf.max_non_split_rounding != conf.large_segment_size {
        parts.push(format!("max_non_split_rounding_mb:{}", conf.max_non_split_rounding / MIB));
    }
    if conf.expandable_segments {
        parts.push("expandable_segments:True".to_owned());
    }
    if conf.throw_on_oom {
        parts.push("throw_on_cudamalloc_oom:True".to_owned());
    }
    if let Some(reserve) = conf.expandable_reserve {
        parts.push(format!("expandable_segments_reserve:{reserve}"));
    }
    parts.join(",")
}

/// The stack of the block in use at `address`.
fn live_stack(records: &Records, address: u64) -> u32 {
    let place = records.live_stacks.binary_search_by_key(&address, |&(at, _)| at);
    place.map_or(Entry::NO_STACK, |place| records.live_stacks[place].1)
}

/// What was written already and can be referred to: lists of frames by the number of their stack, and frames.
#[derive(Default)]
struct Shared {
    lists: FxHashMap<u32, u32>,
    frames: FxHashMap<u32, u32>,
}

impl Shared {
    /// Writes `frames` of a stack.
    fn frames<W: Write>(
        &mut self,
        pickle: &mut Pickler<W>,
        records: &Records,
        stack: u32,
    ) -> io::Result<()> {
        pickle.key("frames")?;
        if let Some(&number) = self.lists.get(&stack) {
            return pickle.recall(number);
        }
        let frames = records.stacks.get(stack).map_or(&[][..], |stack| &stack.frames);
        pickle.list(frames, |pickle, &frame| match self.frames.get(&frame) {
            Some(&number) => pickle.recall(number),
            None => {
                write_frame(pickle, &records.stacks.frames[frame as usize])?;
                self.frames.insert(frame, pickle.remember()?);
                Ok(())
            }
        })?;
        // Python would see one empty list changed everywhere.
        if !frames.is_empty() {
            self.lists.insert(stack, pickle.remember()?);
        }
        Ok(())
    }
}

fn write_frame<W: Write>(pickle: &mut Pickler<W>, frame: &Frame) -> io::Result<()> {
    pickle.dict(|pickle| {
        pickle.item("name", Value::Text(&frame.function))?;
        pickle.item("filename", Value::Text(&frame.file))?;
        pickle.item("line", frame.line)
    })
}

fn stream(records: &Records, stream: StreamId) -> u64 {
    records.streams.get(usize::from(stream.0)).copied().unwrap_or(stream.0.into())
}

/// PyTorch's id of a pool. One that was recognised by its behaviour alone has none; it gets its number.
fn pool(records: &Records, pool: u8) -> Value<'static> {
    let known = records.pools.get(usize::from(pool)).copied();
    let (left, right) = known.unwrap_or((0, pool.into()));
    Value::Pair(left, right)
}

fn state(state: BlockState) -> &'static str {
    match state {
        BlockState::Allocated => "active_allocated",
        BlockState::PendingFree => "active_pending_free",
        BlockState::Inactive => "inactive",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LoadOptions, load_bytes};
    use super::*;
    use crate::{Annotation, PoolId, SegmentBlock, Stack, Stacks};

    fn stacks() -> Stacks {
        let frame = |file: &str, line| Frame { file: file.into(), line, function: "f".into() };
        let stack = |frames: &[u32]| Stack { frames: frames.into(), ..Stack::default() };
        let metadata = Some("epoch 3".into());
        let labelled = Stack { user_metadata: metadata, ..stack(&[0, 1]) };
        Stacks {
            frames: vec![frame("a.py", 3), frame("b.py", 9)],
            stacks: vec![labelled, stack(&[1])],
        }
    }

    fn records() -> Records {
        let entry = |action, addr, size, stream, pool| Entry {
            addr,
            size,
            time_us: 1_795_258_001_523_094,
            stack: if action == Action::Alloc { 0 } else { Entry::NO_STACK },
            stream: StreamId(stream),
            action,
            pool: PoolId(pool),
        };
        let far = 0x7fff_ffff_fe00;
        let block =
            |address, size, requested, state| SegmentBlock { address, size, requested, state };
        Records {
            device: 1,
            entries: vec![
                entry(Action::SegmentAlloc, far, 2 * MIB, 1, 1),
                entry(Action::Alloc, far, 300, 1, 1),
                entry(Action::FreeRequested, far, 300, 1, 1),
                entry(Action::Oom, 7, 1 << 40, 0, 0),
            ],
            segments: vec![Segment {
                address: far,
                size: 2 * MIB,
                stream: StreamId(1),
                pool: PoolId(1),
                is_small: true,
                is_expandable: false,
                blocks: vec![
                    block(far, 512, 300, BlockState::PendingFree),
                    block(far + 512, 2 * MIB - 512, 0, BlockState::Inactive),
                ],
            }],
            has_segments: true,
            has_pools: true,
            annotations: vec![Annotation {
                name: "Optimizer.step#AdamW.step ".repeat(20),
                is_start: true,
                time_us: 3,
            }],
            settings: Some(AllocConf {
                max_split_size: Some(128 * MIB),
                garbage_collection_threshold: 0.6,
                ..AllocConf::default()
            }),
            streams: vec![0, u64::MAX],
            pools: vec![(0, 0), (0, 3)],
            stacks: stacks(),
            live_stacks: vec![(far, 1)],
            ..Records::default()
        }
    }

    #[test]
    fn our_reader_finds_what_was_written() {
        let written = records();
        let mut bytes = Vec::new();
        write_snapshot(&written, &mut bytes).unwrap();
        let options = LoadOptions { stacks: true, ..LoadOptions::default() };
        let all = load_bytes(&bytes, &options).unwrap();
        let read = all.into_iter().find(|records| records.device == 1).unwrap();
        assert_eq!(read.entries, written.entries);
        assert_eq!(read.segments, written.segments);
        assert_eq!((read.stacks, read.live_stacks), (written.stacks, written.live_stacks));
        assert_eq!(read.annotations, written.annotations);
        assert_eq!(read.settings, written.settings);
        assert_eq!((read.streams, read.pools), (written.streams, written.pools));
        assert!(read.has_pools && read.warnings.is_empty());
    }
}
