//! The parts of a snapshot in JSON (entries, segments, annotations, settings) as they are read one by one.
//!
//! ```text
//!   json        one document, the snapshot          ─┐
//!   json_lines  a document for each part of one     ─┴─▶ Reader ──▶ Snapshot
//! ```

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::options::LoadOptions;
use super::settings::RawSettings;
use super::stack_table::StackTable;
use super::torch::{RawAction, RawBlock, RawEntry, RawSegment, Snapshot, block_state};
use super::whole::{Address, Whole};
use super::{Annotation, Entry, Position, TraceError};
use gmlake_core::reader_error;
use gmlake_core::units::{Bytes, Grouped};

/// A frame: a dict, or one text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a frame is a dict or a text")]
enum JsonFrame<'a> {
    Parts {
        #[serde(borrow)]
        name: Option<Cow<'a, str>>,
        #[serde(borrow)]
        filename: Option<Cow<'a, str>>,
        line: Option<u64>,
    },
    Text(#[serde(borrow)] Cow<'a, str>),
}

impl JsonFrame<'_> {
    /// The number of the frame in `table`.
    fn number(&self, table: &mut StackTable) -> u32 {
        match self {
            Self::Text(text) => table.frame_of_text(text),
            Self::Parts { name, filename, line } => {
                let part =
                    |part: &Option<Cow<str>>| part.clone().unwrap_or("?".into()).into_owned();
                table.frame(&part(filename), line.unwrap_or(0), &part(name))
            }
        }
    }
}

/// What the reader says about `bytes`, as an error of ours. `expected` says what the file should be.
pub(super) fn explain(bytes: &[u8], error: &serde_json::Error, expected: &str) -> TraceError {
    let position = Position::Column(error.line() as u64, error.column() as u64);
    let problem = reader_error::json(error);
    // Python writes numbers that JSON does not have.
    let line = bytes.split(|&b| b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let at = error.column().saturating_sub(2).min(line.len());
    let near = &line[at..line.len().min(at + 3)];
    if error.is_syntax() && near.iter().any(|b| b"NI".contains(b)) {
        let remedy = "write the file without them (json.dump(..., allow_nan=False) finds them)";
        return TraceError::new(position, "NaN and Infinity are no JSON", remedy);
    }
    let remedy = match error.is_eof() {
        true => "the file is cut off: copy it again, or record it again",
        false => expected,
    };
    TraceError::new(position, problem, remedy)
}

/// A document half read.
pub(super) struct Reader<'de> {
    pub(super) snapshot: Snapshot,
    /// The number of each list of frames by its text in the file, if stacks are wanted.
    stacks: Option<FxHashMap<&'de str, u32>>,
    pub(super) progress: Progress,
}

/// How far a document is read.
#[derive(Clone, Copy)]
pub(super) enum Progress {
    Before,
    Entries(u32),
    Behind(u32),
}

#[derive(Deserialize)]
pub(super) struct JsonEntry<'a> {
    #[serde(borrow)]
    action: Cow<'a, str>,
    addr: Option<Address>,
    device_free: Option<Whole>,
    size: Option<Whole>,
    stream: Option<Whole>,
    time_us: Option<Whole>,
    pool_id: Option<(Whole, Whole)>,
    #[serde(borrow)]
    compile_context: Option<Cow<'a, str>>,
    #[serde(borrow)]
    user_metadata: Option<Cow<'a, str>>,
    #[serde(borrow)]
    frames: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct JsonSegment<'a> {
    /// -1 is the host.
    device: Option<Address>,
    address: Option<Address>,
    stream: Option<Whole>,
    segment_pool_id: Option<(Whole, Whole)>,
    #[serde(borrow)]
    segment_type: Option<Cow<'a, str>>,
    is_expandable: Option<bool>,
    #[serde(borrow)]
    blocks: Vec<JsonBlock<'a>>,
}

#[derive(Deserialize)]
struct JsonBlock<'a> {
    address: Option<Address>,
    size: Whole,
    requested_size: Option<Whole>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    #[serde(borrow)]
    frames: Option<&'a RawValue>,
    #[serde(borrow)]
    history: Option<Vec<JsonHistory<'a>>>,
}

