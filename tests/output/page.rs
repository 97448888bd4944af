//! The report as people use it: a real browser opens it, looks at every chart, points, drags and presses keys.
//!
//! Without Chromium these tests say so and pass; with `GMLAKE_NEEDS_BROWSER=1` they fail then. `SCREENSHOTS=FOLDER`
//! keeps pictures of the page.

use crate::browser;
use crate::fleet_page::fleet_page;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use assert_cmd::Command;
use browser::Browser;
use serde_json::{Value, json};

const CHARTS: [&str; 7] = ["timeline", "bands", "state", "causes", "map", "latency", "convergence"];

pub(crate) fn browser() -> Option<Browser> {
    let found = browser::find();
    if found.is_none() {
        assert!(std::env::var_os("GMLAKE_NEEDS_BROWSER").is_none(), "there is no Chromium");
        eprintln!("SKIPPED: no Chromium on this machine, the page was not looked at in a browser");
    }
    found.map(|path| Browser::start(&path))
}

pub(crate) fn folder() -> &'static Path {
    static FOLDER: LazyLock<tempfile::TempDir> =
        LazyLock::new(|| tempfile::tempdir().expect("there is a place for temporary files"));
    FOLDER.path()
}

/// Written as from the root of the repository, so that the page tells nothing of this machine.
pub(crate) fn report(name: &str, inputs: &[String], more: &[&str]) -> PathBuf {
    let out = folder().join(name);
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gmlake-sim"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.arg("report").args(inputs).args(more).args(["--out", "-"]);
    let found = command.output().expect("it can be started");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    std::fs::write(&out, found.stdout).expect("the folder is ours");
    out
}

pub(crate) fn trace(name: &str) -> String {
    format!("traces/{name}.pickle.xz")
}

/// The page of the example that is everywhere.
pub(crate) fn example() -> &'static Path {
    static PAGE: LazyLock<PathBuf> =
        LazyLock::new(|| report("example.html", &[trace("opt-1.3b-LR-var")], &[]));
    &PAGE
}

/// The middle of the drawing surface of a chart, scrolled into view.
pub(crate) fn middle(browser: &mut Browser, chart: &str) -> (f64, f64) {
    let surface = format!("document.querySelector('[data-chart={chart}] :is(.surface, .stack)')");
    browser
        .evaluate(&format!("{surface}.scrollIntoView({{ block: 'center', behavior: 'instant' }})"));
    browser.settle();
    let place = format!("{surface}.getBoundingClientRect()");
    let x = browser.number(&format!("{place}.left + {place}.width / 2"));
    (x, browser.number(&format!("{place}.top + Math.min({place}.height, 400) / 2")))
}

pub(crate) fn tip(browser: &mut Browser) -> String {
    browser.settle();
    let tip = "document.getElementById('tip')";
    browser.text(&format!("{tip}.hidden ? '' : {tip}.innerText"))
}

/// How many colours a chart's surface shows: a canvas pixel by pixel, a drawing shape by shape.
pub(crate) fn colours(browser: &mut Browser, chart: &str) -> f64 {
    let script = format!(
        "(() => {{ const found = new Set();
           for (const canvas of document.querySelectorAll('[data-chart={chart}] canvas')) {{
             const pen = canvas.getContext('2d');
             const {{ data }} = pen.getImageData(0, 0, canvas.width, canvas.height);
             const words = new Uint32Array(data.buffer);
             for (const word of words) found.add(word);
           }}
           const shapes = '[data-chart={chart}] svg *, [data-chart={chart}] .stack i';
           for (const node of document.querySelectorAll(shapes)) {{
             const style = getComputedStyle(node);
             found.add(style.fill + style.stroke + style.backgroundColor);
           }}
           return found.size; }})()"
    );
    browser.number(&script)
}

pub(crate) fn needed_width(browser: &mut Browser) -> f64 {
    browser.number("document.documentElement.scrollWidth")
}

/// Nothing that scrolls the page sideways, nothing on the console, nothing asked for but the page itself.
pub(crate) fn check_quiet(browser: &mut Browser, what: &str) {
    let (needed, width) = (needed_width(browser), browser.width as f64);
    assert!(needed <= width, "{what}: the page is {needed} wide in a window of {width}");
    assert_eq!(browser.errors, [""; 0], "{what}");
    let foreign = browser
        .requests
        .iter()
        .filter(|url| !url.starts_with("file://") && !url.starts_with("data:"));
    assert_eq!(foreign.count(), 0, "{what}: {:?}", browser.requests);
}

