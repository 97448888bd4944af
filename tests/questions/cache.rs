//! Runs that are not made again: what comes from a cache is what a run would have said.

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::recordings::all;
use gmlake::alloc_conf::TorchVersion;
use gmlake::allocator;
use gmlake::compare::compare_files;
use gmlake::run::RunSummary;
use gmlake::sim::{Choice, Choices, Memory, Scenario, Setup, choose, open, run};
use gmlake::sweep::{Grid, SweepPlan, SweepRow, sweep};
use gmlake::trace::LoadOptions;
use gmlake::units::GIB;

/// Of every kind one: streams, graphs, pools, a limit, pages, a lost beginning.
const RECORDINGS: [&str; 6] = [
    "streams",
    "graphs",
    "pools",
    "opt-1.3b-LR-var.gc60-cap16pct",
    "detection.expandable-cap20pct",
    "opt-1.3b-LR-var.ring20k",
];

/// A run in words, without the time that it took and without memory over time.
fn in_words(run: &RunSummary) -> String {
    let (host_ns, timeline) = (None, Default::default());
    format!("{:?}", RunSummary { host_ns, timeline, ..run.clone() })
}

#[test]
fn a_rank_from_the_cache_has_the_numbers_of_its_own_run() {
    let setup = Setup { cache: Some(Arc::default()), ..Setup::default() };
    for name in RECORDINGS {
        let path = &all()[name];
        let mut opened = open(path, &LoadOptions::default()).unwrap();
        for spec in allocator::by_default() {
            let choice = Choice { spec, options: allocator::Options::default() };
            let plain = run(&opened, &choice, &Setup::default()).unwrap();
            for name in ["first", "second"] {
                opened.file = name.to_owned();
                let scenario = Scenario::new(&opened, choice.clone(), setup.clone());
                let cached = scenario.run().unwrap();
                let expected = RunSummary { file: name.to_owned(), ..plain.clone() };
                assert_eq!(in_words(cached), in_words(&expected), "{path:?} {}", spec.name);
            }
        }
    }
}

/// Ranks whose driver handed out other addresses: farther up, in reverse, and low ones.
#[test]
fn a_rank_at_other_addresses_has_the_numbers_of_its_own_run() {
    let setup = Setup { cache: Some(Arc::default()), ..Setup::default() };
    let moves: [fn(u64) -> u64; 4] = [
        |at| at,
        |at| at + (1 << 36),
        |at| (1_u64 << 62).saturating_sub(at) & !0xFFF_FFFF,
        |at| at & ((1 << 34) - 1),
    ];
    for name in RECORDINGS {
        let path = &all()[name];
        for place in moves {
            let mut opened = open(path, &LoadOptions::default()).unwrap();
            opened.records.entries.iter_mut().for_each(|entry| entry.addr = place(entry.addr));
            let spec = allocator::find(opened.recorded_by()).unwrap();
            let choice = Choice { spec, options: allocator::Options::default() };
            let plain = run(&opened, &choice, &Setup::default()).unwrap();
            let scenario = Scenario::new(&opened, choice.clone(), setup.clone());
            let cached = scenario.run().unwrap();
            assert_eq!(in_words(cached), in_words(&plain), "{path:?}");
        }
    }
}

#[test]
fn programs_that_differ_in_one_request_have_other_fingerprints() {
    let folder = tempfile::tempdir().unwrap();
    let program = |rows: &str| {
        let path = folder.path().join("job.csv");
        std::fs::write(&path, format!("event,id,size,stream\n{rows}")).unwrap();
        open(&path, &LoadOptions::default()).unwrap().program()
    };
    let usual = program("alloc,a,1000,0\nalloc,b,2000,0\nfree,a,,\n");
    assert_eq!(usual, program("alloc,x,1000,0\nalloc,y,2000,0\nfree,x,,\n"));
    for other in [
        "alloc,a,1001,0\nalloc,b,2000,0\nfree,a,,\n",
        "alloc,a,1000,0\nalloc,b,2000,0\nfree,b,,\n",
        "alloc,a,1000,0\nalloc,b,2000,7\nfree,a,,\n",
        "alloc,a,1000,0\nalloc,b,2000,0\n",
    ] {
        assert_ne!(usual, program(other), "{other}");
    }
}

