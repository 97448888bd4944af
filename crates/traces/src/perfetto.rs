//! Perfetto: memory over time as a trace of events, for ui.perfetto.dev and chrome://tracing.
//!
//! It is the format that PyTorch's profiler exports, on the profiler's clock, so that both show in one picture:
//!
//! ```text
//!   process "caching"    counters    requested, active, reserved; largest free
//!                        tracks      a slice for each segment, from when it was obtained until it went back
//!                        instants    out of memory, flush, empty_cache
//!   process "lake"       the same
//! ```
//!
//! Events are written as they come; only the segments that are held are kept in memory. A track shows segments one
//! after another, and there are at most [`MOST_TRACKS`]: segments beyond them are counted, and left out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;

use super::{PoolId, StreamId};
use gmlake_core::units::{Bytes, Size};

/// Tracks of segments that each process has at most.
pub const MOST_TRACKS: usize = 256;

/// PyTorch's profiler counts from the last multiple of this many seconds since 1970, a quarter of a mean year, so that
/// its times are exact in a double.
const QUARTER_S: u64 = 7_889_238;

/// Numbers of our processes begin here, far above those of an operating system.
const FIRST_PROCESS: u64 = 1 << 30;

/// Bytes that are gathered before they are written.
const GATHERED: usize = 1 << 16;

/// Memory in use at a moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Asked for by the program.
    pub requested: Bytes,
    /// In blocks that are in use.
    pub active: Bytes,
    /// Held from the device.
    pub reserved: Bytes,
}

/// A trace of events that is being written.
pub struct Perfetto<W: Write> {
    out: W,
    text: Vec<u8>,
    base_us: u64,
    processes: u64,
    lanes: Lanes,
    level: Level,
    is_first: bool,
}

/// The segments that are held, and the tracks that they are on.
#[derive(Default)]
struct Lanes {
    /// By address: end, time of the beginning, track, and whose it is.
    open: BTreeMap<u64, Slice>,
    free: BTreeSet<usize>,
    used: usize,
    left_out: u64,
}

#[derive(Clone, Copy)]
struct Slice {
    end: u64,
    since_us: u64,
    lane: Option<usize>,
    stream: u64,
    pool: (u64, u64),
}

impl<W: Write> Perfetto<W> {
    /// Begins a trace whose first event is at `origin_us`, in microseconds since 1970 (or since anything, where the
    /// recording has no times).
    ///
    /// # Errors
    /// As every function here: if it cannot be written.
    pub fn new(out: W, origin_us: u64) -> io::Result<Self> {
        let base_us = origin_us / 1_000_000 / QUARTER_S * QUARTER_S * 1_000_000;
        let mut trace = Self {
            out,
            text: Vec::with_capacity(GATHERED + 1024),
            base_us,
            processes: 0,
            lanes: Lanes::default(),
            level: Level::default(),
            is_first: true,
        };
        let base_ns = base_us * 1000;
        write!(
            trace.text,
            "{{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":{base_ns},\"traceEvents\":["
        )?;
        Ok(trace)
    }

    /// Begins the process of an allocator; all that follows is about it.
    pub fn process(&mut self, name: &str) -> io::Result<()> {
        self.processes += 1;
        (self.lanes, self.level) = (Lanes::default(), Level::default());
        let name = serde_json::to_string(name)?;
        self.event("M", 0, &format!("\"name\":\"process_name\",\"args\":{{\"name\":{name}}}"))
    }

    /// The counters from this moment on.
    pub fn level(&mut self, at_us: u64, level: Level) -> io::Result<()> {
        if level == self.level {
            return Ok(());
        }
        self.level = level;
        let Level { requested, active, reserved } = level;
        self.begin("C", 0, at_us)?;
        write!(
            self.text,
            ",\"name\":\"memory\",\"args\":{{\"requested\":{requested},\"active\":{active},\"reserved\":{reserved}}}}}"
        )
    }

    /// The largest free block at this moment.
    pub fn largest_free(&mut self, at_us: u64, bytes: Bytes) -> io::Result<()> {
        self.begin("C", 0, at_us)?;
        write!(self.text, ",\"name\":\"largest free\",\"args\":{{\"bytes\":{bytes}}}}}")
    }

