//! Reports of a tiny trace, in every form, with the same numbers in all.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use crate::common::cli::output;
use gmlake::allocator::{ALL, Role, Usage};
use gmlake::compare::chart::write_plot;
use gmlake::compare::show::{table, write_comparisons, write_csv, write_markdown};
use gmlake::compare::{self, Comparison};
use gmlake::device::{Bill, CallCounts};
use gmlake::plan::Card;
use gmlake::report::ImageFormat;
use gmlake::run::{Moment, Prices, RECORDED, RunSummary, StepSummary, Timeline, utilization};
use gmlake::simulation::Range;
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
        least_bytes: Some(4 * GIB - MIB),
        span_us: 4_000_000,
        step_starts: vec![Moment { event: 0, time_us: 0 }],
        ..Comparison::default()
    }
}

type Form = fn(&[Comparison], &mut dyn Write) -> gmlake::report::Result<()>;

fn written(form: Form, comparisons: &[Comparison]) -> Vec<u8> {
    let mut out = Vec::new();
    form(comparisons, &mut out).expect("memory can be written");
    out
}

fn text(form: Form) -> String {
    String::from_utf8(written(form, &[tiny()])).expect("reports are text")
}

const JSON: Form = |comparisons, out| write_comparisons("compare", comparisons, out);
const SVG: Form = |comparisons, out| write_plot(comparisons, ImageFormat::Svg, out);
const PNG: Form = |comparisons, out| write_plot(comparisons, ImageFormat::Png, out);

/// In one snapshot, so that a new column has one file to look at.
#[test]
fn columns() {
    let table = table::comparison(&tiny(), true, table::Look::default());
    let mut one = tiny();
    one.runs = vec![one.runs.swap_remove(2)];
    let json = String::from_utf8(written(JSON, &[one])).unwrap();
    let texts = [table, text(write_markdown), text(write_csv), json];
    insta::assert_snapshot!(texts.join("\n\n"));
}

#[test]
fn what_tables_show_is_in_the_csv_and_in_json_and_the_reference_names_it() {
    let mut priced = tiny();
    for run in &mut priced.runs {
        run.prices = Some(Prices::new("h200", Bill::default(), Some(1_000)));
    }
    let csv = written(write_csv, std::slice::from_ref(&priced));
    let heading = String::from_utf8(csv).unwrap().lines().next().unwrap().to_owned();
    let shown = compare::columns(&priced.runs).map(|column| column.key);
    let missing: Vec<_> = shown.filter(|key| !heading.split(',').any(|k| k == *key)).collect();
    assert!(missing.is_empty(), "not in the CSV: {missing:?}");

    let json = written(JSON, std::slice::from_ref(&priced));
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let run = &json["result"]["runs"][1];
    let is_in_json = |key: &&str| run.get(key).or(run["device_calls"].get(key)).is_some();
    let missing: Vec<_> = heading.split(',').filter(|key| !is_in_json(key)).collect();
    assert!(missing.is_empty(), "not in JSON: {missing:?}");

    let reference = include_str!("../../docs/json.md");
    let names = run.as_object().unwrap().keys();
    let missing: Vec<_> = names.filter(|key| !reference.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "not in docs/json.md: {missing:?}");
}

#[test]
fn a_plot_shows_every_allocator_by_name_and_is_the_same_each_time() {
    let svg = written(SVG, &[tiny()]);
    assert_eq!(svg, written(SVG, &[tiny()]));
    let svg = String::from_utf8(svg).unwrap();
    for text in ["tiny_job", "recorded", "caching", "gmlake", "native", "active", "2 OOMs", "GiB"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn plots_of_any_number_of_files_have_their_size() {
    for (files, height) in [(0, 900), (1, 900), (2, 1280), (3, 1920)] {
        let comparisons = vec![tiny(); files];
        let png = written(PNG, &comparisons);
        let reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (1600, height), "{files} files");
    }
    let many = String::from_utf8(written(SVG, &vec![tiny(); 5])).unwrap();
    assert_eq!(many.matches("tiny_job").count(), 5);
}

#[test]
fn a_plot_of_nothing_much_is_drawn_too() {
    let empty = Comparison { runs: vec![RunSummary::default()], ..Comparison::default() };
    for form in [SVG, PNG] {
        assert!(!written(form, std::slice::from_ref(&empty)).is_empty());
    }
    assert!(ImageFormat::of(Path::new("x.pdf")).is_err());
}

fn committed(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The first cells of the rows of a report's first table that begins with `heading`.
fn rows_of<'r>(report: &'r str, heading: &str) -> Vec<&'r str> {
    let first =
        |line: &'r str| line.split('|').nth(1).map(|cell| cell.trim_matches([' ', '\\', '*']));
    let mut rows = report.lines().map(first).skip_while(|&cell| cell != Some(heading));
    rows.by_ref().skip(2).map_while(|cell| cell).collect()
}

/// Recordings that are soon replayed stand for all: the others must have the same rows and columns.
#[test]
fn the_committed_comparison_is_what_the_program_writes() {
    let report = committed("compare.md");
    assert!(report.contains(&committed("opt-1.3b-LR-var.md")), "opt-1.3b-LR-var.md");
    let sections: Vec<_> = report.split("### ").skip(1).map(str::trim_end).collect();
    let mut shapes = BTreeSet::new();
    for section in &sections {
        let columns = section.lines().find(|line| line.starts_with("| allocator")).unwrap();
        let columns: Vec<_> = columns.split('|').map(str::trim).collect();
        shapes.insert((columns, rows_of(section, "allocator")));
    }
    assert_eq!(shapes.len(), 1, "one report, other rows or columns: {shapes:#?}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(title) = name.strip_suffix(".pickle.xz") else { continue };
        let section = sections.iter().find(|section| section.lines().next() == Some(title));
        let section = section.unwrap_or_else(|| panic!("compare.md has no {title}"));
        if path.metadata().unwrap().len() < 100_000 {
            let file = format!("traces/{name}");
            let written = output(&["compare", &file, "--export-markdown", "-"]);
            assert_eq!(written.trim_end(), format!("### {section}"), "{title}");
        }
    }
}

/// Rows only: to make this one takes longer.
#[test]
fn the_committed_benchmark_has_every_allocator_with_a_pool() {
    let pooled = ALL.iter().filter(|spec| spec.role != Role::Direct).map(|spec| spec.name);
    let pooled: Vec<_> = pooled.collect();
    assert_eq!(rows_of(&committed("bench.md"), "allocator"), pooled, "gmlake-sim bench");
}

#[test]
fn the_committed_plan_has_every_card() {
    let cards = Card::built_in();
    let cards: BTreeSet<&str> = cards.iter().map(|card| &card.name[..]).collect();
    let plan = committed("plan.md");
    let shown = rows_of(&plan, "device").into_iter().collect();
    assert_eq!(cards, shown, "gmlake-sim plan traces/opt-1.3b-LR-var.pickle.xz");
}