#[test]
fn every_chart_draws_at_both_widths() {
    let Some(mut browser) = browser() else { return };
    for (width, height) in [(1280, 900), (390, 844)] {
        browser.open(example(), width, height);
        for chart in CHARTS {
            let state = format!("document.querySelector('[data-chart={chart}]').dataset.state");
            assert_eq!(browser.evaluate(&state), "drawn", "{chart} at {width}");
            let seen = colours(&mut browser, chart);
            assert!(seen >= 5.0, "{chart} at {width} has {seen} colours");
        }
        check_quiet(&mut browser, &format!("at {width}"));
        keep(&mut browser, &format!("report-{width}"), "html");
    }
}

/// Keeps a picture of a part of the page, if somebody asked; `html` is the whole.
pub(crate) fn keep(browser: &mut Browser, name: &str, selector: &str) {
    if let Some(folder) = std::env::var_os("SCREENSHOTS") {
        let path = Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(path, smaller(&browser.screenshot(selector))).expect("the folder is there");
    }
}

/// The picture with 256 colours: those that most pixels have, and the nearest of these for the others.
fn smaller(picture: &[u8]) -> Vec<u8> {
    let mut reader =
        png::Decoder::new(std::io::Cursor::new(picture)).read_info().expect("a picture");
    let mut pixels = vec![0; reader.output_buffer_size().expect("it fits")];
    let info = reader.next_frame(&mut pixels).expect("a picture");
    let samples = info.color_type.samples();
    let coarse = |pixel: &[u8]| [pixel[0], pixel[1], pixel[2]].map(|c| c.saturating_add(2) & !3);
    let mut counts: BTreeMap<[u8; 3], (usize, u8)> = BTreeMap::new();
    pixels.chunks(samples).for_each(|pixel| counts.entry(coarse(pixel)).or_default().0 += 1);
    let mut palette: Vec<[u8; 3]> = counts.keys().copied().collect();
    palette.sort_by_key(|colour| std::cmp::Reverse(counts[colour].0));
    palette.truncate(256);
    for (colour, (_, place)) in &mut counts {
        let far = |other: &[u8; 3]| -> u32 {
            colour.iter().zip(other).map(|(&a, &b)| u32::from(a.abs_diff(b)).pow(2)).sum()
        };
        let nearest = (0..palette.len()).min_by_key(|&place| far(&palette[place])).unwrap_or(0);
        *place = nearest as u8;
    }
    let indices: Vec<u8> = pixels.chunks(samples).map(|pixel| counts[&coarse(pixel)].1).collect();
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, info.width, info.height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_palette(palette.concat());
    encoder.set_compression(png::Compression::High);
    encoder.set_filter(png::Filter::NoFilter);
    let mut writer = encoder.write_header().expect("memory");
    writer.write_image_data(&indices).expect("memory");
    writer.finish().expect("memory");
    out
}

#[test]
fn a_dark_screen_gets_a_dark_page() {
    let Some(mut browser) = browser() else { return };
    browser.open(example(), 1280, 900);
    let shade = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]";
    let light = browser.evaluate(shade).as_u64().unwrap();
    let features = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    browser.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    browser.settle();
    let dark = browser.evaluate(shade).as_u64().unwrap();
    assert!(light > 230 && dark < 40, "{light} {dark}");
    for chart in CHARTS {
        assert!(colours(&mut browser, chart) >= 5.0, "{chart}");
    }
    check_quiet(&mut browser, "dark");
    keep(&mut browser, "report-dark", "html");
}

