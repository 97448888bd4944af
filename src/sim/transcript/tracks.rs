//! Tracks: simulated runs side by side in time, for Perfetto.
//!
//! Every event is written down as soon as it is carried out: nothing but what the allocator holds is kept. For
//! allocators that stitch, a segment is a mapped range of addresses, so that memory that is mapped twice is on two
//! tracks.

use std::io::{self, Write};

use super::{Watching, follow};
use crate::allocator::{Allocation, Allocator, BlockUse, Usage};
use crate::drive::{Observer, Step};
use crate::sim::choice::Choice;
use crate::sim::opened::Opened;
use crate::sim::run::RunError;
use crate::sim::setup::Setup;
use crate::simulation::HeldSegments;
use crate::trace::{Action, EventKind, Level, Perfetto, owner};
use crate::units::Bytes;

/// Why there are no tracks.
#[derive(Debug, thiserror::Error)]
pub enum TracksError {
    /// A run came to no result.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Blocks that are looked at for each event, on average, to find the largest free one.
const LOOKS: u64 = 4;

/// Runs a trace through each allocator, and writes all that happens to `out`. Returns how many segments were left out
/// of the tracks, since too many were held at once.
///
/// The largest free block is looked for when the cache was flushed, and from time to time: the more blocks there are,
/// the less often.
///
/// # Errors
/// If an option is wrong, the device fails in another way than by running out of memory, or `out` cannot be written.
pub fn write_tracks(
    opened: &Opened,
    choices: &[Choice],
    setup: &Setup,
    out: impl Write,
) -> Result<u64, TracksError> {
    let origin_us = opened.records.entries.first().map_or(0, |entry| entry.time_us);
    let mut trace = Perfetto::new(out, origin_us)?;
    let mut left_out = 0;
    for choice in choices {
        let options = choice.options.rows().join(" ");
        trace.process(format!("{} {options}", choice.spec.name).trim_end())?;
        left_out += run(opened, choice, setup, origin_us, &mut trace)?;
    }
    trace.finish()?;
    Ok(left_out)
}

fn run<W: Write>(
    opened: &Opened,
    choice: &Choice,
    setup: &Setup,
    origin_us: u64,
    trace: &mut Perfetto<W>,
) -> Result<u64, TracksError> {
    let mut tracks = Tracks {
        trace,
        opened,
        origin_us,
        now_us: origin_us,
        retries: 0,
        was_refused: false,
        peak: Usage::default(),
        next_look: 0,
        outcome: Ok(()),
    };
    follow(opened, choice, setup, &mut tracks)?;
    tracks.outcome?;
    let end_us = tracks.now_us;
    Ok(trace.end_process(end_us)?)
}

/// What was written last.
struct Tracks<'t, W: Write> {
    trace: &'t mut Perfetto<W>,
    opened: &'t Opened,
    origin_us: u64,
    now_us: u64,
    retries: u64,
    /// Whether the request at hand was refused.
    was_refused: bool,
    /// The highest values so far.
    peak: Usage,
    /// Event after which the largest free block is looked for again.
    next_look: u64,
    /// Whether all could be written so far.
    outcome: io::Result<()>,
}

impl<W: Write> Observer<Watching> for Tracks<'_, W> {
    fn before(&mut self, step: &mut Step<'_, Watching>) {
        self.was_refused = false;
        step.device.watch.begin(step.event.stream, step.event.pool);
    }

    fn served(&mut self, _: &mut Step<'_, Watching>, given: Option<Allocation>) {
        self.was_refused = given.is_none();
    }

    fn after(&mut self, step: &mut Step<'_, Watching>) {
        if self.outcome.is_ok() {
            self.outcome = self.write(step);
        }
    }
}

impl<W: Write> Tracks<'_, W> {
    fn write(&mut self, step: &mut Step<'_, Watching>) -> io::Result<()> {
        let (event, allocator, trace) = (step.index, step.allocator, &self.opened.trace);
        // A recording without times is shown event by event.
        let elapsed = trace.times_us.get(event).copied().unwrap_or(0);
        self.now_us = self.origin_us + if trace.span_us() == 0 { event as u64 } else { elapsed };
        let (now_us, usage) = (self.now_us, allocator.usage());
        let given_back = self.calls(&mut step.device.watch)?;
        let (requested, active) = (usage.requested, usage.active);
        let level = Level { requested, active, reserved: usage.reserved };
        self.record(level, allocator.peak())?;
        self.trace.level(now_us, level)?;
        let retries = allocator.retries();
        let has_flushed = std::mem::replace(&mut self.retries, retries) < retries;
        if has_flushed {
            self.trace.instant(now_us, "flush", given_back)?;
        } else if step.event.kind == EventKind::Trim {
            self.trace.instant(now_us, "empty_cache", given_back)?;
        }
        if self.was_refused {
            self.trace.instant(now_us, "out of memory", step.event.size)?;
        }
        if has_flushed || event as u64 >= self.next_look {
            let (largest, blocks) = largest_free(allocator);
            self.next_look = event as u64 + 1 + blocks / LOOKS;
            self.trace.largest_free(now_us, largest)?;
        }
        Ok(())
    }

    /// Writes a record that was reached within an event and is gone at its end, such as that of a request that is only
    /// tried.
    fn record(&mut self, level: Level, peak: Usage) -> io::Result<()> {
        let last = std::mem::replace(&mut self.peak, peak);
        let highest = |last: Bytes, peak: Bytes, now: Bytes| if peak > last { peak } else { now };
        let record = Level {
            requested: highest(last.requested, peak.requested, level.requested),
            active: highest(last.active, peak.active, level.active),
            reserved: highest(last.reserved, peak.reserved, level.reserved),
        };
        self.trace.level(self.now_us, record)
    }

    /// Writes what was asked of the driver; returns the bytes that went back.
    fn calls(&mut self, held: &mut HeldSegments) -> io::Result<Bytes> {
        let (now_us, mut given_back) = (self.now_us, 0);
        let mut calls = held.take_calls().made.into_iter().peekable();
        while let Some((action, mut range, place)) = calls.next() {
            // Pages that are mapped one after another, side by side, are one segment.
            while let Some((_, more, _)) =
                calls.next_if(|(other, more, _)| *other == action && more.start == range.end)
            {
                range.end = more.end;
            }
            let (streams, pools) = (&self.opened.trace.streams, &self.opened.records.pools);
            let (stream, pool) = owner(streams, pools, place.stream, place.pool);
            match action {
                Action::SegmentFree | Action::SegmentUnmap => {
                    given_back += range.end - range.start;
                    self.trace.given_back(now_us, range)?;
                }
                _ => self.trace.obtained(now_us, range, stream, pool)?,
            }
        }
        Ok(given_back)
    }
}

/// Bytes of the largest free block, and the number of all blocks.
fn largest_free(allocator: &dyn Allocator) -> (Bytes, u64) {
    let blocks = allocator.blocks();
    let free = blocks.iter().filter(|view| view.state == BlockUse::Free);
    (free.map(|view| view.size).max().unwrap_or(0), blocks.len() as u64)
}
