//! Plans on real traces, checked against `compare` on devices of the stated size and one step below.
//!
//! Where more recordings lie next to the checkout (`../shared/traces`, or the folder that `GMLAKE_TRACES` names),
//! those of
//! `reports/plan.md` that are not in `traces/` are checked too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gmlake::allocator::ALL;
use gmlake::compare::compare;
use gmlake::plan::{
    DEFAULT_RESOLUTION, Limit, Plan, PlanOptions, Series, Target, Trial, fit_job, plan, plan_job,
    trial,
};
use gmlake::sim::job::{jobs, quantity};
use gmlake::sim::{Choices, Memory, Opened, Scenario, Setup, choose, open};
use gmlake::trace::LoadOptions;
use gmlake::units::{Bytes, GIB};

fn find(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let more = std::env::var_os("GMLAKE_TRACES").map(PathBuf::from);
    let folders = [root.join("traces"), more.unwrap_or_else(|| root.join("../shared/traces"))];
    let paths = folders.iter().map(|folder| folder.join(format!("{name}.pickle.xz")));
    paths.into_iter().find(|path| path.exists())
}

fn opened(name: &str) -> Option<Opened> {
    Some(open(&find(name)?, &LoadOptions::default()).unwrap())
}

fn choices(allocators: &[&str]) -> Choices {
    let names: Vec<String> = allocators.iter().map(|&name| name.to_owned()).collect();
    Choices { allocators: choose(&names, &[]).unwrap(), ..Choices::default() }
}

fn options(allocators: &[&str], targets: &[Bytes]) -> PlanOptions {
    let target = |&bytes: &Bytes| Target { name: bytes.to_string(), ..Target::of_size(bytes) };
    PlanOptions {
        choices: choices(allocators),
        targets: targets.iter().map(target).collect(),
        resolution: DEFAULT_RESOLUTION,
    }
}

/// What `compare --device-memory` says: the number of requests that were left out, for each allocator.
fn ooms(opened: &Opened, allocators: &Choices, memory: Bytes) -> Vec<u64> {
    let setup = Setup { memory: Memory::Bytes(memory), ..Setup::default() };
    let found = compare(opened, &Choices { setup, ..allocators.clone() }).unwrap();
    let simulated = found.runs.iter().filter(|run| ALL.iter().any(|s| s.name == run.allocator));
    simulated.map(|run| run.oom_count).collect()
}

fn check(opened: &Opened, allocators: &[&str]) -> Plan {
    let options = options(allocators, &[40 * GIB]);
    let found = plan(opened, &options).unwrap();
    assert_eq!(found.needs.len(), options.choices.allocators.len());
    for (index, need) in found.needs.iter().enumerate() {
        let name = format!("{}: {}", opened.file, need.allocator);
        let one = choices(&[&need.allocator]);
        let smallest = need.smallest_bytes().unwrap_or_else(|| panic!("{name}: none was found"));
        assert_eq!(ooms(opened, &one, smallest), [0], "{name} at {smallest}");
        let below = smallest - found.resolution_bytes;
        assert!(ooms(opened, &one, below)[0] > 0, "{name} at {below}");
        assert_eq!(need.below.unwrap().capacity_bytes, below, "{name}");
        // Live bytes may be more: those that wait for another stream can be waited for.
        assert!(smallest.is_multiple_of(DEFAULT_RESOLUTION), "{name}: {smallest}");
        let verdict = need.verdicts[0];
        assert_eq!(ooms(opened, &one, 40 * GIB)[0] == 0, verdict.trial.runs(), "{name} at 40 GiB");
        if let Some(spare) = verdict.spare_bytes {
            assert_eq!(spare, (40 * GIB).saturating_sub(smallest), "{name}");
        }
        assert_eq!(index, found.needs.iter().position(|n| n.allocator == need.allocator).unwrap());
    }
    found
}

#[test]
fn the_smallest_memory_runs_and_a_step_less_does_not() {
    let real = ["caching", "expandable", "native", "gmlake-released", "bound"];
    check(&opened("opt-1.3b-LR-var").unwrap(), &real);
    check(&opened("zero3-opt-1.3b-LR-w4.b32.r0").unwrap(), &[]);
    check(&opened("zero3-opt-1.3b-LR-w4.b160.r0").unwrap(), &real);
    for name in ["zero3-opt-1.3b-LR-w4.r0", "generate-7b"] {
        match opened(name) {
            Some(opened) => drop(check(&opened, &["caching", "expandable"])),
            None => eprintln!("{name} is not here: skipped"),
        }
    }
}