#[test]
fn hovering_reads_each_chart() {
    let Some(mut browser) = browser() else { return };
    browser.open(example(), 1280, 900);
    let expected = [
        ("timeline", ["recorded", "GiB", "in use"]),
        ("bands", ["event", "live", "held"]),
        ("state", ["size", "segment", "address"]),
        ("causes", ["requested", "rounding", "made it grow"]),
        ("map", ["size", "segment", "stream"]),
        ("latency", ["Step", "calls", "native"]),
        ("convergence", ["step", "driver calls", ""]),
    ];
    for (chart, words) in expected {
        let (x, y) = middle(&mut browser, chart);
        browser.mouse("mouseMoved", x - 200.0, y);
        browser.mouse("mouseMoved", x - 210.0, y);
        let text = tip(&mut browser);
        assert!(words.iter().all(|word| text.contains(word)), "{chart}: {text:?}");
        browser.mouse("mouseMoved", 5.0, 5.0);
        assert_eq!(tip(&mut browser), "", "{chart}: the tip goes with the pointer");
    }
    check_quiet(&mut browser, "after hovering");
}

#[test]
fn what_is_wrong_with_a_page_is_noticed() {
    let Some(mut browser) = browser() else { return };
    let page = folder().join("bad.html");
    let body = "<div style='width:700px'>wide</div><img src='http://localhost:9/x.png'><script>nothing()</script>";
    std::fs::write(&page, body).unwrap();
    browser.open(&page, 390, 800);
    assert!(needed_width(&mut browser) >= 700.0);
    assert!(browser.errors.iter().any(|text| text.contains("nothing is not defined")));
    assert!(browser.requests.iter().any(|url| url.starts_with("http://localhost")));
}

fn shown(browser: &mut Browser) -> (f64, f64) {
    browser.settle();
    let chart = "document.querySelector('[data-chart=timeline] .chart').dataset";
    (browser.number(&format!("+{chart}.from")), browser.number(&format!("+{chart}.to")))
}

#[test]
fn the_timeline_zooms_by_dragging_by_buttons_and_by_keys() {
    let Some(mut browser) = browser() else { return };
    browser.open(example(), 1280, 900);
    let whole = shown(&mut browser);
    assert!(whole.0 == 0.0 && whole.1 > 50e6, "{whole:?}: 52 seconds");
    let (x, y) = middle(&mut browser, "timeline");
    browser.mouse("mouseMoved", x - 100.0, y);
    browser.mouse("mousePressed", x - 100.0, y);
    browser.mouse("mouseMoved", x, y);
    browser.mouse("mouseReleased", x, y);
    let dragged = shown(&mut browser);
    assert!(dragged.0 > 0.0 && dragged.1 < whole.1, "{dragged:?}");
    assert!((dragged.1 - dragged.0) / (whole.1 - whole.0) < 0.15, "{dragged:?}");
    browser.evaluate("document.querySelector('[data-chart=timeline] .surface').focus()");
    browser.key("0");
    assert_eq!(shown(&mut browser), whole);
    browser.key("+");
    let keyed = shown(&mut browser);
    assert!(keyed.1 - keyed.0 < 0.6 * (whole.1 - whole.0), "{keyed:?}");
    browser.key("ArrowRight");
    assert!(tip(&mut browser).contains("GiB"), "the keyboard reads values, too");
    browser.evaluate("document.querySelector('[aria-label=\"Show all\"]').click()");
    assert_eq!(shown(&mut browser), whole);
    browser.evaluate("document.querySelector('[aria-label=\"Zoom to the peak\"]').click()");
    let (from, to) = shown(&mut browser);
    // PyTorch's 62.74 GiB are reached a quarter of a minute in, and again read from the tip.
    assert!(to - from < 0.11 * whole.1, "{from} {to}");
    assert!(tip(&mut browser).contains("62.74 GiB"));
    check_quiet(&mut browser, "after zooming");
}