fn swept(path: PathBuf, axes: &[&str], only_fitting: bool) -> (Vec<SweepRow>, u64, u64) {
    let axes: Vec<String> = axes.iter().map(|&axis| axis.to_owned()).collect();
    let names = ["caching", "expandable", "gmlake", "lake", "native"].map(str::to_owned);
    let grid = Grid::new(&names, &axes, &Setup::default()).unwrap();
    let open = LoadOptions { torch_version: Some(TorchVersion::V2_11), ..LoadOptions::default() };
    let plan = SweepPlan { grid, open, is_strict: false, only_fitting, journal: None };
    let mut found = sweep(&[path], &plan, || ()).remove(0).unwrap();
    found.rows.iter_mut().for_each(|row| row.host_ns = None);
    (found.rows, found.shared, found.left_out)
}

#[test]
fn points_of_a_sweep_that_need_no_run_have_the_numbers_of_one() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces/opt-1.3b-RO.pickle.xz");
    let axes = ["device-memory=20GiB,36GiB,41GiB,52GiB,60GiB,80GiB,unlimited"];
    let (rows, shared, _) = swept(path.clone(), &axes, false);
    assert!(shared >= 10, "{shared}");
    let opened = open(&path, &LoadOptions::default()).unwrap();
    for row in &rows {
        let spec = allocator::find(&row.allocator).unwrap();
        let choice = Choice { spec, options: allocator::Options::default() };
        let memory = row.device_memory_bytes.map_or(Memory::Unlimited, Memory::Bytes);
        let plain = run(&opened, &choice, &Setup { memory, ..Setup::default() }).unwrap();
        let expected = SweepRow::new(&plain, row.settings.clone());
        assert_eq!(*row, SweepRow { host_ns: None, ..expected });
    }
    let (fitting, again, left_out) = swept(path, &axes, true);
    assert_eq!((again, left_out), (shared, 5));
    let is_large = |row: &&SweepRow| row.device_memory_bytes.is_none_or(|bytes| bytes > 20 * GIB);
    assert_eq!(fitting, rows.iter().filter(is_large).cloned().collect::<Vec<_>>());
}

/// The page asks for the run, its history, what it lost and where it ran out: the second replay answers all of it.
#[test]
fn the_page_replays_the_recorded_allocator_at_most_twice() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let frames = "traces/opt-1.3b-LR-var.frames.pickle.xz";
    for (file, memory, is_refused) in [
        (frames, Memory::AsRecorded, false),
        (frames, Memory::Bytes(28 * GIB), true),
        ("tests/data/cases/oom/free-yet-refused.pickle", Memory::AsRecorded, true),
    ] {
        let choices = Choices {
            open: LoadOptions { stacks: true, ..LoadOptions::default() },
            allocators: choose(&["caching".to_owned(), "expandable".to_owned()], &[]).unwrap(),
            setup: Setup { memory, ..Setup::default() },
            has_peaks: true,
            in_depth: true,
            ..Choices::default()
        };
        let file = folder.join(file);
        let found = compare_files(std::slice::from_ref(&file), &choices, |_| ());
        let comparison = found.into_iter().next().unwrap().unwrap();
        assert!(comparison.history.is_some() && comparison.loss.is_some());
        assert_eq!(comparison.refusal.is_some(), is_refused, "{}", file.display());
        let opened = open(&file, &choices.open).unwrap();
        let recorded = Scenario::recorded(&opened, None, &choices.setup).unwrap();
        let replays = choices.setup.runs.replays(&choices.setup.conditions(&recorded.choice));
        assert_eq!(replays, 2, "{}", file.display());
    }
}
