//! A draft of a trace: made from the entries alone, while PyTorch's decisions are still being replayed.
//!
//! Most recordings need nothing of their [`Labels`] but where the cache was emptied. Those events are put between the
//! others. With any other label, or where the entries contradict each other, the trace is made anew.
//!
//! ```text
//!   draft      malloc  malloc  free  malloc  free
//!   trims                    ▲             ▲
//!   trace      malloc  malloc  trim  free  malloc  trim  free
//! ```

use super::ingest::{Ingest, completes, ingest};
use super::{Action, AllocId, Entry, Event, EventKind, Labels, PoolId, Records, StreamId, Trace};

/// A trace that lacks its labels.
pub struct Draft<'r> {
    records: &'r Records,
    plain: Ingest<'r>,
}

/// An event that is put before number `event` of the others.
struct Trim {
    event: usize,
    time_us: u64,
    pool: PoolId,
}

impl<'r> Draft<'r> {
    /// Matches the frees of a device with its requests.
    pub fn new(records: &'r Records) -> Self {
        let labels = Labels::default();
        let mut plain = Ingest::new(records, &labels);
        plain.entries(&labels);
        Self { records, plain }
    }

    /// The trace with these labels: what [`ingest`] makes of the same records.
    pub fn finish(mut self, labels: &Labels) -> Trace {
        let Labels { start, trims, pools, no_split } = labels;
        let has_others = !start.is_empty() || !pools.is_empty() || !no_split.is_empty();
        if has_others || !self.records.trims.is_empty() || self.plain.has_warnings() {
            return ingest(self.records, labels);
        }
        if !trims.is_empty() {
            insert(&mut self.plain.trace, &places(&self.records.entries, trims));
        }
        self.plain.finish()
    }
}

/// Where the cache was emptied, among events of which each follows from an entry.
fn places(entries: &[Entry], trims: &[(usize, PoolId)]) -> Vec<Trim> {
    let mut trims = trims.to_vec();
    trims.sort_by_key(|&(at, _)| at);
    let mut left = trims.into_iter().peekable();
    let origin_us = entries.first().map_or(0, |entry| entry.time_us);
    let (mut found, mut event, mut time_us, mut index) = (Vec::new(), 0, 0, 0);
    while index < entries.len() {
        let entry = &entries[index];
        time_us = entry.time_us.saturating_sub(origin_us).max(time_us);
        while let Some((_, pool)) = left.next_if(|&(at, _)| at == index) {
            found.push(Trim { event, time_us, pool });
        }
        event += usize::from(is_event(entry.action));
        index += if completes(entry, entries.get(index + 1)) { 2 } else { 1 };
    }
    found.extend(left.map(|(_, pool)| Trim { event, time_us, pool }));
    found
}

fn is_event(action: Action) -> bool {
    use Action::{Alloc, FreeCompleted, FreeRequested, Oom};
    matches!(action, Alloc | FreeRequested | FreeCompleted | Oom)
}

/// Puts events between the others, which stay in the same memory.
fn insert(trace: &mut Trace, trims: &[Trim]) {
    let Trace { events, times_us, attempt_stacks, .. } = trace;
    let mut end = events.len();
    let (alloc, stream, kind) = (AllocId(u32::MAX), StreamId(0), EventKind::Trim);
    let trim_of = |pool| Event { size: 0, alloc, stream, kind, pool };
    events.resize(end + trims.len(), trim_of(PoolId::DEFAULT));
    times_us.resize(end + trims.len(), 0);
    for (before, trim) in trims.iter().enumerate().rev() {
        let place = trim.event + before;
        events.copy_within(trim.event..end, place + 1);
        times_us.copy_within(trim.event..end, place + 1);
        events[place] = trim_of(trim.pool);
        times_us[place] = trim.time_us;
        end = trim.event;
    }
    for (event, _) in attempt_stacks {
        *event += trims.partition_point(|trim| trim.event <= *event);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::synthetic::SplitMix64;
    use super::super::{Stack, StartBlock};
    use super::*;

    /// Entries that follow from each other, but for `odd` in a hundred.
    fn entries(count: usize, odd: u64, seed: u64) -> Vec<Entry> {
        let mut random = SplitMix64::new(seed);
        let (mut entries, mut live, mut time_us) = (Vec::new(), Vec::new(), 1000);
        while entries.len() < count {
            time_us = time_us + random.below(5) - random.below(2);
            let (stream, pool) = (StreamId(random.below(2) as u16), PoolId(0));
            let (size, stack) = (1 + random.below(4096), random.below(3) as u32);
            let mut push = |action, addr| {
                entries.push(Entry { addr, size, time_us, stack, stream, action, pool });
            };
            let addr = (1 + random.below(40)) << 12;
            match random.below(8) {
                0..=2 if !live.contains(&addr) => {
                    push(Action::Alloc, addr);
                    live.push(addr);
                }
                3..=4 if !live.is_empty() => {
                    let addr = live.swap_remove(random.below(live.len() as u64) as usize);
                    push(Action::FreeRequested, addr);
                    if random.below(4) == 0 {
                        push(Action::Alloc, (100 + time_us) << 12);
                    }
                    push(Action::FreeCompleted, addr);
                }
                5 => push(Action::Oom, 0),
                6 => push(Action::SegmentFree, addr),
                _ if random.below(100) < odd => push(Action::FreeRequested, addr),
                _ => {}
            }
        }
        entries
    }

    proptest! {
        #[test]
        fn a_finished_draft_is_the_trace_itself(
            count in 0_usize..80,
            odd in prop::sample::select(vec![0, 0, 100]),
            seed: u64,
            trims in prop::collection::vec((0_usize..90, 0_u8..3), 0..6),
            has_start in prop::sample::select(vec![false, false, true]),
        ) {
            let entries = entries(count, odd, seed);
            let mut records = Records { entries, ..Records::default() };
            records.stacks.stacks = vec![Stack::default(); 3];
            let trims = trims.into_iter().map(|(at, pool)| (at, PoolId(pool))).collect();
            let mut labels = Labels { trims, ..Labels::default() };
            labels.trims.sort_by_key(|&(at, _)| at);
            if has_start {
                let (address, requested, is_pending) = (41 << 12, 7, false);
                let (stream, pool) = (StreamId(0), PoolId(0));
                labels.start.push(StartBlock { address, requested, stream, pool, is_pending });
            }
            let made = Draft::new(&records).finish(&labels);
            prop_assert_eq!(format!("{:?}", made), format!("{:?}", ingest(&records, &labels)));
        }
    }

    /// The test above would hold if every trace were made anew.
    #[test]
    fn trims_are_put_between_what_is_there() {
        let records = Records { entries: entries(60, 0, 7), ..Records::default() };
        let labels = Labels { trims: vec![(20, PoolId(1)), (60, PoolId(0))], ..Labels::default() };
        let draft = Draft::new(&records);
        assert!(!draft.plain.has_warnings());
        let trace = draft.finish(&labels);
        let trims = trace.events.iter().filter(|event| event.kind == EventKind::Trim);
        assert_eq!(trims.map(|event| event.pool.0).collect::<Vec<_>>(), [1, 0]);
    }
}