#[test]
fn what_the_page_decodes_is_what_was_simulated() {
    let Some(mut browser) = browser() else { return };
    browser.open(example(), 1280, 900);
    let data = browser.evaluate("document.getElementById('data').textContent");
    let data: Value = serde_json::from_str(data.as_str().unwrap()).unwrap();
    let run = |label: &str| {
        let runs = data[0]["runs"].as_array().unwrap();
        runs.iter().find(|run| run["label"] == label).cloned().unwrap()
    };
    let caching = run("caching");
    let lost: u64 =
        caching["peak"]["causes"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap()).sum();
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(lost, number(&caching["peak"]["reserved"]) - number(&caching["peak"]["requested"]));
    // The table behind the map is computed from the decoded blocks.
    browser.evaluate("document.querySelector('[data-chart=map] details').open = true");
    browser.evaluate("document.querySelector('[data-chart=timeline] details').open = true");
    browser.settle();
    let rows = browser.evaluate(
        "[...document.querySelectorAll('[data-chart=map] details tbody tr')].map((row) => row.innerText)",
    );
    let native =
        rows.as_array().unwrap().iter().find(|row| row.as_str().unwrap().starts_with("native"));
    let native = native.expect("native has a map").as_str().unwrap().to_owned();
    assert!(native.contains("\t0 B\t0 B\t0"), "native has nothing free: {native:?}");
    let highest = browser.evaluate(
        "[...document.querySelectorAll('[data-chart=timeline] details tbody tr')].map((row) => row.cells[1].innerText)",
    );
    assert!(highest.as_array().unwrap().contains(&json!("62.74 GiB")), "{highest}");
}

#[test]
fn odd_recordings_make_whole_pages() {
    let Some(mut browser) = browser() else { return };
    let by_hand = report("by_hand.html", &["tests/data/by_hand.csv".to_owned()], &[]);
    let oom = report("oom.html", &[trace("opt-1.3b-N")], &["--device-memory", "8GiB"]);
    let state = state_only();
    let state = report("state.html", &[state], &[]);
    let both = report(
        "both.html",
        &[trace("graphs"), trace("streams")],
        &["--allocators", "caching,gmlake"],
    );
    for page in [by_hand, oom, state, both] {
        for width in [1280, 390] {
            browser.open(&page, width, 800);
            let what = format!("{} at {width}", page.display());
            let states = browser.evaluate(
                "[...document.querySelectorAll('[data-chart]')].map((node) => node.dataset.state)",
            );
            let states = states.as_array().unwrap();
            assert!(
                !states.is_empty() && states.iter().all(|state| state == "drawn"),
                "{what}: {states:?}"
            );
            check_quiet(&mut browser, &what);
        }
    }
}

/// A snapshot that was taken without a history.
fn state_only() -> String {
    let path = folder().join("state.json");
    let block = |state: &str| json!({"size": 1 << 20, "requested_size": 1 << 20, "state": state});
    let segment = |address: u64| {
        json!({"device": 0, "address": address, "total_size": 2 << 20, "allocated_size": 1 << 20,
               "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": false,
               "blocks": [block("active_allocated"), block("inactive")]})
    };
    let all = json!({"segments": [segment(1 << 25), segment(1 << 26)], "device_traces": [[]]});
    std::fs::write(&path, all.to_string()).expect("the folder is ours");
    path.display().to_string()
}

/// A page with call stacks.
pub(crate) fn stacks() -> &'static Path {
    static PAGE: LazyLock<PathBuf> = LazyLock::new(|| {
        let allocators = ["--allocators", "caching,expandable"];
        report("stacks.html", &[trace("opt-1.3b-LR-var.frames")], &allocators)
    });
    &PAGE
}

/// Clicks on the element that a selector finds, in the bands or the state.
fn click(browser: &mut Browser, chart: &str, selector: &str) {
    let node = format!("document.querySelector(`[data-chart={chart}] {selector}`)");
    browser.evaluate(&format!("{node}.click()"));
    browser.settle();
}

pub(crate) fn state_words(browser: &mut Browser) -> String {
    browser.settle();
    browser.text("document.querySelector('[data-chart=state] .words').innerText")
}

#[test]
fn bands_show_who_holds_the_memory() {
    let Some(mut browser) = browser() else { return };
    browser.open(stacks(), 1280, 900);
    let legend = "document.querySelector('[data-chart=bands] .swatches').innerText";
    assert!(browser.text(legend).contains("activations"));
    click(&mut browser, "bands", "[role=radio]:nth-child(2)");
    assert!(browser.text(legend).contains("modeling_opt.py:247 forward"));
    let whole = colours(&mut browser, "bands");
    assert!(whole >= 9.0, "{whole} colours");
    click(&mut browser, "bands", "[aria-label='Zoom to the peak']");
    let part = "document.querySelector('[data-chart=bands] output').innerText";
    assert!(browser.text(part).starts_with("Events 39,992 to 47,9"), "{}", browser.text(part));
    click(&mut browser, "bands", "[role=radio]:last-child");
    let (x, y) = middle(&mut browser, "bands");
    // A parameter, just above the axis.
    browser.mouse("mouseMoved", x - 100.0, y + 150.0);
    let text = tip(&mut browser);
    assert!(text.contains("parameters") && text.contains("modeling_opt.py"), "{text}");
    check_quiet(&mut browser, "bands");
    keep(&mut browser, "blocks", "html");
}

