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
use super::{
    Action, AllocId, Entry, Event, EventKind, Labels, PoolId, Records, StreamId, Trace, steps,
};

/// A trace that lacks its labels.
pub struct Draft<'r> {
    records: &'r Records,
    plain: Ingest<'r>,
    /// One for each [`STRIDE`] entries.
    marks: Vec<Mark>,
    /// Where its steps begin, if nothing is annotated.
    starts: Option<Vec<usize>>,
}

/// How far the entries had led.
#[derive(Clone, Copy, Default)]
struct Mark {
    entry: usize,
    event: usize,
    time_us: u64,
}

/// Entries from one mark to the next, at least.
const STRIDE: usize = 256;

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
        let Trace { events, times_us, .. } = &plain.trace;
        let is_annotated = steps::annotated(records, times_us).is_some();
        let starts = (!is_annotated).then(|| steps::periodic_starts(events));
        Self { records, plain, marks: marks(&records.entries), starts }
    }

    /// The trace with these labels: what [`ingest`] makes of the same records.
    pub fn finish(mut self, labels: &Labels) -> Trace {
        let Labels { start, trims, pools, no_split } = labels;
        let has_others = !start.is_empty() || !pools.is_empty() || !no_split.is_empty();
        if has_others || !self.records.trims.is_empty() || self.plain.has_warnings() {
            return ingest(self.records, labels);
        }
        if !trims.is_empty() {
            let trims = self.places(trims);
            insert(&mut self.plain.trace, &trims);
            for start in self.starts.iter_mut().flatten() {
                *start += trims.partition_point(|trim| trim.event <= *start);
            }
        }
        self.plain.finish(self.starts)
    }

    /// Where the cache was emptied, among events of which each follows from an entry.
    fn places(&self, trims: &[(usize, PoolId)]) -> Vec<Trim> {
        let mut trims = trims.to_vec();
        trims.sort_by_key(|&(at, _)| at);
        let end = self.marks.last().copied().unwrap_or_default();
        let mut is_passed = false;
        let place = |(at, pool)| {
            let now = self.walk_to(at);
            // One that no event is made at comes last, and so do those behind it.
            is_passed |= now.entry != at || at >= end.entry;
            let (event, time_us) = match is_passed {
                true => (end.event, end.time_us),
                false => (now.event, now.after(&self.records.entries).time_us),
            };
            Trim { event, time_us, pool }
        };
        trims.into_iter().map(place).collect()
    }

    /// How far the entries before this one had led: from the mark before it on.
    fn walk_to(&self, entry: usize) -> Mark {
        let entries = &self.records.entries;
        let next = self.marks.partition_point(|mark| mark.entry <= entry);
        let mut now = self.marks[..next].last().copied().unwrap_or_default();
        while now.entry < entry.min(entries.len()) {
            now = now.after(entries);
        }
        now
    }
}

impl Mark {
    /// What comes after this: one entry further, or two that make one event.
    fn after(self, entries: &[Entry]) -> Self {
        let entry = &entries[self.entry];
        let is_fused = completes(entry, entries.get(self.entry + 1));
        let time_us = entry.time_us.saturating_sub(entries[0].time_us).max(self.time_us);
        Self {
            entry: self.entry + if is_fused { 2 } else { 1 },
            event: self.event + usize::from(is_event(entry.action)),
            time_us,
        }
    }
}

/// A mark for each [`STRIDE`] entries, and one behind all.
fn marks(entries: &[Entry]) -> Vec<Mark> {
    let mut now = Mark::default();
    let mut marks = vec![now];
    let mut next = STRIDE;
    while now.entry < entries.len() {
        now = now.after(entries);
        if now.entry >= next {
            marks.push(now);
            next += STRIDE;
        }
    }
    marks.push(now);
    marks
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
            count in prop_oneof![0_usize..80, 0_usize..1000],
            odd in prop::sample::select(vec![0, 0, 100]),
            seed: u64,
            at in prop::collection::vec(prop_oneof![0_usize..90, 0_usize..1100], 0..6),
            has_start in prop::sample::select(vec![false, false, true]),
        ) {
            let entries = entries(count, odd, seed);
            let mut records = Records { entries, ..Records::default() };
            records.stacks.stacks = vec![Stack::default(); 3];
            let trims = at.into_iter().map(|at| (at, PoolId(at as u8 % 3))).collect();
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
    /// Eighty blocks that are freed from the last one on, in each of twenty steps.
    #[test]
    fn steps_that_nobody_noted_move_with_the_trims() {
        let entry = |action, block: u64| Entry {
            addr: (block + 1) << 20,
            size: 512 + block,
            action,
            ..entries(1, 0, 1)[0]
        };
        let freed = [Action::FreeRequested, Action::FreeCompleted];
        let step = (0..80)
            .map(|block| entry(Action::Alloc, block))
            .chain((0..80).rev().flat_map(|block| freed.map(|action| entry(action, block))));
        let step: Vec<Entry> = step.collect();
        let records = Records { entries: step.repeat(20), ..Records::default() };
        for trims in [vec![], vec![(0, PoolId(0)), (240, PoolId(0)), (250, PoolId(0))]] {
            let labels = Labels { trims, ..Labels::default() };
            let (draft, trace) = (Draft::new(&records), ingest(&records, &labels));
            assert!(trace.steps.len() > 10);
            assert_eq!(draft.finish(&labels).steps, trace.steps);
        }
    }
}
