//! Cuts: recordings cut anywhere, in any way. No answer says more than the complete recording confirms.

use std::io::Write;
use std::path::Path;

use crate::common::recordings::{self, case};
use gmlake::alloc_conf::TypedConf;
use gmlake::allocator::ALL;
use gmlake::blame::show::headline;
use gmlake::blame::{Question, blame};
use gmlake::compare::show::{verdict as sentence, write_markdown};
use gmlake::compare::{Comparison, compare, compare_files};
use gmlake::device::Profile;
use gmlake::page::Page;
use gmlake::plan::{FitVerdict, JobFit, PlanOptions, RankFit, Target, plan, trial};
use gmlake::run::RECORDED;
use gmlake::sim::{Choices, Conf, Memory, Opened, Scenario, Setup, choose, open_bytes, run};
use gmlake::sweep::show::sections;
use gmlake::sweep::{Grid, Sweep, SweepPlan, sweep};
use gmlake::trace::{
    self, Bounded, Certainty, CoverageKind, LoadOptions, Records, choose_device, least_memory,
    write_snapshot,
};
use gmlake::tune::{TuneOptions, tune};
use gmlake::verify::state_at;

/// The ways in which a recording is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The history stops, and the snapshot is taken later.
    Stopped,
    /// The beginning is lost.
    Tail,
    /// The snapshot is taken here.
    Dumped,
    /// The history stops, and the file says that nothing was held.
    Emptied,
}

const WAYS: [Cut; 4] = [Cut::Stopped, Cut::Tail, Cut::Dumped, Cut::Emptied];

fn cut(records: &Records, at: usize, how: Cut) -> Records {
    let mut part = records.clone();
    match how {
        Cut::Stopped => part.entries.truncate(at),
        Cut::Tail => drop(part.entries.drain(..at)),
        Cut::Dumped => {
            let conf = part.settings.clone().unwrap_or_default();
            part.segments = state_at(records, at, &conf).layout.segments;
            part.entries.truncate(at);
        }
        Cut::Emptied => {
            part.entries.truncate(at);
            part.segments.clear();
        }
    }
    part.annotations.retain(|annotation| {
        part.entries.last().is_some_and(|last| annotation.time_us <= last.time_us)
    });
    part.live_stacks.clear();
    part
}

/// A complete recording, and what is said of it.
struct Whole {
    name: String,
    records: Records,
    opened: Opened,
}

impl Whole {
    fn open(name: &str, path: &Path, stacks: bool) -> Self {
        let options = LoadOptions { stacks, ..LoadOptions::default() };
        let records = choose_device(trace::load(path, &options).unwrap(), None, path).unwrap();
        let opened = open_bytes(Path::new(name), &written(&records), &with_stacks(stacks)).unwrap();
        assert_eq!(opened.coverage.kind(), CoverageKind::Complete, "{name}");
        Self { name: name.to_owned(), records, opened }
    }

    /// The recording cut at so many places in every way, and what each part is.
    fn parts(&self, places: usize) -> impl Iterator<Item = (Cut, Records, String)> {
        let cuts = WAYS.into_iter().flat_map(move |how| (1..places).map(move |n| (n, how)));
        cuts.map(move |(number, how)| {
            // Not at even parts of the recording: steps are even, too.
            let at = self.records.entries.len() * number / places + 7 * number * number;
            let at = at.min(self.records.entries.len() - 1);
            let what = format!("{} {how:?} at {at}", self.name);
            (how, cut(&self.records, at, how), what)
        })
    }
}

fn with_stacks(stacks: bool) -> LoadOptions {
    LoadOptions { stacks, ..LoadOptions::default() }
}

fn written(records: &Records) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_snapshot(records, &mut bytes).expect("memory takes it");
    bytes
}

fn reopen(records: &Records) -> Opened {
    let name = Path::new("cut.pickle");
    open_bytes(name, &written(records), &with_stacks(true)).expect("it opens")
}

fn allocators(names: &[&str]) -> Choices {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let allocators = choose(&names, &[]).expect("they are known");
    Choices { allocators, open: with_stacks(true), ..Choices::default() }
}

fn need(opened: &Opened) -> (u64, u64) {
    let choices = allocators(&["caching"]);
    let options = PlanOptions { choices, targets: Vec::new(), resolution: 2 << 20 };
    let plan = plan(opened, &options).expect("it runs");
    (plan.live_peak_bytes, plan.needs[0].smallest_bytes().unwrap_or(0))
}

fn verdict(opened: &Opened, capacity: u64) -> FitVerdict {
    verdict_of("caching", opened, capacity)
}

