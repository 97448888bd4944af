//! The report of long recordings: how large it is, when it is there, and whether it stutters.
//!
//! Not part of the usual tests, since it takes minutes; it prints what `reports/page.md` says:
//! `cargo test --test output long_page -- --ignored --nocapture`.

#[allow(dead_code, reason = "it has a mouse, too")]
use crate::browser;
use std::path::{Path, PathBuf};
use std::time::Instant;

use assert_cmd::Command;
use browser::Browser;
use gmlake::sim::{Opened, Setup, choose, transcribe};
use gmlake::trace::{Action, Entry, Labels, LoadOptions, Records, ingest, load, write_snapshot};
use rustc_hash::FxHashMap;

/// The lengths of recordings, in entries.
const LENGTHS: [usize; 2] = [869_706, 5_000_000];

/// A job of six steps, again and again with other sizes, until there are enough entries. All that it leaves behind is
/// freed before it begins anew.
fn long(entries: usize, folder: &Path) -> PathBuf {
    let options = LoadOptions { stacks: true, ..LoadOptions::default() };
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/opt-1.3b-LR-var.frames.pickle.xz");
    let records = load(&source, &options).expect("a recording").remove(0);
    let job = whole(&records.entries);
    let span = job[job.len() - 1].time_us - job[0].time_us + 1000;
    let mut all = Vec::with_capacity(entries);
    for (pass, entry) in (0..).flat_map(|pass| job.iter().map(move |entry| (pass, entry))) {
        if all.len() == entries {
            break;
        }
        // Each pass has other lengths.
        let scaled = entry.size * (50 + pass * 37 % 50) / 100;
        let size = if entry.size > 1 << 16 { scaled } else { entry.size };
        all.push(Entry { size, time_us: entry.time_us + pass * span, ..*entry });
    }
    let path = folder.join(format!("long-{entries}.pickle"));
    let (stacks, streams, pools) = (records.stacks, records.streams, records.pools);
    let records = Records { entries: all, stacks, streams, pools, ..Records::default() };
    // As PyTorch would have recorded it.
    let trace = ingest(&records, &Labels::default());
    let opened = Opened { trace, records, ..Opened::default() };
    let caching = choose(&["caching".to_owned()], &[]).expect("we have it").remove(0);
    let records = transcribe(&opened, &caching, &Setup::default()).expect("it runs");
    let file = std::fs::File::create(&path).expect("the folder is ours");
    write_snapshot(&records, std::io::BufWriter::new(file)).expect("there is room");
    path
}

/// The requests and frees of a job, with frees at the end of what it did not free.
fn whole(entries: &[Entry]) -> Vec<Entry> {
    let is_of_program = |entry: &&Entry| {
        matches!(entry.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted)
    };
    let mut all: Vec<Entry> = entries.iter().filter(is_of_program).copied().collect();
    let mut live: FxHashMap<u64, Entry> = FxHashMap::default();
    for entry in &all {
        match entry.action {
            Action::Alloc => drop(live.insert(entry.addr, *entry)),
            Action::FreeCompleted => drop(live.remove(&entry.addr)),
            _ => {}
        }
    }
    let end = all[all.len() - 1].time_us;
    let mut live: Vec<Entry> = live.into_values().collect();
    live.sort_by_key(|entry| entry.addr);
    for entry in live {
        for action in [Action::FreeRequested, Action::FreeCompleted] {
            all.push(Entry { action, time_us: end, ..entry });
        }
    }
    all
}

/// Milliseconds from one frame to the next while something is done thirty times: the median, and the longest but one.
fn frames(browser: &mut Browser, action: &str) -> [f64; 2] {
    let script = format!(
        "(async () => {{
           const act = (n) => {{ {action} }}, times = [];
           for (let n = 0, last = performance.now(); n < 30; n++) {{
             act(n);
             await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
             times.push(performance.now() - last);
             last = performance.now();
           }}
           times.sort((a, b) => a - b);
           return times[15] + ' ' + times[28];
         }})()"
    );
    let text = browser.text(&script);
    let (median, longest) = text.split_once(' ').expect("two numbers");
    [median, longest].map(|number| number.parse().expect("a number"))
}

const PAN: &str = "document.querySelector('[data-chart=bands] .surface').dispatchEvent(
    new KeyboardEvent('keydown', { key: n % 2 ? 'End' : 'Home', bubbles: true }))";
const STEP: &str =
    "document.querySelector('[data-chart=state] [aria-label=\"Next event\"]').click()";
const SEARCH: &str = "(async () => {
    const box = document.querySelector('[data-chart=state] [type=search]');
    const begin = performance.now(), pause = () => new Promise((done) => setTimeout(done, 1));
    box.value = 'attention';
    box.dispatchEvent(new Event('input', { bubbles: true }));
    while (!document.querySelector('.found').textContent) await pause();
    return performance.now() - begin; })()";

fn zoom(browser: &mut Browser, times: usize) {
    for _ in 0..times {
        browser.evaluate(
            "document.querySelector('[data-chart=bands] [aria-label=\"Zoom in\"]').click()",
        );
    }
}

#[test]
#[ignore = "takes minutes, and a browser"]
fn a_long_recording_is_there_at_once_and_does_not_stutter() {
    let folder = tempfile::tempdir().expect("there is a place for temporary files");
    let found = browser::find().expect("there is a Chromium");
    for entries in LENGTHS {
        let (trace, page) = (long(entries, folder.path()), folder.path().join("long.html"));
        let begin = Instant::now();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        command.arg("report").arg(&trace).arg("--out").arg(&page);
        command.args(["--allocators", "caching,expandable", "--quiet"]).assert().success();
        let made = begin.elapsed().as_secs_f64();
        let size = std::fs::metadata(&page).expect("it was written").len();
        println!("{entries} entries: made in {made:.1} s, {:.2} MB", size as f64 / 1e6);
        assert!(size < 20_000_000, "{size}");
        std::fs::remove_file(&trace).expect("it is ours");

        let mut browser = Browser::start(&found);
        let begin = Instant::now();
        browser.open(&page, 1280, 900);
        let drawn = begin.elapsed().as_millis();
        let paint = browser.number("performance.getEntriesByType('paint')[0].startTime");
        println!("  first paint {paint:.0} ms, every chart {drawn} ms");
        assert!(paint < 1000.0, "{paint}");
        for (n, kind) in ["category", "line", "size", "single blocks"].into_iter().enumerate() {
            let button = format!(
                "[...document.querySelectorAll('[data-chart=bands] [role=radio]')].find((button) => button.innerText === '{kind}').click()"
            );
            browser.evaluate(&button);
            zoom(&mut browser, if n == 0 { 3 } else { 0 });
            let [median, longest] = frames(&mut browser, PAN);
            println!(
                "  panning through an eighth by {kind}: {median:.0} ms a frame, at most {longest:.0}"
            );
        }
        zoom(&mut browser, 8);
        let [median, longest] = frames(&mut browser, PAN);
        println!("  through a 2,048th: {median:.0} ms a frame, at most {longest:.0}");
        let [median, longest] = frames(&mut browser, STEP);
        println!("  stepping: {median:.0} ms an event, at most {longest:.0}");
        let search = browser.number(SEARCH);
        let words = browser.text("document.querySelector('.found').innerText");
        println!("  searching: {search:.0} ms; {words}");
        assert!(browser.errors.is_empty(), "{:?}", browser.errors);
    }
}
