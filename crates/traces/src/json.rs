//! PyTorch's snapshot as JSON: the same dict, as `json.dump(torch.cuda.memory._snapshot(), file)` writes it.
//!
//! JSON has no shared objects, so every entry repeats its whole stack and the file is 15 times the pickle. It is read
//! in one pass over the mapped file, entry by entry: nothing is built that is not kept, and stacks are skipped, or
//! looked up by their text.

use std::borrow::Cow;
use std::marker::PhantomData;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::if_object::IfObject;
use super::json_frame::JsonFrame;
use super::options::LoadOptions;
use super::settings::RawSettings;
use super::torch::{FOREIGN, RawAction, RawBlock, RawEntry, RawSegment, Snapshot, block_state};
use super::writer::VIRTUAL;
use super::{Annotation, Entry, Position, Records, TraceError};
use gmlake_core::reader_error;
use gmlake_core::units::{Bytes, Grouped};

/// What some editors put before a text in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const EXPECTED: &str = "a file of json.dump(torch.cuda.memory._snapshot()) is expected";

/// Reads a snapshot in JSON.
///
/// # Errors
/// If the bytes are no JSON, or are no snapshot.
pub(super) fn read(
    bytes: &[u8],
    options: &LoadOptions,
    room: Bytes,
) -> Result<Vec<Records>, TraceError> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let snapshot = Snapshot::new(options.torch_version, room);
    let stacks = options.stacks.then(FxHashMap::default);
    let mut reader = Reader { snapshot, stacks, progress: Progress::Before };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let explain = |error| explain(bytes, &error, EXPECTED);
    let read = json.deserialize_any(Document { reader: &mut reader, is_whole: true });
    match read {
        Err(error) if error.is_eof() => {
            reader.note_the_end();
            let records = reader.snapshot.finish()?;
            return if records.is_empty() { Err(explain(error)) } else { Ok(records) };
        }
        read => read.map_err(explain)?,
    }
    json.end().map_err(explain)?;
    reader.snapshot.finish()
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

struct Reader<'de> {
    snapshot: Snapshot,
    /// The number of each list of frames by its text in the file, if stacks are wanted.
    stacks: Option<FxHashMap<&'de str, u32>>,
    progress: Progress,
}

/// How far a document is read.
#[derive(Clone, Copy)]
enum Progress {
    Before,
    Entries(u32),
    Behind(u32),
}

#[derive(Deserialize)]
struct JsonEntry<'a> {
    #[serde(borrow)]
    action: Cow<'a, str>,
    addr: Option<u64>,
    device_free: Option<u64>,
    size: Option<u64>,
    stream: Option<u64>,
    time_us: Option<u64>,
    pool_id: Option<(u64, u64)>,
    #[serde(borrow)]
    compile_context: Option<Cow<'a, str>>,
    #[serde(borrow)]
    user_metadata: Option<Cow<'a, str>>,
    #[serde(borrow)]
    frames: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct JsonSegment<'a> {
    device: Option<u32>,
    address: Option<u64>,
    stream: Option<u64>,
    segment_pool_id: Option<(u64, u64)>,
    #[serde(borrow)]
    segment_type: Option<Cow<'a, str>>,
    is_expandable: Option<bool>,
    #[serde(borrow)]
    blocks: Vec<JsonBlock<'a>>,
}

#[derive(Deserialize)]
struct JsonBlock<'a> {
    address: Option<u64>,
    size: u64,
    requested_size: Option<u64>,
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
    real_size: Option<u64>,
    #[serde(borrow)]
    frames: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct JsonAnnotation<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    stage: Cow<'a, str>,
    #[serde(default)]
    device: i64,
    #[serde(default)]
    time_us: u64,
}

#[derive(Deserialize)]
struct JsonSettings {
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
            roundup_power2_divisions: known.collect(),
        }
    }
}