fn verdict_of(allocator: &str, opened: &Opened, capacity: u64) -> FitVerdict {
    let choices = allocators(&[allocator]);
    let scenario = Scenario::new(opened, choices.allocators[0].clone(), choices.setup);
    let trial = trial(&scenario, &Target::of_size(capacity)).expect("it runs");
    let coverage = opened.coverage.clone();
    let least_bytes = least_memory(&opened.trace);
    let (file, allocator) = (String::new(), scenario.choice.spec.name);
    let rank = RankFit { rank: None, file, allocator, coverage, least_bytes, trial };
    JobFit { ranks: vec![rank], ..JobFit::default() }.verdict().expect("a rank was read")
}

/// Cut at any event, in any way: the bound holds, and no device fits that does not hold the complete job.
#[test]
fn no_cut_recording_claims_more_than_the_complete_one() {
    let python = case("stacks/python.pickle").map(|path| ("python".to_owned(), path));
    let small = ["streams", "opt-1.3b-N", "zero3-opt-1.3b-N-w4.b24.r0"];
    let shipped = recordings::all().into_iter().filter(|(name, _)| small.contains(&name.as_str()));
    let mut cuts = 0;
    for (name, path) in shipped.chain(python) {
        let whole = Whole::open(&name, &path, false);
        let (live, smallest) = need(&whole.opened);
        for (how, records, what) in whole.parts(8) {
            let opened = reopen(&records);
            let what = format!("{what}: {:?}", opened.coverage);
            let (part_live, _) = need(&opened);
            assert!(part_live <= live, "{what}: {part_live} of {live}");
            if let Some(recorded) = &opened.recorded {
                let of_whole = whole.opened.recorded.as_ref().unwrap().reserved_peak_bytes;
                assert!(recorded.reserved_peak_bytes <= of_whole, "{what}");
            }
            // A dump between two whole steps cannot be told from a shorter job.
            if how == Cut::Dumped && !opened.coverage.is_partial() {
                continue;
            }
            for capacity in [part_live, (part_live + smallest) / 2, smallest - (2 << 20)] {
                assert_ne!(verdict(&opened, capacity), FitVerdict::Fits, "{what}: {capacity}");
            }
            cuts += 1;
        }
    }
    assert!(cuts >= 60, "{cuts} cuts");
}

/// The recordings on which every other question is asked of every cut.
fn questioned() -> Vec<Whole> {
    let streams = recordings::all().remove("streams").map(|path| ("streams", path));
    let python = case("stacks/python.pickle").map(|path| ("python", path));
    let found = streams.into_iter().chain(python);
    found.map(|(name, path)| Whole::open(name, &path, true)).collect()
}

/// What a comparison is written as, for people and for programs.
fn shown(comparison: &Comparison) -> Vec<String> {
    type Form = fn(&[Comparison], &mut dyn Write) -> gmlake::report::Result<()>;
    let text = |write: Form| {
        let mut out = Vec::new();
        write(std::slice::from_ref(comparison), &mut out).expect("memory takes it");
        String::from_utf8(out).expect("it is a text")
    };
    let page = |all: &[Comparison], out: &mut dyn Write| Page::default().write(all, out);
    vec![sentence(comparison), text(write_markdown), text(page)]
}

#[test]
fn compare_report_and_blame_give_bounds_that_hold_and_say_that_they_are_bounds() {
    let choices = allocators(&["caching", "bound"]);
    let folder = tempfile::tempdir().unwrap();
    for whole in questioned() {
        let complete = compare(&whole.opened, &choices).unwrap();
        let of_whole = blame(&whole.opened, &Question::default()).unwrap();
        for (_, records, what) in whole.parts(5) {
            let part = reopen(&records);
            let found = compare(&part, &choices).unwrap();
            for run in found.runs.iter().filter(|run| run.allocator != RECORDED) {
                let all = complete.run(&run.allocator).unwrap();
                assert!(run.requested_peak_bytes <= all.requested_peak_bytes, "{what}: {run:?}");
                assert!(run.active_peak_bytes <= all.active_peak_bytes, "{what}: {run:?}");
            }
            let blamed = blame(&part, &Question::default()).unwrap();
            assert!(blamed.live_bytes <= of_whole.live_bytes, "{what}");
            assert_eq!(blamed.certainty, part.coverage.of_what_was_seen(), "{what}");
            let bound =
                format!("; {}", Bounded { bytes: blamed.live_bytes, certainty: blamed.certainty });
            assert!(headline(&blamed).contains(&bound), "{what}");
            assert_eq!(found.coverage, part.coverage, "{what}");
            let Some(caution) = part.coverage.caution() else { continue };
            let file = folder.path().join("cut.pickle");
            std::fs::write(&file, written(&records)).unwrap();
            let deep = Choices { in_depth: true, ..choices.clone() };
            let deep = compare_files(&[file], &deep, |_| {}).remove(0).unwrap();
            for text in shown(&deep) {
                let reason = part.coverage.reason();
                assert!(text.contains(&reason), "{what}: {reason}: {text}");
                assert!(!text.contains("would do with"), "{what}: {text}");
            }
            assert!(found.notes.contains(&caution), "{what}: {:?}", found.notes);
        }
    }
}

