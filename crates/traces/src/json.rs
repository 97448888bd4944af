//! PyTorch's snapshot as JSON: the same dict, as `json.dump(torch.cuda.memory._snapshot(), file)` writes it.
//!
//! JSON has no shared objects, so every entry repeats its whole stack and the file is 15 times the pickle. It is read
//! in one pass over the file, entry by entry: nothing is built that is not kept, and stacks are skipped, or
//! looked up by their text.

use std::borrow::Cow;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::if_object::IfObject;
use super::json_reader::{JsonSettings, Progress, Reader, explain};
use super::options::LoadOptions;
use super::{Records, Result, json_lines, json_several, several};
use gmlake_core::units::Bytes;

/// What some editors put before a text in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const EXPECTED: &str = "a file of json.dump(torch.cuda.memory._snapshot()) is expected";

/// Reads a snapshot in JSON. Fails if the bytes are no JSON, or are no snapshot.
pub(super) fn read(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    if let Some(number) = options.snapshot {
        let found = json_several::find(bytes).texts;
        return match found.get(number.get() - 1) {
            Some(text) => one(text.as_bytes(), options, room),
            None if found.is_empty() && number.get() == 1 => any(bytes, options, room),
            None => Err(several::beyond(number.get(), found.len())),
        };
    }
    any(bytes, options, room)
}

/// Reads what is there, in whichever form.
fn any(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    if json_lines::is_lines(bytes) {
        return json_lines::read(bytes, options, room);
    }
    one(bytes, options, room).or_else(|error| {
        let found = json_several::find(bytes);
        let count = found.texts.len();
        match found.texts.last() {
            Some(_) if count > 1 && !found.are_documents => Err(several::choose(count)),
            // A second one that is cut off gives way to the first.
            Some(last) if count > 1 || found.rest.starts_with(b"{") || !found.are_documents => {
                let mut records = one(last.as_bytes(), options, room)?;
                several::note_the_others(&mut records, count as u64, found.rest.len() as u64);
                Ok(records)
            }
            _ => Err(error),
        }
    })
}

/// Reads one snapshot.
fn one(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    let mut reader = Reader::new(options, room);
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

/// The whole document: a dict, or a bare list of segments or entries; or a dict in it, which may be the snapshot.
struct Document<'r, 'de> {
    reader: &'r mut Reader<'de>,
    is_whole: bool,
}

impl<'de> Visitor<'de> for Document<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a snapshot or a list of its parts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.reader;
        let (mut others, mut is_snapshot) = (Vec::new(), false);
        while let Some(key) = map.next_key::<Cow<str>>()? {
            is_snapshot |= ["segments", "device_traces"].contains(&&*key);
            match &*key {
                "segments" | "host_segments"
                    if reader.snapshot.is_host == (*key == *"host_segments") =>
                {
                    if std::mem::replace(&mut reader.snapshot.has_segments, true) {
                        return Err(A::Error::custom("a second snapshot"));
                    }
                    map.next_value_seed(Each::new(|item| reader.segment(item)))?;
                }
                "device_traces" if !reader.snapshot.is_host => {
                    map.next_value_seed(Traces(reader))?
                }
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
                "host_traces" if reader.snapshot.is_host => {
                    reader.snapshot.evidence.has_host = true;
                    map.next_value_seed(Each::new(|item| reader.entry(0, &item)))?;
                }
                "host_traces" => {
                    reader.snapshot.evidence.has_host = true;
                    map.next_value::<IgnoredAny>()?;
                }
                "segments" | "device_traces" => drop(map.next_value::<IgnoredAny>()?),
                _ if reader.snapshot.mark(&key) => drop(map.next_value::<IgnoredAny>()?),
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
        let mut is_empty = true;
        while let Some(item) = list.next_element()? {
            is_empty = false;
            json_lines::item(self.reader, item).map_err(A::Error::custom)?;
        }
        // `memory_snapshot()` when nothing is held.
        self.reader.snapshot.has_segments |= is_empty;
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
