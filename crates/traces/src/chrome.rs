//! The PyTorch profiler's Chrome trace, as `export_chrome_trace` writes it with `profile_memory=True`.
//!
//! It has an instant event `[memory]` for each allocation and each free, and `[OutOfMemory]`:
//!
//! ```text
//!   {"name": "[memory]", "ph": "i", "ts": 1234.5, "args": {"Device Type": 1, "Device Id": 0,
//!    "Addr": 140139236524032, "Bytes": -2048, "Total Allocated": ..., "Total Reserved": ...}}
//! ```
//!
//! What it cannot tell: `Bytes` is the *block*, after rounding, not the request; streams, pools and segments are
//! missing; a free is recorded when it is requested. So peaks are exact for small requests, and near for large ones.
//! The totals are PyTorch's own, after the event: they tell what was live before the profiler was switched on, and what
//! was reserved.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json::Each;
use super::json_reader::explain;
use super::options::LoadOptions;
use super::torch::{RawAction, RawEntry, Snapshot};
use super::{Action, Position, Records, Result, TraceError};
use gmlake_core::reader_error;
use gmlake_core::units::Bytes;

const EXPECTED: &str = "a trace that PyTorch's profiler exported is expected";

/// Reads the memory events of a Chrome trace. Fails if the bytes are no JSON, or hold no memory events of a GPU.
pub(super) fn read(bytes: &[u8], options: &LoadOptions, room: Bytes) -> Result<Vec<Records>> {
    let mut moments = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let explain = |error| explain(bytes, &error, EXPECTED);
    json.deserialize_any(Document(&mut moments)).map_err(explain)?;
    json.end().map_err(explain)?;
    if moments.is_empty() {
        let problem = "a profiler's trace without [memory] events of a GPU";
        let remedy = "profile with profile_memory=True, or record a memory snapshot";
        return Err(TraceError::new(Position::File, problem, remedy));
    }
    // The events of different threads are written one thread after another.
    moments.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let mut snapshot = Snapshot::new(options.torch_version, room);
    for moment in &moments {
        snapshot.entry(moment.device, &moment.entry())?;
        if let Some((allocated, reserved)) = moment.totals {
            snapshot.total(moment.device, allocated, reserved)?;
        }
    }
    snapshot.finish()
}

/// A memory event of a GPU.
struct Moment {
    ts: f64,
    device: u32,
    addr: u64,
    bytes: i64,
    is_oom: bool,
    /// Bytes allocated and reserved after it.
    totals: Option<(Bytes, Bytes)>,
}

impl Moment {
    fn entry(&self) -> RawEntry {
        let action = match (self.is_oom, self.bytes > 0) {
            (true, _) => RawAction::Known(Action::Oom),
            (false, true) => RawAction::Known(Action::Alloc),
            (false, false) => RawAction::Free,
        };
        let (addr, size, time_us) = (self.addr, self.bytes.unsigned_abs(), self.ts as u64);
        RawEntry { addr, size, time_us, action, ..RawEntry::default() }
    }
}

/// Any event; the parts are looked at only if the name is right.
#[derive(Deserialize)]
struct ChromeEvent<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MemoryArgs {
    #[serde(rename = "Device Type")]
    device_type: i64,
    #[serde(rename = "Device Id")]
    device: i64,
    #[serde(rename = "Addr")]
    addr: Option<u64>,
    #[serde(rename = "Bytes")]
    bytes: i64,
    #[serde(rename = "Total Allocated")]
    allocated: Option<i64>,
    #[serde(rename = "Total Reserved")]
    reserved: Option<i64>,
}

impl MemoryArgs {
    /// PyTorch's totals. Its older versions write -1 where they do not know.
    fn totals(&self) -> Option<(Bytes, Bytes)> {
        let allocated = Bytes::try_from(self.allocated?).ok()?;
        let reserved = Bytes::try_from(self.reserved?).ok()?;
        (reserved > 0).then_some((allocated, reserved))
    }
}

/// c10's number of the CPU among the kinds of device.
const CPU: i64 = 0;

impl ChromeEvent<'_> {
    /// The memory event that this is, if it is one of a GPU.
    fn moment(&self) -> Result<Option<Moment>, String> {
        let is_oom = match self.name.map(RawValue::get) {
            Some("\"[memory]\"") => false,
            Some("\"[OutOfMemory]\"") => true,
            _ => return Ok(None),
        };
        let args = self.args.ok_or("a [memory] event has no args")?;
        let args: MemoryArgs = serde_json::from_str(args.get())
            .map_err(|error| format!("a [memory] event: {}", reader_error::json(&error)))?;
        if args.device_type == CPU {
            return Ok(None);
        }
        let ts = self.ts.ok_or("a [memory] event has no ts")?.get().trim_matches('"');
        let ts: f64 = ts.parse().map_err(|_| format!("the time {ts:?} is no number"))?;
        let device = u32::try_from(args.device);
        let device = device.map_err(|_| format!("device {} of a [memory] event", args.device))?;
        let addr = match args.addr {
            Some(addr) => addr,
            None if is_oom => 0,
            None => return Err("a [memory] event has no Addr".to_owned()),
        };
        let totals = args.totals().filter(|_| !is_oom);
        Ok(Some(Moment { ts, device, addr, bytes: args.bytes, is_oom, totals }))
    }
}

/// The whole document: a dict with `traceEvents`, or a bare list of events.
struct Document<'r>(&'r mut Vec<Moment>);

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a Chrome trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<str>>()? {
            if key == "traceEvents" {
                let take = |event: ChromeEvent| {
                    self.0.extend(event.moment()?);
                    Ok(())
                };
                map.next_value_seed(Each::new(take))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(event) = list.next_element::<ChromeEvent>()? {
            self.0.extend(event.moment().map_err(A::Error::custom)?);
        }
        Ok(())
    }
}