/// Whatever the allocator: what is called a bound is one, and a device that a part does not fit the whole does not fit.
#[test]
fn what_a_part_is_sure_of_holds_for_the_whole() {
    let names: Vec<&str> = ALL.iter().map(|spec| spec.name).collect();
    let choices = allocators(&names);
    let mut sure = 0;
    for whole in questioned() {
        let complete = compare(&whole.opened, &choices).unwrap();
        for (how, records, what) in whole.parts(5) {
            let part = reopen(&records);
            // A dump between two whole steps cannot be told from a shorter job.
            if how == Cut::Dumped && !part.coverage.is_partial() {
                continue;
            }
            for run in compare(&part, &choices).unwrap().runs {
                let (name, held) = (&run.allocator, run.reserved_peak_bytes);
                let most = complete.run(name).unwrap().reserved_peak_bytes;
                assert_ne!(run.certainty, Certainty::Exact, "{what}: {name}");
                assert!(run.certainty == Certainty::About || held <= most, "{what}: {name}");
                sure += usize::from(run.certainty == Certainty::AtLeast);
                let of = |opened| verdict_of(name, opened, most);
                if name != RECORDED && of(&part) == FitVerdict::DoesNotFit {
                    assert_eq!(of(&whole.opened), FitVerdict::DoesNotFit, "{what}: {name}");
                }
            }
        }
    }
    assert!(sure >= 60, "{sure} bounds");
}

/// What tune recommends, the complete recording confirms: it holds no more than PyTorch's defaults do.
#[test]
fn tune_recommends_nothing_that_the_complete_recording_refutes() {
    let mut recommended = 0;
    for whole in questioned() {
        for (_, records, what) in whole.parts(4) {
            let part = reopen(&records);
            if part.too_little_to_tune().is_some() {
                continue;
            }
            let options = TuneOptions {
                setup: Setup::default(),
                memory: Memory::AsRecorded,
                profile: Profile::open("h200").unwrap(),
                worth: 0.01,
            };
            let found = tune(&part, &options).unwrap();
            let held = |conf: &str| {
                let conf = Conf::Typed(TypedConf::new(conf, None).unwrap());
                let choice = allocators(&[conf.allocator()]).allocators.remove(0);
                let setup = Setup { conf: Some(conf), ..Setup::default() };
                run(&whole.opened, &choice, &setup).unwrap().reserved_peak_bytes
            };
            let (best, usual) = (held(&found.best.conf), held(""));
            assert!(best <= usual, "{what}: {}: {best} of {usual}", found.best.conf);
            recommended += usize::from(found.helps());
        }
    }
    // Without the larger recording, which lies next to the checkout, there may be none.
    assert!(recommended > 0 || case("stacks/python.pickle").is_none());
}

/// A sweep of cut recordings has rows as any other; what they are is said first.
#[test]
fn sweep_says_of_every_cut_recording_that_its_rows_are_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let (names, axes) = (["caching".to_owned()], ["device-memory=16MiB,unlimited".to_owned()]);
    for whole in questioned() {
        let complete = rows(&whole.records, &names, &axes, folder.path());
        for (_, records, what) in whole.parts(5) {
            let (part, found) = (reopen(&records), rows(&records, &names, &axes, folder.path()));
            assert_eq!(found.caution.is_some(), part.coverage.is_partial(), "{what}");
            let swept = Sweep { axes: Vec::new(), rows: found.rows.clone() };
            for cells in &sections(&swept)[0].rows {
                let is_marked = cells.iter().any(|cell| cell.starts_with(['>', '~']));
                assert_eq!(is_marked, part.coverage.is_partial(), "{what}: {cells:?}");
            }
            for (row, all) in found.rows.iter().zip(&complete.rows) {
                assert!(row.oom_count == 0 || all.oom_count > 0, "{what}: {row:?}");
            }
        }
    }
}

fn rows(
    records: &Records,
    names: &[String],
    axes: &[String],
    folder: &Path,
) -> gmlake::sweep::Swept {
    let file = folder.join("cut.pickle");
    std::fs::write(&file, written(records)).unwrap();
    let plan = SweepPlan {
        grid: Grid::new(names, axes, &Setup::default()).unwrap(),
        open: LoadOptions::default(),
        is_strict: false,
        only_fitting: false,
        journal: None,
    };
    sweep(&[file], &plan, || ()).remove(0).unwrap()
}