    /// Something that happened in no time.
    pub fn instant(&mut self, at_us: u64, name: &str, bytes: Bytes) -> io::Result<()> {
        self.begin("i", 0, at_us)?;
        write!(self.text, ",\"s\":\"p\",\"name\":\"{name}\",\"args\":{{\"bytes\":{bytes}}}}}")
    }

    /// Memory came under a range of addresses.
    pub fn obtained(
        &mut self,
        at_us: u64,
        range: Range<u64>,
        stream: u64,
        pool: (u64, u64),
    ) -> io::Result<()> {
        let lane = self.lane()?;
        let slice = Slice { end: range.end, since_us: at_us, lane, stream, pool };
        self.lanes.open.insert(range.start, slice);
        Ok(())
    }

    /// The memory under a range of addresses went back. What is left of a segment goes on as one of its own.
    pub fn given_back(&mut self, at_us: u64, range: Range<u64>) -> io::Result<()> {
        let before = self.lanes.open.range(..range.start).next_back();
        let first = before.filter(|(_, slice)| slice.end > range.start).map(|(&start, _)| start);
        let inside = self.lanes.open.range(range.clone()).map(|(&start, _)| start);
        let met: Vec<u64> = first.into_iter().chain(inside).collect();
        for start in met {
            let Some(slice) = self.lanes.open.remove(&start) else { continue };
            self.slice(at_us, start, slice)?;
            for rest in [start..range.start, range.end..slice.end] {
                if rest.start < rest.end {
                    self.obtained(at_us, rest, slice.stream, slice.pool)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the process at this moment: segments that are held end with it.
    pub fn end_process(&mut self, at_us: u64) -> io::Result<u64> {
        for (start, slice) in std::mem::take(&mut self.lanes.open) {
            self.slice(at_us, start, slice)?;
        }
        Ok(self.lanes.left_out)
    }

    /// Ends the trace.
    pub fn finish(mut self) -> io::Result<()> {
        self.text.extend(b"\n]}\n");
        self.out.write_all(&self.text)?;
        self.out.flush()
    }

    /// A track for a segment; none if there are too many.
    fn lane(&mut self) -> io::Result<Option<usize>> {
        if let Some(lane) = self.lanes.free.pop_first() {
            return Ok(Some(lane));
        }
        if self.lanes.used == MOST_TRACKS {
            self.lanes.left_out += 1;
            return Ok(None);
        }
        self.lanes.used += 1;
        let lane = self.lanes.used;
        let named = format!("\"name\":\"thread_name\",\"args\":{{\"name\":\"segments {lane}\"}}");
        self.event("M", lane, &named)?;
        Ok(Some(lane))
    }

    fn slice(&mut self, at_us: u64, start: u64, slice: Slice) -> io::Result<()> {
        let Slice { end, since_us, lane: Some(lane), stream, pool } = slice else { return Ok(()) };
        self.lanes.free.insert(lane);
        self.begin("X", lane, since_us)?;
        let (bytes, dur) = (end - start, at_us.saturating_sub(since_us));
        let (size, (first, second)) = (Size(bytes), pool);
        write!(
            self.text,
            ",\"dur\":{dur},\"name\":\"{size}\",\"cat\":\"segment\",\"args\":{{\"address\":\"{start:#x}\",\
             \"bytes\":{bytes},\"stream\":{stream},\"pool\":\"{first}:{second}\"}}}}"
        )
    }

    fn event(&mut self, kind: &str, track: usize, rest: &str) -> io::Result<()> {
        self.begin(kind, track, self.base_us)?;
        write!(self.text, ",{rest}}}")
    }

    /// What every event begins with. The brace is closed by the caller.
    fn begin(&mut self, kind: &str, track: usize, at_us: u64) -> io::Result<()> {
        if self.text.len() >= GATHERED {
            self.out.write_all(&self.text)?;
            self.text.clear();
        }
        let comma = if std::mem::replace(&mut self.is_first, false) { "" } else { "," };
        let (process, ts) = (FIRST_PROCESS + self.processes, at_us.saturating_sub(self.base_us));
        write!(
            self.text,
            "{comma}\n{{\"ph\":\"{kind}\",\"pid\":{process},\"tid\":{track},\"ts\":{ts}"
        )
    }
}

/// Whose a segment is, as PyTorch names it.
pub fn owner(
    streams: &[u64],
    pools: &[(u64, u64)],
    stream: StreamId,
    pool: PoolId,
) -> (u64, (u64, u64)) {
    let stream = streams.get(usize::from(stream.0)).copied().unwrap_or(stream.0.into());
    (stream, pools.get(usize::from(pool.0)).copied().unwrap_or((0, pool.0.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn events(write: impl FnOnce(&mut Perfetto<&mut Vec<u8>>) -> io::Result<()>) -> Vec<Value> {
        let mut bytes = Vec::new();
        let mut trace = Perfetto::new(&mut bytes, 1_795_258_001_523_094).unwrap();
        write(&mut trace).unwrap();
        trace.finish().unwrap();
        let whole: Value = serde_json::from_slice(&bytes).unwrap();
        // The profiler's base for November 2026: 227 quarters of a mean year.
        assert_eq!(whole["baseTimeNanoseconds"], 227 * 7_889_238_000_000_000_u64);
        whole["traceEvents"].as_array().unwrap().clone()
    }

    fn of_kind<'v>(events: &'v [Value], kind: &str) -> Vec<&'v Value> {
        events.iter().filter(|event| event["ph"] == kind).collect()
    }

    #[test]
    fn a_segment_that_is_cut_goes_on_in_parts() {
        let at = 1_795_258_001_000_000;
        let events = events(|trace| {
            trace.process("caching \"1\"")?;
            trace.obtained(at, 100..200, 7, (0, 3))?;
            trace.given_back(at + 5, 120..150)?;
            trace.given_back(at + 9, 90..130)?;
            assert_eq!(trace.end_process(at + 20)?, 0);
            Ok(())
        });
        assert_eq!(events[0]["args"]["name"], "caching \"1\"");
        let slices = of_kind(&events, "X");
        let part = |slice: &&Value| {
            let args = &slice["args"];
            (
                args["address"].as_str().unwrap().to_owned(),
                args["bytes"].as_u64().unwrap(),
                slice["dur"].as_u64().unwrap(),
            )
        };
        let parts: Vec<_> = slices.iter().map(part).collect();
        let expected = [("0x64", 100, 5), ("0x64", 20, 4), ("0x96", 50, 15)];
        assert_eq!(parts, expected.map(|(at, bytes, dur)| (at.to_owned(), bytes, dur)));
        assert_eq!(
            (&slices[0]["args"]["stream"], &slices[0]["args"]["pool"]),
            (&7.into(), &"0:3".into())
        );
    }

    #[test]
    fn tracks_are_used_again_and_end_somewhere() {
        let events = events(|trace| {
            trace.process("native")?;
            for round in 0..3_u64 {
                (0..10)
                    .try_for_each(|at| trace.obtained(round, at * 10..at * 10 + 5, 0, (0, 0)))?;
                (0..10).try_for_each(|at| trace.given_back(round + 1, at * 10..at * 10 + 5))?;
            }
            let many = MOST_TRACKS as u64 + 4;
            (0..many).try_for_each(|at| trace.obtained(9, at * 10..at * 10 + 5, 0, (0, 0)))?;
            assert_eq!(trace.end_process(10)?, 4);
            Ok(())
        });
        assert_eq!(of_kind(&events, "X").len(), 30 + MOST_TRACKS);
        assert_eq!(of_kind(&events, "M").len(), 1 + MOST_TRACKS);
    }

    #[test]
    fn a_counter_that_stays_is_written_once() {
        let events = events(|trace| {
            trace.process("caching")?;
            let level = Level { requested: 1, active: 2, reserved: 3 };
            trace.level(5, level)?;
            trace.level(6, level)?;
            trace.level(7, Level::default())
        });
        assert_eq!(of_kind(&events, "C").len(), 2);
    }
}
