//! Ground truth: PyTorch's own decisions, and its own counters.
//!
//! Every trace in `traces/` is a recording of the real allocator. Our model must make each recorded decision again, and
//! arrive at the counters that `torch.cuda.memory_stats()` showed at the end. Where more recordings lie next to the
//! checkout (`../shared/traces`, or the folder that `GMLAKE_TRACES` names), they are checked too.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::recordings;
use gmlake::alloc_conf::AllocConf;
use gmlake::allocator::{Environment, Options, find};
use gmlake::device::AddressPolicy;
use gmlake::run::RunSummary;
use gmlake::sim::{Choice, Opened, Setup, open, run};
use gmlake::trace::{self, Action, Entry, LoadOptions, PoolId, Records, StreamId};
use gmlake::units::MIB;
use gmlake::verify::{Verification, verify};

fn load(path: &Path) -> Records {
    let all = trace::load(path, &LoadOptions::default()).unwrap();
    trace::choose_device(all, None, path).unwrap()
}

/// Memory of an H100 of 80 GB in bytes, for recordings whose counters do not name it; none of them ran short.
const H100_MEMORY: u64 = 85_017_493_504;

struct Truth {
    stats: BTreeMap<String, serde_json::Value>,
    total_memory: u64,
}

impl Truth {
    fn of_recording(path: &Path) -> Self {
        let text = path.to_string_lossy().replace(".pickle.xz", ".stats.json");
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(text).unwrap()).unwrap();
        let stats = serde_json::from_value(json["stats"].clone()).unwrap();
        Self { stats, total_memory: json["total_memory"].as_u64().unwrap_or(H100_MEMORY) }
    }

    fn get(&self, name: &str) -> u64 {
        self.stats[name].as_u64().unwrap()
    }
}

fn environment(records: &Records, total_memory: u64) -> Environment {
    Environment { total_memory, ..Environment::new(records.settings.clone().unwrap()) }
}

/// A recording that began after the program: `late`, or a ring buffer that lost its beginning.
fn is_incomplete(name: &str) -> bool {
    name.contains(".late") || name.contains(".ring")
}

fn check_counters(name: &str, found: &Verification, truth: &Truth) {
    let peak = found.peak;
    assert_eq!(peak.reserved, truth.get("reserved_bytes.all.peak"), "{name}: reserved");
    assert_eq!(peak.active, truth.get("active_bytes.all.peak"), "{name}: active");
    assert_eq!(peak.allocated, truth.get("allocated_bytes.all.peak"), "{name}: allocated");
    assert_eq!(peak.requested, truth.get("requested_bytes.all.peak"), "{name}: requested");
    assert_eq!(found.usage.reserved, truth.get("reserved_bytes.all.current"), "{name}: at the end");
    assert_eq!(found.usage.active, truth.get("active_bytes.all.current"), "{name}: at the end");
    assert_eq!(found.retries, truth.get("num_alloc_retries"), "{name}: retries");
    let ooms = found.compared[Action::Oom as usize];
    assert_eq!(ooms, truth.get("num_ooms"), "{name}: out of memory");
}

#[test]
fn every_recorded_decision_is_made_again() {
    for (name, path) in recordings::all() {
        let (records, truth) = (load(&path), Truth::of_recording(&path));
        let found = verify(&records, &environment(&records, truth.total_memory));
        assert_eq!(found.difference_count, 0, "{name}: {:?}", found.differences.first());
        assert_eq!(found.compared.iter().sum::<u64>(), records.entries.len() as u64, "{name}");
        assert_eq!(found.segments, records.segments.len() as u64, "{name}");
        if !is_incomplete(&name) {
            assert!(found.start.layout.is_empty(), "{name} began with the program");
            check_counters(&name, &found, &truth);
        }
    }
}

/// What cannot fail proves nothing: a recording in which one entry was changed is found out.
#[test]
fn a_changed_decision_is_a_difference_and_only_one() {
    let path = &recordings::all()["streams"];
    let records = load(path);
    let total = Truth::of_recording(path).total_memory;
    let count = |records: &Records| verify(records, &environment(records, total)).difference_count;
    let position = |action: Action, nth: usize| {
        let mut of = records.entries.iter().enumerate().filter(|(_, e)| e.action == action);
        of.nth(nth).unwrap().0
    };
    let mut moved = records.clone();
    moved.entries[position(Action::Alloc, 60)].addr += 512;
    assert!(count(&moved) > 0, "a moved block");
    let mut resized = records.clone();
    resized.entries[position(Action::SegmentAlloc, 20)].size += 2 << 20;
    assert!(count(&resized) > 0, "a larger segment");
    let mut kept = records.clone();
    kept.segments[0].blocks[0].size += 512;
    assert_eq!(count(&kept), 1, "another final block");
}

/// The state at a cut, worked out backwards, is the state that the model has there; and from it the rest is exact.
#[test]
fn recordings_that_begin_in_the_middle_are_exact_from_there() {
    for name in ["opt-1.3b-N", "opt-1.3b-LR.expandable", "streams", "opt-1.3b-RO"] {
        let path = &recordings::all()[name];
        let (records, truth) = (load(path), Truth::of_recording(path));
        for percent in [25, 50, 75, 90] {
            let cut = records.entries.len() * percent / 100;
            let mut late = records.clone();
            late.entries.drain(..cut);
            let found = verify(&late, &environment(&late, truth.total_memory));
            let first = found.differences.first();
            assert_eq!(found.difference_count, 0, "{name} from {percent} %: {first:?}");
            assert!(found.start.decided <= found.start.uncertain);
        }
    }
}

