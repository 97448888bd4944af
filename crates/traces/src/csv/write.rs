//! The table of a device's records, written.

use std::io::{self, Write};

use ::csv::{Writer, WriterBuilder};

use super::facts::{ANNOTATIONS, BLOCK, FINAL, SEGMENT, SETTING, STATES};
use crate::snapshot::only_in_text;
use crate::{Entry, PoolId, Records, Segment, StreamId};
use gmlake_core::alloc_conf::AllocConf;

/// Writes what is known of a device in the first form; [`load`](crate::load) reads it back as it was. Stacks
/// have no place in it, nor has the number of the device.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_csv(records: &Records, out: impl Write) -> io::Result<()> {
    let mut table = Table { records, writer: WriterBuilder::new().from_writer(out) };
    table.writer.write_record(["action", "addr", "size", "stream", "time_us", "pool"])?;
    records.settings.iter().try_for_each(|conf| table.settings(conf))?;
    for mark in records.marks.keys() {
        table.fact(SETTING, &format!("{mark}:True"), 0)?;
    }
    for annotation in &records.annotations {
        let name = ANNOTATIONS[usize::from(annotation.is_start)];
        table.fact(name, &annotation.name, annotation.time_us)?;
    }
    records.entries.iter().try_for_each(|entry| table.entry(entry))?;
    if records.has_segments {
        table.fact(FINAL, "", 0)?;
        records.segments.iter().try_for_each(|segment| table.segment(segment))?;
    }
    table.writer.flush()
}

struct Table<'a, W: Write> {
    records: &'a Records,
    writer: Writer<W>,
}

impl<W: Write> Table<'_, W> {
    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        // Where no entry tells its pool, the reader finds out, as with a snapshot.
        let pool = if self.records.has_pools { self.pool(entry.pool) } else { String::new() };
        self.writer.write_record([
            entry.action.name(),
            &format!("{:#x}", entry.addr),
            &entry.size.to_string(),
            &self.stream(entry.stream),
            &entry.time_us.to_string(),
            &pool,
        ])?;
        Ok(())
    }

    fn fact(&mut self, name: &str, text: &str, time_us: u64) -> io::Result<()> {
        self.writer.write_record([name, text, "0", "0", &time_us.to_string(), ""])?;
        Ok(())
    }

    fn settings(&mut self, conf: &AllocConf) -> io::Result<()> {
        let limit = conf.max_split_size.map_or("-1".to_owned(), |limit| limit.to_string());
        let expandable = if conf.expandable_segments { "True" } else { "False" };
        let rows = [
            ("PYTORCH_CUDA_ALLOC_CONF", only_in_text(conf)),
            ("max_split_size", limit),
            ("garbage_collection_threshold", conf.garbage_collection_threshold.to_string()),
            ("expandable_segments", expandable.to_owned()),
        ];
        let rows = rows.map(|(key, value)| format!("{key}:{value}"));
        rows.iter().try_for_each(|row| self.fact(SETTING, row, 0))?;
        let divisions = conf.roundup_power2_divisions.iter().enumerate();
        divisions.filter(|&(_, &divisions)| divisions > 0).try_for_each(|(slot, divisions)| {
            let row = format!("roundup_power2_divisions:{}:{divisions}", 1_u64 << slot);
            self.fact(SETTING, &row, 0)
        })
    }

    /// A segment and its blocks that are not free.
    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        let kind = if segment.is_small { "small" } else { "large" };
        let kind =
            format!("{SEGMENT}{kind}{}", ["", "_expandable"][usize::from(segment.is_expandable)]);
        let stream = self.stream(segment.stream);
        let (at, size, pool) =
            (format!("{:#x}", segment.address), segment.size.to_string(), self.pool(segment.pool));
        self.writer.write_record([&kind, &at, &size, &stream, "0", &pool])?;
        for block in &segment.blocks {
            let Some((state, _)) = STATES.iter().find(|(_, state)| *state == block.state) else {
                continue;
            };
            let (at, size) = (format!("{:#x}", block.address), block.size.to_string());
            self.writer.write_record([&format!("{BLOCK}{state}"), &at, &size, &stream, "0", ""])?;
        }
        Ok(())
    }

    fn stream(&self, stream: StreamId) -> String {
        self.records.streams.get(usize::from(stream.0)).copied().unwrap_or(0).to_string()
    }

    fn pool(&self, pool: PoolId) -> String {
        let known = self.records.pools.get(usize::from(pool.0)).copied();
        let (first, second) = known.unwrap_or((0, pool.0.into()));
        format!("{first}:{second}")
    }
}