/// What a plan takes from the run without a limit is what a run on that device shows.
#[test]
fn no_run_is_left_out_that_would_have_gone_another_way() {
    for name in ["opt-1.3b-LR.expandable", "streams", "graphs", "pools"] {
        let opened = opened(name).unwrap();
        let sizes = [12 * GIB, 60 * GIB, 300 * GIB];
        let found = plan(&opened, &options(&[], &sizes)).unwrap();
        for need in &found.needs {
            let choices = choices(&[&need.allocator]);
            let shown: Vec<Trial> = need.verdicts.iter().map(|verdict| verdict.trial).collect();
            let choice = choices.allocators[0].clone();
            let scenario = Scenario::new(&opened, choice, choices.setup);
            let run = |&size| trial(&scenario, &Target::of_size(size)).unwrap();
            let runs: Vec<Trial> = sizes.iter().map(run).collect();
            assert_eq!(shown, runs, "{name}: {}", need.allocator);
        }
    }
}

/// The batch sizes of one job make a series, whose borders lie where a run says that they do.
#[test]
fn a_series_tells_where_each_allocator_stops_fitting() {
    let files = ["zero3-opt-1.3b-LR-w4.b160.r0", "zero3-opt-1.3b-LR-w4.b32.r0"];
    let found = jobs(&files.map(|name| find(name).unwrap()), false).unwrap();
    let (name, values) = quantity(&found, None).unwrap().unwrap();
    assert_eq!((name.as_str(), &values[..]), ("b", &[160.0, 32.0][..]));
    let options = options(&["caching", "expandable"], &[8 * GIB, 40 * GIB, 80 * GIB]);
    let plans: Vec<_> = found.iter().rev().map(|job| plan_job(job, &options, |_| ())).collect();
    let series = Series { quantity: name, values: vec![32.0, 160.0], jobs: plans };
    for allocator in 0..2 {
        assert_eq!(series.limit(allocator, 0), Some(Limit::Below { smallest: 32.0 }));
        assert_eq!(series.limit(allocator, 2), Some(Limit::Beyond { largest: 160.0 }));
        let Some(Limit::Between { runs, fails, estimate }) = series.limit(allocator, 1) else {
            panic!("no border");
        };
        assert_eq!((runs, fails), (32.0, 160.0));
        let need =
            |job: usize| series.jobs[job].worst(allocator).unwrap().1.smallest_bytes().unwrap();
        let share = (40 * GIB - need(0)) as f64 / (need(1) - need(0)) as f64;
        assert!((estimate - (32.0 + 128.0 * share)).abs() < 1e-9);
    }
}

/// A thousand ranks, of which one is no trace.
#[test]
fn a_job_of_1024_ranks_is_planned_with_one_bad_file_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let target = find("pools").unwrap();
    for rank in 0..1024 {
        let link = folder.path().join(format!("job.rank{rank}.pickle.xz"));
        if rank == 700 {
            std::fs::write(link, "no trace").unwrap();
        } else {
            std::os::unix::fs::symlink(&target, link).unwrap();
        }
    }
    let found = jobs(&[folder.path().to_owned()], false).unwrap();
    assert_eq!((found.len(), found[0].ranks.len()), (1, 1024));
    let options = options(&["caching", "expandable"], &[GIB]);
    let count = std::sync::atomic::AtomicUsize::new(0);
    let done = |_: &Path| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let plan = plan_job(&found[0], &options, done);
    assert_eq!(count.into_inner(), 1024);
    assert_eq!((plan.ranks.len(), plan.failures.len()), (1023, 1));
    assert!(plan.failures[0].contains("job.rank700.pickle.xz"), "{:?}", plan.failures);
    assert_eq!(plan.ranks[1022].rank, Some(1023), "in the order of the ranks");
    assert_eq!((plan.worst(0).unwrap().0.rank, plan.spread(0)), (Some(0), Some(0)));
    let fit = fit_job(&found[0], &options.choices, &Target::of_size(GIB), |_| ());
    assert_eq!((fit.ranks.len(), fit.failures.len()), (1023, 1));
    assert!(fit.worst().unwrap().trial.runs());
}

/// 10.0625 GiB: the nearest that is printed would be too little.
#[test]
fn the_smallest_memory_is_enough_when_it_is_typed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.csv");
    let blocks = (0..161).map(|block| format!("alloc,{block},64MiB,0\n"));
    fs::write(&path, format!("event,id,size,stream\n{}", blocks.collect::<String>())).unwrap();
    let run = |command: &str, more: &[&str]| {
        let mut program = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        program.arg(command).arg(&path).args(more).output().unwrap()
    };
    let plan = run("plan", &["--allocators", "caching"]).stdout;
    let plan = String::from_utf8(plan).unwrap();
    assert!(plan.contains("\ncaching    10.07 GiB  10.06 GiB"), "{plan}");
    for (memory, code) in [("10.06GiB", 1), ("10.07GiB", 0)] {
        let fits = run("fits", &["--device-memory", memory]);
        assert_eq!(fits.status.code(), Some(code), "{memory}");
    }
}