/// What PyTorch 2.0 noted of the requests that had a block, the newest first.
#[derive(Deserialize)]
struct JsonHistory<'a> {
    real_size: Option<Whole>,
    #[serde(borrow)]
    frames: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct JsonAnnotation<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    stage: Cow<'a, str>,
    #[serde(default)]
    device: i64,
    time_us: Option<Whole>,
}

#[derive(Deserialize)]
pub(super) struct JsonSettings {
    #[serde(rename = "PYTORCH_CUDA_ALLOC_CONF")]
    cuda_text: Option<String>,
    #[serde(rename = "PYTORCH_HIP_ALLOC_CONF")]
    hip_text: Option<String>,
    #[serde(rename = "PYTORCH_ALLOC_CONF")]
    text: Option<String>,
    max_split_size: Option<serde_json::Number>,
    garbage_collection_threshold: Option<f64>,
    expandable_segments: Option<bool>,
    roundup_power2_divisions: Option<std::collections::BTreeMap<String, u64>>,
    max_round_threshold: Option<serde_json::Number>,
    max_cached_size: Option<serde_json::Number>,
    torch_version: Option<String>,
    /// Keys that only tell who wrote the file, or that we do not know.
    #[serde(flatten)]
    others: std::collections::BTreeMap<String, IgnoredAny>,
}

impl JsonSettings {
    fn raw(self) -> RawSettings {
        let divisions = self.roundup_power2_divisions.unwrap_or_default();
        let known = divisions.iter().filter_map(|(mib, &count)| Some((mib.parse().ok()?, count)));
        RawSettings {
            text: self.cuda_text.or(self.hip_text).or(self.text),
            max_split_size: self.max_split_size.map(|limit| limit.as_i64().unwrap_or(-1)),
            garbage_collection_threshold: self.garbage_collection_threshold,
            expandable_segments: self.expandable_segments,
            pinned: [self.max_round_threshold, self.max_cached_size].map(|size| size?.as_u64()),
            roundup_power2_divisions: known.collect(),
        }
    }
}

/// The number of a device; the first, if there is none.
pub(super) fn device_of(device: Option<Whole>) -> Result<u32, String> {
    let device = Whole::or_zero(device);
    u32::try_from(device).map_err(|_| format!("{device} is no number of a device"))
}

impl<'de> Reader<'de> {
    /// Nothing read yet.
    pub(super) fn new(options: &LoadOptions, room: Bytes) -> Self {
        let mut snapshot = Snapshot::new(options.torch_version, room);
        snapshot.is_host = options.host;
        let stacks = options.stacks.then(FxHashMap::default);
        Self { snapshot, stacks, progress: Progress::Before }
    }

    /// Notes how far a document goes that was cut off.
    pub(super) fn note_the_end(&mut self) {
        match self.progress {
            Progress::Before => self.snapshot.cut(0, "the file ends before its events".to_owned()),
            Progress::Entries(device) => {
                let entry = Grouped(self.snapshot.entries_of(device) as u64 + 1);
                let what =
                    format!("the file ends in the middle of entry {entry} of device {device}");
                self.snapshot.cut(device, what);
            }
            Progress::Behind(devices) => {
                self.snapshot.cut(devices, "the file ends behind its events".to_owned());
            }
        }
    }

    pub(super) fn settings(&mut self, json: JsonSettings) {
        let evidence = &mut self.snapshot.evidence;
        let named = [
            ("PYTORCH_CUDA_ALLOC_CONF", json.cuda_text.is_some()),
            ("max_split_size", json.max_split_size.is_some()),
            ("garbage_collection_threshold", json.garbage_collection_threshold.is_some()),
            ("expandable_segments", json.expandable_segments.is_some()),
            ("roundup_power2_divisions", json.roundup_power2_divisions.is_some()),
            ("max_round_threshold", json.max_round_threshold.is_some()),
            ("max_cached_size", json.max_cached_size.is_some()),
        ];
        let named = named.into_iter().filter_map(|(key, is_there)| is_there.then_some(key));
        named.chain(json.others.keys().map(String::as_str)).for_each(|key| evidence.setting(key));
        evidence.version = json.torch_version.as_ref().and_then(|text| text.parse().ok());
        json.others.keys().for_each(|key| self.snapshot.key(key));
        self.snapshot.settings = Some(json.raw());
    }

