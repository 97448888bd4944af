//! The page of a fleet in a real browser; and of all pages the labels, the sizes of drawings, what they open by.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use assert_cmd::Command;
use serde_json::json;

use crate::browser::Browser;
use crate::page::{
    browser, check_quiet, colours, example, folder, keep, middle, needed_width, report, stacks,
    tip, trace,
};

/// The page of a fleet: two jobs, of which one was not recorded completely, and a file that is no recording.
pub(crate) fn fleet_page() -> &'static Path {
    static PAGE: LazyLock<PathBuf> = LazyLock::new(|| {
        let root = folder().join("jobs");
        let files = [
            ("traces/graphs.pickle.xz", "graphs/rank0.pickle.xz"),
            ("traces/pools.pickle.xz", "graphs/rank1.pickle.xz"),
            ("traces/opt-1.3b-N.pickle.xz", "opt/rank0.pickle.xz"),
            ("tests/data/cases/truncated/ring.pickle", "cut/rank0.pickle"),
            ("README.md", "none/rank0.pickle"),
        ];
        for (from, to) in files {
            let to = root.join(to);
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("the folder is ours");
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(from);
            std::fs::copy(from, to).expect("it can be copied");
        }
        let run = |arguments: &[&str]| {
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
            command.current_dir(folder()).args(arguments).output().expect("it can be started");
        };
        run(&["fleet", "jobs", "--out", "results"]);
        run(&["fleet", "report", "results", "--out", "fleet.html"]);
        folder().join("fleet.html")
    });
    &PAGE
}

/// Texts of one drawing that lie on each other.
fn overlaps(browser: &mut Browser) -> String {
    let script = "(() => { const found = [];
       for (const picture of document.querySelectorAll('svg')) {
         const texts = [...picture.querySelectorAll('text')];
         const boxes = texts.map((node) => [node.textContent, node.getBoundingClientRect()]);
         const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
           && a.top < b.bottom - 3 && b.top < a.bottom - 3;
         boxes.forEach(([one, a], n) => boxes.slice(n + 1).forEach(([other, b]) => {
           if (meet(a, b)) found.push(`${one} | ${other}`);
         }));
       }
       return found.join('; '); })()";
    browser.text(script)
}

#[test]
fn the_page_of_a_fleet_is_like_that_of_a_recording() {
    let Some(mut browser) = browser() else { return };
    for (width, shade) in [(1280, "light"), (390, "light"), (1280, "dark"), (390, "dark")] {
        let what = format!("fleet-{width}-{shade}");
        let features = json!([{"name": "prefers-color-scheme", "value": shade}]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        browser.open(fleet_page(), width, 900);
        let state = "document.querySelector('[data-chart=shares]').dataset.state";
        assert_eq!(browser.evaluate(state), "drawn", "{what}");
        let page = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]";
        let is_dark = browser.number(page) < 40.0;
        assert_eq!(is_dark, shade == "dark", "{what}");
        assert!(colours(&mut browser, "shares") >= 5.0, "{what}");
        assert_eq!(overlaps(&mut browser), "", "{what}");
        check_quiet(&mut browser, &what);
        keep(&mut browser, &what, "html");
    }
    let answer = browser.text("document.querySelector('.verdict strong').innerText");
    assert!(answer.contains("where PyTorch reserved at least"), "{answer}");
    let words = browser.text("document.querySelector('main').innerText");
    for part in ["1 of 4 ranks was not recorded completely", "unknown", "Problems with recordings"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
    let (x, y) = middle(&mut browser, "shares");
    browser.mouse("mouseMoved", x, y);
    let text = tip(&mut browser);
    assert!(text.contains("Ranks that need at most") && text.contains("lake"), "{text}");
    browser.evaluate("document.querySelector('[data-chart=shares] details').open = true");
    browser.settle();
    let rows = browser.number("document.querySelectorAll('[data-chart=shares] tbody tr').length");
    assert!(rows > 10.0, "a row for each card");
}

#[test]
fn no_label_of_a_drawing_lies_on_another() {
    let Some(mut browser) = browser() else { return };
    for page in [example(), stacks()] {
        for width in [1280, 390] {
            browser.open(page, width, 900);
            assert_eq!(overlaps(&mut browser), "", "{} at {width}", page.display());
        }
    }
}

#[test]
fn a_picture_is_no_wider_than_a_phone() {
    let Some(mut browser) = browser() else { return };
    let mut make = |arguments: &[&str], name: &str| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).arg(folder().join(name));
        assert!(command.output().expect("it can be started").status.success(), "{name}");
        browser.open(&folder().join(name), 390, 844);
        let width = browser.number("document.documentElement.getBoundingClientRect().width");
        let needed = needed_width(&mut browser);
        assert!((300.0..=390.0).contains(&width) && needed <= 390.0, "{name}: {width} {needed}");
    };
    let (plain, frames) = (trace("opt-1.3b-N"), trace("opt-1.3b-LR-var.frames"));
    for chart in gmlake::compare::chart::CHARTS {
        make(&["plot", &plain, "--chart", chart.name, "--out"], &format!("{}.svg", chart.name));
    }
    make(&["blame", &frames, "--export-flamegraph"], "flame.svg");
}

#[test]
fn a_page_opens_by_what_the_recording_tells() {
    let Some(mut browser) = browser() else { return };
    let checked = "document.querySelector('[data-chart=bands] [aria-checked=true]').innerText";
    for (page, kind) in [(example(), "size"), (stacks(), "category")] {
        browser.open(page, 1280, 900);
        assert_eq!(browser.text(checked), kind, "{}", page.display());
        let searches = "document.querySelectorAll('[data-chart=state] [type=search]').length";
        assert_eq!(browser.number(searches) > 0.0, kind == "category", "{}", page.display());
    }
}

#[test]
fn the_time_in_driver_calls_says_what_it_is() {
    let Some(mut browser) = browser() else { return };
    browser.open(example(), 1280, 900);
    let text = browser.text("document.querySelector('[data-chart=latency]').textContent");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Predicted time",
        "each training step by itself",
        "with prices of",
        "driver time in a step",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn the_whole_card_is_drawn_if_it_was_recorded() {
    let page = report("card.html", &["tests/data/card/beside.pickle.xz".to_owned()], &[]);
    let text = std::fs::read_to_string(&page).expect("it is there");
    assert!(text.contains("PyTorch, live") && text.contains("\"process "), "the owners");
    let without = std::fs::read_to_string(example()).expect("it is there");
    assert!(!without.contains("data-chart=\"card\""), "no card was recorded there");
    let Some(mut browser) = browser() else { return };
    browser.open(&page, 1280, 900);
    let state = "document.querySelector('[data-chart=card]').dataset.state";
    assert_eq!(browser.evaluate(state), "drawn");
    assert!(colours(&mut browser, "card") >= 5.0);
    keep(&mut browser, "card", "[data-chart=card]");
    let (x, y) = middle(&mut browser, "card");
    browser.mouse("mouseMoved", x, y);
    let shown = tip(&mut browser);
    assert!(shown.contains("in use") && shown.contains("process"), "{shown}");
    check_quiet(&mut browser, "the card");
}