#[test]
fn the_state_is_stepped_searched_and_filtered() {
    let Some(mut browser) = browser() else { return };
    browser.open(stacks(), 1280, 900);
    // The peak of `blame`, whose bytes its own tests know.
    let words = state_words(&mut browser);
    assert!(words.contains("43,977") && words.contains("23.34 GiB live"), "{words}");
    click(&mut browser, "state", "[aria-label='Next event']");
    assert!(state_words(&mut browser).contains("5.71 GiB given back"));
    click(&mut browser, "state", "[aria-label='Previous event']");
    assert_eq!(state_words(&mut browser), words);
    click(&mut browser, "state", "[aria-label='Go to the growth before']");
    assert!(state_words(&mut browser).contains("asked for"), "a growth is a request");
    browser.evaluate(
        "(() => { const box = document.querySelector('[data-chart=state] [type=search]');
           box.value = 'attention';
           box.dispatchEvent(new Event('input', { bubbles: true }));
           return new Promise((done) => setTimeout(done, 400)); })()",
    );
    let found = "document.querySelector('[data-chart=state] .found').innerText";
    assert!(browser.text(found).starts_with("3,168 of 39,856 blocks match"));
    // The peak of what matches.
    click(&mut browser, "state", "[aria-label='Go to the peak']");
    assert!(state_words(&mut browser).contains("44,044"));
    let rows = "[...document.querySelectorAll('[data-chart=state] tbody tr')].every((row) => \
                row.innerText.includes('attention'))";
    assert_eq!(browser.evaluate(rows), true, "the list has only what matches");
    assert!(
        browser.number("document.querySelectorAll('[data-chart=state] tbody tr').length") > 2.0
    );
    click(&mut browser, "state", "tbody button");
    let frames = "document.querySelectorAll('[data-chart=state] .chosen .frames li').length";
    assert!(browser.number(frames) > 3.0, "the whole call stack");
    click(&mut browser, "state", ".filter button");
    assert_eq!(browser.text(found), "");
    check_quiet(&mut browser, "after stepping");
}

/// axe-core, where `GMLAKE_AXE` names its script: contrast, names, roles.
#[test]
fn the_page_passes_axe() {
    let Some(mut browser) = browser() else { return };
    let Some(script) = std::env::var_os("GMLAKE_AXE") else {
        return eprintln!("SKIPPED: GMLAKE_AXE does not name axe-core's script");
    };
    let script = std::fs::read_to_string(script).expect("the script is there");
    let oom = report("axe.html", &[trace("opt-1.3b-N")], &["--device-memory", "8GiB"]);
    let pages = [(stacks(), 1280), (oom.as_path(), 390), (fleet_page(), 390)];
    let shades = ["light", "dark"];
    for ((page, width), shade) in pages.into_iter().flat_map(|page| shades.map(|s| (page, s))) {
        let features = json!([{"name": "prefers-color-scheme", "value": shade}]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        browser.open(page, width, 900);
        browser.evaluate("document.querySelector('[data-chart=state] tbody button')?.click()");
        browser.evaluate(
            "document.querySelectorAll('details').forEach((box) => { box.open = true; })",
        );
        browser.evaluate(&script);
        let violations = browser.evaluate(
            "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes[0].html))",
        );
        assert_eq!(violations, json!([]), "{} {shade} {width}", page.display());
    }
}

/// A long trace, and a page that can be mailed all the same. (`report` at most 2 s: see reports/README.md.)
#[test]
fn the_page_is_small() {
    let size = std::fs::metadata(example()).unwrap().len();
    assert!(size < 1_000_000, "{size} bytes for 207,407 events");
    let many = report("many.html", &[trace("zero3-opt-13b-LR-w4.r0")], &[]);
    let size = std::fs::metadata(many).unwrap().len();
    assert!(size < 2_000_000, "{size} bytes for the trace with most blocks");
}
