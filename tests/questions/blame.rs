//! Blame: rows add up to the byte, whatever is asked; stacks survive every way from file to file.

use std::path::Path;

use crate::common::recordings;
use gmlake::alloc_conf::AllocConf;
use gmlake::allocator::BlockUse;
use gmlake::blame::{
    At, Blame, By, EventIndex, History, Question, blame, folded, history, loss, refusal,
};
use gmlake::run::Cause;
use gmlake::sim::{Choice, Conf, Memory, Opened, Scenario, Setup, choose, open, run, transcribe};
use gmlake::trace::{
    Action, Entry, EventKind, LoadOptions, Records, ingest, load_bytes, write_snapshot,
};
use gmlake::units::{Bytes, GIB};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

fn opened(path: &Path) -> Opened {
    let options = LoadOptions { stacks: true, ..LoadOptions::default() };
    open(path, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn choice(name: &str) -> Choice {
    choose(&[name.to_owned()], &[]).expect("we have it").remove(0)
}

fn sum(blame: &Blame) -> Bytes {
    blame.rows.iter().map(|row| row.bytes).sum()
}

/// The obvious twin: live blocks by address, from the recorded entries alone.
fn live_by_address(records: &Records, entries: usize) -> FxHashMap<u64, (Bytes, u32)> {
    let mut live = FxHashMap::default();
    for entry in &records.entries[..entries] {
        match entry.action {
            Action::Alloc => drop(live.insert(entry.addr, (entry.size, entry.stack))),
            Action::FreeCompleted => drop(live.remove(&entry.addr)),
            _ => {}
        }
    }
    live
}

#[test]
fn rows_add_up_to_the_live_bytes_for_every_moment_and_kind() {
    recordings::all().into_values().collect::<Vec<_>>().par_iter().for_each(|path| {
        let opened = opened(path);
        let last = opened.trace.events.len() as u64 - 1;
        for at in [At::Peak, At::End, At::Event(last / 3), At::Event(0)] {
            let mut live = Vec::new();
            for (by, name) in By::ALL {
                let question = Question { at, by, ..Question::default() };
                let found = blame(&opened, &question).expect("there is such a moment");
                assert_eq!(sum(&found), found.live_bytes, "{}: {at:?} by {name}", path.display());
                assert!(found.rows.is_sorted_by_key(|row| std::cmp::Reverse(row.bytes)));
                live.push((found.live_bytes, found.event));
            }
            live.dedup();
            assert_eq!(live.len(), 1, "{}: {at:?} depends on the kind: {live:?}", path.display());
            let stacks =
                folded(&opened, &Question { at, ..Question::default() }).expect("as before");
            let bytes: Bytes = stacks.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(bytes, live[0].0, "{}: flame graph", path.display());
        }
    });
}

#[test]
fn the_peak_is_the_one_that_runs_have() {
    for (name, path) in recordings::all() {
        let opened = opened(&path);
        let found = blame(&opened, &Question::default()).expect("there is a peak");
        let bound = run(&opened, &choice("bound"), &Setup::default()).expect("it runs");
        // A request that failed in the recording is live for a moment where it does not fail.
        let failed = opened.trace.events.iter().any(|event| event.kind == EventKind::Attempt);
        if bound.oom_count == 0 && !failed {
            assert_eq!(found.live_bytes, bound.requested_peak_bytes, "{name}");
        }
        let scenario = Scenario::new(&opened, choice("caching"), Setup::default());
        let question = Question { scenario: Some(scenario.clone()), ..Question::default() };
        let of_caching = blame(&opened, &question).expect("it runs");
        let caching = scenario.run().expect("it runs");
        assert_eq!(of_caching.reserved_bytes, Some(caching.reserved_peak_bytes), "{name}");
        assert_eq!(sum(&of_caching), of_caching.live_bytes, "{name}");
    }
}

#[test]
fn losses_add_up_to_the_causes_of_the_report() {
    let paths: Vec<_> = recordings::all().into_values().collect();
    paths.par_iter().for_each(|path| {
        let opened = opened(path);
        for name in ["caching", "expandable", "gmlake", "gmlake-released", "lake", "native"] {
            let (choice, setup) = (choice(name), Setup::default());
            let what = format!("{}, {name}", path.display());
            let scenario = Scenario::new(&opened, choice, setup);
            let found = loss(&scenario, By::Size, false).expect("it runs");
            let peak = scenario.peak().expect("it runs");
            for cause in Cause::ALL {
                assert_eq!(found.bytes(cause), peak.causes.bytes(cause), "{what}: {cause:?}");
            }
            assert_eq!(found.lost_bytes, found.reserved_bytes - found.live_bytes, "{what}");
        }
    });
}

/// The recording with stacks, if it lies next to the checkout; a made-up one otherwise.
fn with_stacks() -> Vec<(String, Opened)> {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("made.pickle");
    std::fs::write(&path, crate::common::stacks::snapshot(&crate::common::stacks::Job::default()))
        .expect("there is room");
    let recorded = recordings::all().into_iter().filter(|(name, _)| name.ends_with(".frames"));
    let mut found: Vec<_> = recorded.map(|(name, path)| (name, opened(&path))).collect();
    found.push(("made".to_owned(), opened(&path)));
    found
}

#[test]
fn every_allocation_has_the_stack_of_its_entry() {
    for (name, opened) in with_stacks() {
        let Opened { records, .. } = &opened;
        assert!(records.stacks.has_frames(), "{name}");
        let at = records.entries.len() / 2;
        let early = Records { entries: records.entries[..at].to_vec(), ..records.clone() };
        let mut twin: FxHashMap<u32, Bytes> = FxHashMap::default();
        for (bytes, stack) in live_by_address(records, at).into_values() {
            *twin.entry(stack).or_default() += bytes;
        }
        let trace = ingest(&early, &Default::default());
        let last = trace.events.len() as u64 - 1;
        let half = Opened { records: early, trace, ..Opened::default() };
        let question = Question { at: At::Event(last), ..Question::default() };
        let found = blame(&half, &question).expect("there is such an event");
        assert_eq!(found.live_bytes, twin.values().sum::<Bytes>(), "{name}");
        assert_eq!(
            found.stackless_bytes,
            twin.get(&Entry::NO_STACK).copied().unwrap_or(0),
            "{name}"
        );
        let lines = folded(&half, &question).expect("as before");
        let frames = |stack: u32| records.stacks.frames_of(stack).count();
        for (&stack, &bytes) in twin.iter().filter(|(stack, _)| frames(**stack) > 0) {
            let depth = frames(stack);
            let has =
                |(text, own): &(String, u64)| *own >= bytes && text.split(';').count() == depth;
            assert!(lines.iter().any(has), "{name}: no line of {depth} frames and {bytes} bytes");
        }
    }
}

#[test]
fn stacks_survive_a_simulated_export() {
    for (name, opened) in with_stacks() {
        let written = transcribe(&opened, &choice("caching"), &Setup::default()).expect("it runs");
        let mut bytes = Vec::new();
        write_snapshot(&written, &mut bytes).expect("memory suffices");
        let options = LoadOptions { stacks: true, ..LoadOptions::default() };
        let read = load_bytes(&bytes, &options).expect("it is ours").remove(0);
        let texts = |records: &Records| -> Vec<Vec<String>> {
            let allocs = records.entries.iter().filter(|entry| entry.action == Action::Alloc);
            let stacks = allocs.map(|entry| records.stacks.frames_of(entry.stack));
            stacks.map(|frames| frames.map(ToString::to_string).collect()).collect()
        };
        assert_eq!(texts(&read), texts(&opened.records), "{name}");
        let live =
            |records: &Records| records.live_stacks.iter().map(|&(at, _)| at).collect::<Vec<_>>();
        assert_eq!(live(&read), live(&opened.records), "{name}: the final state");
        let plain = bytes.len() as f64 / opened.records.entries.len() as f64;
        assert!(plain < 400.0, "{name}: {plain} bytes for an entry: stacks are not shared");
    }
}

#[test]
fn loading_without_stacks_costs_nothing_in_a_trace() {
    for path in recordings::all().into_values().take(3) {
        let options = LoadOptions::default();
        let opened = open(&path, &options).expect("it is good");
        assert!(opened.trace.alloc_stacks.is_empty() && opened.records.stacks.is_empty());
    }
}

/// Address, size and request of every block that a history says is live after an event.
fn live_by_history(history: &History, event: usize) -> Vec<(u64, Bytes, Bytes)> {
    let live = history.blocks.iter().filter(|block| block.life.covers(event as EventIndex));
    let mut live: Vec<_> = live.map(|block| (block.at, block.bytes, block.requested)).collect();
    live.sort_unstable();
    live
}

/// The twin runs again up to the event and asks the allocator itself.
#[test]
fn the_state_after_any_event_follows_from_the_lives() {
    recordings::all().into_values().collect::<Vec<_>>().par_iter().for_each(|path| {
        let (opened, setup) = (opened(path), Setup::default());
        let choice = choice(opened.recorded_by());
        let scenario = Scenario::new(&opened, choice.clone(), setup.clone());
        let history = history(&scenario).expect("it runs");
        let peak = scenario.run().expect("it runs").peak_event;
        let last = opened.trace.events.len() - 1;
        let is_request = |event: &usize| opened.trace.events[*event].kind != EventKind::Attempt;
        let first = opened.trace.start_events;
        let events = [first, first + (last - first) / 3, peak.map_or(last, |e| e as usize), last];
        for event in events.into_iter().filter(is_request).filter(|&event| event <= last) {
            let alone = Scenario::new(&opened, choice.clone(), setup.clone());
            let held = alone.state_at(Some(event)).expect("it runs");
            let seen = scenario.state_at(Some(event)).expect("it runs");
            assert_eq!(seen.blocks, held.blocks, "event {event}: seen on the way, and alone");
            let in_use = [BlockUse::Allocated, BlockUse::Pending];
            let blocks = held.blocks.iter().map(|block| block.view);
            let mut live: Vec<_> = blocks
                .filter(|view| in_use.contains(&view.state))
                .map(|view| (view.at.0, view.size, view.requested))
                .collect();
            live.sort_unstable();
            let what = format!("{} after event {event}", path.display());
            assert_eq!(live_by_history(&history, event), live, "{what}");
            let covers = |life: gmlake::blame::Life| life.covers(event as EventIndex);
            let segments = history.segments.iter().filter(|segment| covers(segment.life));
            let reserved: Bytes = segments.map(|segment| segment.bytes).sum();
            assert_eq!(reserved, held.usage.reserved, "{what}: held");
        }
    });
}

#[test]
fn every_block_of_a_history_lies_in_memory_that_is_held_as_long_as_it() {
    let opened = opened(Path::new("traces/opt-1.3b-LR.expandable.pickle.xz"));
    let scenario = Scenario::new(&opened, choice("expandable"), Setup::default());
    let found = history(&scenario).expect("it runs");
    assert!(found.blocks.len() > 10_000 && found.segments.len() > 100);
    for block in found.blocks.iter().step_by(97) {
        for event in [block.life.born, block.life.died.min(found.events) - 1] {
            let held = found.segments.iter().filter(|segment| segment.life.covers(event));
            let end = block.at + block.bytes;
            let inside = held.map(|segment| {
                let both = segment.at.max(block.at)..(segment.at + segment.bytes).min(end);
                both.end.saturating_sub(both.start)
            });
            assert_eq!(inside.sum::<Bytes>(), block.bytes, "{block:?} after event {event}");
        }
    }
}

#[test]
fn what_is_said_to_serve_a_refused_request_serves_it() {
    let opened = opened(Path::new("traces/opt-1.3b-LR-var.frames.pickle.xz"));
    let setup = Setup { memory: Memory::Bytes(28 * GIB), ..Setup::default() };
    let caching = choice("caching");
    let scenario = Scenario::new(&opened, caching, setup.clone());
    let found = refusal(&scenario, By::Line, false, 1).expect("it runs out");
    assert!(found.served_by.iter().any(|served| served.setting.is_some()), "a setting helps");
    for served in &found.served_by {
        let text = served.setting.as_deref();
        let conf = text.map(|text| AllocConf::parse(text, setup.version).expect("PyTorch's words"));
        let other = Setup { conf: conf.map(Conf::Known), ..setup.clone() };
        let summary = run(&opened, &choice(&served.allocator), &other).expect("it runs");
        assert_eq!(summary.oom_count == 0, served.runs_job, "{served:?}");
        assert!(summary.first_oom_event.is_none_or(|oom| oom > found.event), "{served:?}");
    }
}

/// Without the request that it grew for, there is nothing to blame a free segment on.
#[test]
fn a_state_without_events_gets_no_advice_about_requests() {
    let path = Path::new("traces/opt-1.3b-LR-var.frames.pickle.xz");
    let mut opened = opened(path);
    opened.records.entries.clear();
    let mut bytes = Vec::new();
    write_snapshot(&opened.records, &mut bytes).expect("memory suffices");
    let folder = tempfile::tempdir().expect("there is a place for temporary files");
    let file = folder.path().join("state.pickle");
    std::fs::write(&file, bytes).expect("the folder is ours");
    let state = self::opened(&file);
    let kind = state.coverage.kind();
    assert_eq!(kind, gmlake::trace::CoverageKind::StateOnly, "{:?}", state.coverage);
    let scenario = Scenario::new(&state, choice("caching"), Setup::default());
    let found = loss(&scenario, By::Line, false);
    let found = found.expect("it runs");
    assert!(found.lost_bytes > 0 && found.growth.is_none());
    let advice = gmlake::blame::show::advice(&found);
    assert!(advice.contains("when the recording started") && advice.ends_with('.'), "{advice}");
}