fn simulate(opened: &Opened, allocator: &str) -> RunSummary {
    let choice = Choice { spec: find(allocator).unwrap(), options: Options::default() };
    run(opened, &choice, &Setup::default()).unwrap()
}

/// The main promise of `compare`: the allocator that was recorded, simulated, arrives at PyTorch's own peaks.
#[test]
fn the_recorded_allocator_simulated_reaches_the_recorded_peaks() {
    for (name, path) in recordings::all() {
        let opened = open(&path, &LoadOptions::default()).unwrap();
        // Where expandable segments were switched at run time, no single allocator was recorded; and where others used
        // the device, too, the driver refused memory as no simulated device would.
        if is_incomplete(&name) || name == "pools" || !opened.notes.is_empty() {
            assert!(!name.starts_with("zero3") && !name.ends_with("-LR"), "{name} is complete");
            continue;
        }
        let truth = Truth::of_recording(&path);
        let found = simulate(&opened, opened.recorded_by());
        assert_eq!(found.reserved_peak_bytes, truth.get("reserved_bytes.all.peak"), "{name}");
        assert_eq!(found.active_peak_bytes, truth.get("active_bytes.all.peak"), "{name}");
        assert_eq!(found.requested_peak_bytes, truth.get("requested_bytes.all.peak"), "{name}");
        assert_eq!(found.alloc_retries, truth.get("num_alloc_retries"), "{name}");
        assert_eq!(found.oom_count, truth.get("num_ooms"), "{name}");
    }
}

/// A what-if of what was recorded: with the addresses of `DriverAddresses` in place of those recorded.
#[test]
fn with_the_drivers_addresses_the_peaks_are_those_with_the_recorded_ones() {
    for (name, path) in recordings::all() {
        let opened = open(&path, &LoadOptions::default()).unwrap();
        if !opened.notes.is_empty() {
            continue;
        }
        let choice =
            Choice { spec: find(opened.recorded_by()).unwrap(), options: Options::default() };
        let setup = Setup { addresses: Some(AddressPolicy::Driver), ..Setup::default() };
        let what_if = run(&opened, &choice, &setup).unwrap();
        let recorded = simulate(&opened, opened.recorded_by());
        // Managed memory of a paged optimizer takes addresses, too, which the recording does not tell of.
        let allowed = if name == "h100-qlora" { 2 * MIB } else { 0 };
        let difference = what_if.reserved_peak_bytes.abs_diff(recorded.reserved_peak_bytes);
        assert!(difference <= allowed, "{name}: {difference}");
        assert_eq!(what_if.alloc_retries, recorded.alloc_retries, "{name}");
    }
}

/// A recording that was switched on late has the peaks that the same events have in the full one: memory is held from
/// the beginning on, and nothing was given back before its end.
#[test]
fn a_late_recording_is_compared_from_where_it_begins() {
    for (late, full) in [
        ("opt-1.3b-LR-var.late", "opt-1.3b-LR-var"),
        ("opt-1.3b-LR-var.ring20k", "opt-1.3b-LR-var"),
    ] {
        let (Some(late), full) = (recordings::all().remove(late), &recordings::all()[full]) else {
            continue;
        };
        let late = open(&late, &LoadOptions::default()).unwrap();
        let full = open(full, &LoadOptions::default()).unwrap();
        assert!(late.trace.start_events > 1000);
        let (of_late, of_full) = (simulate(&late, "caching"), simulate(&full, "caching"));
        assert_eq!(of_late.reserved_peak_bytes, of_full.reserved_peak_bytes);
        let recorded = late.recorded.unwrap();
        assert_eq!(of_late.active_peak_bytes, recorded.active_peak_bytes);
    }
}

/// Where frees complete in the flush of a malloc, the malloc does not search its cache again, and no entry says so.
#[test]
fn a_malloc_that_flushes_does_not_take_what_the_flush_completed() {
    let (a, b, c) = (0x7f00_0000_0000, 0x7f00_1000_0000, 0x7f00_2000_0000);
    let steps = [
        (Action::SegmentAlloc, a, 60),
        (Action::Alloc, a, 60),
        (Action::FreeRequested, a, 60),
        (Action::FreeCompleted, a, 60),
        (Action::Alloc, a, 30),
        (Action::Alloc, a + 30 * MIB, 30),
        (Action::SegmentAlloc, b, 22),
        (Action::Alloc, b, 22),
        (Action::FreeRequested, b, 22),
        (Action::FreeCompleted, b, 22),
        (Action::FreeRequested, a, 30),
        (Action::FreeCompleted, a, 30),
        (Action::SegmentFree, b, 22),
        (Action::SegmentAlloc, c, 30),
        (Action::Alloc, c, 30),
    ];
    let entry = |(action, addr, mib): (Action, u64, u64)| Entry {
        addr,
        size: mib * MIB,
        time_us: 0,
        stack: Entry::NO_STACK,
        stream: StreamId(0),
        action,
        pool: PoolId::DEFAULT,
    };
    let records = Records {
        entries: steps.into_iter().map(entry).collect(),
        has_pools: true,
        streams: vec![0],
        pools: vec![(0, 0)],
        ..Records::default()
    };
    let found = verify(&records, &Environment::new(AllocConf::default()));
    assert_eq!(found.difference_count, 0, "{:?}", found.differences.first());
    assert_eq!(found.retries, 1);
}
