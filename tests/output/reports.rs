//! Reports of a tiny trace, in every form, with the same numbers in all.

use std::path::Path;

use gmlake::allocator::Usage;
use gmlake::compare::Comparison;
use gmlake::compare::show::{ReportFormat, table};
use gmlake::device::CallCounts;
use gmlake::run::{Moment, RECORDED, Range, RunSummary, StepSummary, Timeline, utilization};
use gmlake::units::{Bytes, GIB, MIB};

fn run(allocator: &str, reserved: Bytes, active: Bytes) -> RunSummary {
    let mut timeline = Timeline::new(4_000_000, Usage::default());
    for share in 1..=4 {
        let part = |bytes: Bytes| bytes * share / 4;
        let (active, reserved) = (part(active), part(reserved));
        let usage = Usage { requested: active, allocated: active, active, reserved };
        timeline.push((share - 1) * 1_000_000, Range::of(usage), usage);
    }
    RunSummary {
        file: "jobs/tiny_job.pickle.xz".to_owned(),
        allocator: allocator.to_owned(),
        events: 4,
        requested_peak_bytes: active - 1,
        active_peak_bytes: active,
        reserved_peak_bytes: reserved,
        device_calls: CallCounts { mem_alloc: 1234, mem_free: 2, ..CallCounts::default() },
        host_ns: (allocator != RECORDED).then_some(168),
        timeline,
        utilization: utilization(active, reserved),
        fragmentation: 1.0 - utilization(active, reserved),
        ..RunSummary::default()
    }
}

fn tiny() -> Comparison {
    let mut gmlake = run("gmlake", 5 * GIB, 4 * GIB);
    gmlake.options = vec!["fragment_limit=128MiB".to_owned()];
    gmlake.allocator_counters = vec![("stitches".to_owned(), 7), ("splits".to_owned(), 1_000)];
    gmlake.steps = vec![StepSummary {
        end_event: 4,
        active_peak_bytes: 4 * GIB,
        reserved_peak_bytes: 5 * GIB,
        allocator_counters: vec![("stitches".to_owned(), 7), ("splits".to_owned(), 1_000)],
        ..StepSummary::default()
    }];
    let mut native = run("native", 3 * GIB, 3 * GIB);
    (native.oom_count, native.first_oom_event) = (2, Some(3));
    Comparison {
        file: "jobs/tiny_job.pickle.xz".to_owned(),
        runs: vec![
            run(RECORDED, 8 * GIB, 4 * GIB),
            run("caching", 8 * GIB + 20 * MIB, 4 * GIB),
            gmlake,
            native,
            run("bound", 4 * GIB - MIB, 4 * GIB - MIB),
        ],
        reference: Some(RECORDED.to_owned()),
        span_us: 4_000_000,
        step_starts: vec![Moment { event: 0, time_us: 0 }],
        ..Comparison::default()
    }
}

fn written(format: ReportFormat, path: &str, comparisons: &[Comparison]) -> Vec<u8> {
    let mut out = Vec::new();
    let report = format.report(Path::new(path)).expect("a name with the right ending");
    report.write(comparisons, &mut out).expect("memory can be written");
    out
}

fn text(format: ReportFormat) -> String {
    String::from_utf8(written(format, "x", &[tiny()])).expect("reports are text")
}

/// In one snapshot, so that a new column has one file to look at.
#[test]
fn columns() {
    let table = table::comparison(&tiny(), true, table::Look::default());
    let texts = [table, text(ReportFormat::Markdown), text(ReportFormat::Csv)];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn json() {
    let mut comparison = tiny();
    comparison.runs = vec![comparison.runs.swap_remove(2)];
    let json = written(ReportFormat::Json, "x", &[comparison]);
    insta::assert_snapshot!(String::from_utf8(json).unwrap());
}

#[test]
fn a_plot_shows_every_allocator_by_name_and_is_the_same_each_time() {
    let svg = written(ReportFormat::Plot, "x.svg", &[tiny()]);
    assert_eq!(svg, written(ReportFormat::Plot, "x.svg", &[tiny()]));
    let svg = String::from_utf8(svg).unwrap();
    for text in ["tiny_job", "recorded", "caching", "gmlake", "native", "active", "2 OOMs", "GiB"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn plots_of_any_number_of_files_have_their_size() {
    for (files, height) in [(0, 900), (1, 900), (2, 1280), (3, 1920)] {
        let comparisons = vec![tiny(); files];
        let png = written(ReportFormat::Plot, "x.png", &comparisons);
        let reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (1600, height), "{files} files");
    }
    let many = String::from_utf8(written(ReportFormat::Plot, "x.svg", &vec![tiny(); 5])).unwrap();
    assert_eq!(many.matches("tiny_job").count(), 5);
}

#[test]
fn a_plot_of_nothing_much_is_drawn_too() {
    let empty = Comparison { runs: vec![RunSummary::default()], ..Comparison::default() };
    for path in ["x.svg", "x.png"] {
        assert!(!written(ReportFormat::Plot, path, std::slice::from_ref(&empty)).is_empty());
    }
    assert!(ReportFormat::Plot.report(Path::new("x.pdf")).is_err());
}