impl<'de> Reader<'de> {
    /// Notes how far a document goes that was cut off.
    fn note_the_end(&mut self) {
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

    fn settings(&mut self, json: JsonSettings) {
        let evidence = &mut self.snapshot.evidence;
        let named = [
            ("PYTORCH_CUDA_ALLOC_CONF", json.cuda_text.is_some()),
            ("max_split_size", json.max_split_size.is_some()),
            ("garbage_collection_threshold", json.garbage_collection_threshold.is_some()),
            ("expandable_segments", json.expandable_segments.is_some()),
            ("roundup_power2_divisions", json.roundup_power2_divisions.is_some()),
        ];
        let named = named.into_iter().filter_map(|(key, is_there)| is_there.then_some(key));
        named.chain(json.others.keys().map(String::as_str)).for_each(|key| evidence.setting(key));
        evidence.version = json.torch_version.as_ref().and_then(|text| text.parse().ok());
        json.others.keys().for_each(|key| self.snapshot.key(key));
        self.snapshot.settings = Some(json.raw());
    }

    fn entry(&mut self, device: u32, json: &JsonEntry<'de>) -> Result<(), String> {
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
        let stream = numbers.stream(json.stream.unwrap_or(0)).map_err(|error| error.problem)?;
        let pool = match json.pool_id {
            Some(id) => {
                numbers.entries_have_pools = true;
                numbers.pool(id).map_err(|error| error.problem)?
            }
            None => 0,
        };
        let raw = RawEntry {
            addr: json.addr.or(json.device_free).ok_or_else(|| missing("addr"))?,
            size: json.size.ok_or_else(|| missing("size"))?,
            time_us: json.time_us.unwrap_or(0),
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

    fn segment(&mut self, json: JsonSegment<'de>) -> Result<(), String> {
        let mut blocks = Vec::with_capacity(json.blocks.len());
        for block in json.blocks {
            let state = block_state(block.state.as_bytes());
            let latest = block.history.as_ref().and_then(|history| history.first());
            let frames = block.frames.filter(|frames| !["[]", "null"].contains(&frames.get()));
            let frames = frames.or_else(|| latest?.frames);
            blocks.push(RawBlock {
                address: block.address,
                size: block.size,
                requested: block.requested_size.or_else(|| latest?.real_size),
                state: state.ok_or_else(|| format!("{:?} is no state of a block", block.state))?,
                stack: self.stack(frames, &None, &None)?,
            });
        }
        let raw = RawSegment {
            device: json.device.unwrap_or(0),
            address: json.address,
            stream: json.stream.unwrap_or(0),
            pool: json.segment_pool_id.unwrap_or_default(),
            is_small: json.segment_type.as_deref() == Some("small"),
            is_expandable: json.is_expandable.unwrap_or(false),
            blocks,
        };
        self.snapshot.segment(&raw).map_err(|error| error.problem)
    }

    fn annotation(&mut self, json: JsonAnnotation) -> Result<(), String> {
        let Ok(device) = u32::try_from(json.device) else { return Ok(()) };
        let (name, is_start) = (json.name.into_owned(), json.stage == "START");
        let annotation = Annotation { name, is_start, time_us: json.time_us };
        self.snapshot.annotation(device, annotation).map_err(|error| error.problem)
    }
}

/// The whole document: a dict, or a bare list of segments; or a dict in it, which may be the snapshot.
struct Document<'r, 'de> {
    reader: &'r mut Reader<'de>,
    is_whole: bool,
}

impl<'de> Visitor<'de> for Document<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a snapshot or a list of segments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.reader;
        let (mut others, mut is_snapshot) = (Vec::new(), false);
        while let Some(key) = map.next_key::<Cow<str>>()? {
            is_snapshot |= ["segments", "device_traces"].contains(&&*key);
            match &*key {
                "segments" => {
                    if std::mem::replace(&mut reader.snapshot.has_segments, true) {
                        return Err(A::Error::custom(
                            "a second snapshot: save each to a file of its own",
                        ));
                    }
                    map.next_value_seed(Each::new(|item| reader.segment(item)))?;
                }
                "device_traces" => map.next_value_seed(Traces(reader))?,
                "external_annotations" => {
                    reader.snapshot.evidence.has_annotations = true;
                    map.next_value_seed(Each::new(|item| reader.annotation(item)))?;
                }
                "allocator_settings" => {
                    let Some(settings) = map.next_value::<Option<JsonSettings>>()? else {
                        continue;
                    };
                    reader.settings(settings);
                }
                "host_traces" => {
                    reader.snapshot.evidence.has_host = true;
                    map.next_value::<IgnoredAny>()?;
                }
                FOREIGN => {
                    reader.snapshot.is_foreign = true;
                    map.next_value::<IgnoredAny>()?;
                }
                VIRTUAL => {
                    reader.snapshot.is_virtual = true;
                    map.next_value::<IgnoredAny>()?;
                }
                _ if self.is_whole => {
                    others.push(key.into_owned());
                    map.next_value_seed(IfObject(Document {
                        reader: &mut *reader,
                        is_whole: false,
                    }))?;
                }
                _ => {
                    others.push(key.into_owned());
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if is_snapshot && !reader.snapshot.is_foreign {
            others.iter().for_each(|key| reader.snapshot.key(key));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.reader.snapshot.has_segments = true;
        while let Some(segment) = list.next_element()? {
            self.reader.segment(segment).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// `device_traces`: a list of lists of entries.
struct Traces<'r, 'de>(&'r mut Reader<'de>);

impl<'de> DeserializeSeed<'de> for Traces<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Traces<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a list with a list of entries for each device")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let reader = self.0;
        let mut device = 0;
        reader.progress = Progress::Entries(device);
        while list.next_element_seed(Each::new(|item| reader.entry(device, &item)))?.is_some() {
            device += 1;
            reader.progress = Progress::Entries(device);
        }
        reader.progress = Progress::Behind(device);
        Ok(())
    }
}

/// Hands each item of a list to a function, so that the list is never built.
pub(super) struct Each<T, F>(F, PhantomData<T>);

impl<T, F: FnMut(T) -> Result<(), String>> Each<T, F> {
    pub(super) fn new(take: F) -> Self {
        Self(take, PhantomData)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de>
    for Each<T, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element()? {
            (self.0)(item).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