    pub(super) fn entry(&mut self, device: u32, json: &JsonEntry<'de>) -> Result<(), String> {
        let action = RawAction::from_name(json.action.as_bytes());
        if action == RawAction::Unknown {
            let at = self.snapshot.entries_of(device);
            let counted = self.snapshot.unknown(device, at, json.action.as_bytes());
            return counted.map_err(|error| error.problem);
        }
        let missing = |key: &str| format!("an entry has no {key:?}");
        let numbers = &mut self.snapshot.numbers;
        numbers.entries_have_labels[0] |= json.compile_context.is_some();
        numbers.entries_have_labels[1] |= json.user_metadata.is_some();
        let stream = numbers.stream(Whole::or_zero(json.stream)).map_err(|error| error.problem)?;
        let pool = match json.pool_id {
            Some((first, second)) => {
                numbers.entries_have_pools = true;
                numbers.pool((first.0, second.0)).map_err(|error| error.problem)?
            }
            None => 0,
        };
        let (addr, free) = (json.addr.map(|at| at.0), json.device_free.map(|free| free.0));
        let raw = RawEntry {
            addr: addr.or(free).ok_or_else(|| missing("addr"))?,
            size: json.size.ok_or_else(|| missing("size"))?.0,
            time_us: Whole::or_zero(json.time_us),
            stack: self.stack(json.frames, &json.compile_context, &json.user_metadata)?,
            stream,
            pool,
            action,
        };
        self.snapshot.entry(device, &raw).map_err(|error| error.problem)
    }

    fn stack(
        &mut self,
        frames: Option<&'de RawValue>,
        compile_context: &Option<Cow<'de, str>>,
        user_metadata: &Option<Cow<'de, str>>,
    ) -> Result<u32, String> {
        let Some(lists) = &mut self.stacks else { return Ok(Entry::NO_STACK) };
        let table = &mut self.snapshot.stacks;
        let text = frames.map_or("[]", RawValue::get);
        let list = match lists.get(text) {
            Some(&number) => number,
            None => {
                let parsed: Option<Vec<JsonFrame>> = serde_json::from_str(text)
                    .map_err(|error| format!("frames: {}", reader_error::json(&error)))?;
                let frames = parsed.iter().flatten();
                let numbers: Vec<u32> = frames.map(|frame| frame.number(table)).collect();
                let number = table.list(&numbers);
                lists.insert(text, number);
                number
            }
        };
        let label = |label: &Option<Cow<'de, str>>| label.clone().unwrap_or_default();
        Ok(table.stack(list, &label(compile_context), &label(user_metadata)))
    }

    pub(super) fn segment(&mut self, json: JsonSegment<'de>) -> Result<(), String> {
        let mut blocks = Vec::with_capacity(json.blocks.len());
        for block in json.blocks {
            let state = block_state(block.state.as_bytes());
            let latest = block.history.as_ref().and_then(|history| history.first());
            let frames = block.frames.filter(|frames| !["[]", "null"].contains(&frames.get()));
            let frames = frames.or_else(|| latest?.frames);
            blocks.push(RawBlock {
                address: block.address.map(|at| at.0),
                size: block.size.0,
                requested: block.requested_size.or_else(|| latest?.real_size).map(|size| size.0),
                state: state.ok_or_else(|| format!("{:?} is no state of a block", block.state))?,
                stack: self.stack(frames, &None, &None)?,
            });
        }
        let device = match self.snapshot.is_host {
            true => 0,
            false => device_of(json.device.map(|device| Whole(device.0)))?,
        };
        let raw = RawSegment {
            device,
            address: json.address.map(|at| at.0),
            stream: Whole::or_zero(json.stream),
            pool: json.segment_pool_id.map(|(a, b)| (a.0, b.0)).unwrap_or_default(),
            is_small: json.segment_type.as_deref() == Some("small"),
            is_expandable: json.is_expandable.unwrap_or(false),
            blocks,
        };
        self.snapshot.has_segments = true;
        self.snapshot.segment(&raw).map_err(|error| error.problem)
    }

    pub(super) fn annotation(&mut self, json: JsonAnnotation) -> Result<(), String> {
        let Ok(device) = u32::try_from(json.device) else { return Ok(()) };
        let (name, is_start) = (json.name.into_owned(), json.stage == "START");
        let annotation = Annotation { name, is_start, time_us: Whole::or_zero(json.time_us) };
        self.snapshot.annotation(device, annotation).map_err(|error| error.problem)
    }
}
