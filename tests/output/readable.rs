//! Readable pictures: words with enough contrast, and that say what is there.

use std::fs;
use std::path::Path;

use crate::common::cli::gmlake_sim;
use predicates::str::contains;

#[test]
fn a_picture_says_nothing_that_it_does_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let picture = |files: &[&str], chart: &str| {
        let out = folder.path().join("a.svg");
        let mut run = gmlake_sim();
        run.arg("plot").args(files).args(["--chart", chart, "--out"]).arg(&out);
        run.assert().success();
        fs::read_to_string(&out).unwrap()
    };
    let (steps, none) = ("traces/opt-1.3b-N.pickle.xz", "traces/graphs.pickle.xz");
    for chart in ["timeline", "utilization"] {
        assert!(!picture(&[steps], chart).contains("driver time"), "{chart}");
    }
    let latency = picture(&[steps], "latency");
    assert!(latency.contains("with prices of h200") && latency.contains(" µs"));
    let height = |svg: &str| -> u32 {
        let (_, rest) = svg.split_once("height=\"").unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let with_empty = picture(&[steps, none], "latency");
    assert!(with_empty.contains("No training steps were found."));
    assert!(height(&with_empty) < height(&latency) * 4 / 3, "an empty panel takes little room");
    let out = folder.path().join("none.svg");
    let mut run = gmlake_sim();
    run.args(["plot", none, "--chart", "latency", "--out"]).arg(&out);
    run.assert().code(2).stderr(contains("no training steps were found"));
    assert!(!out.exists());
}

/// Red, green and blue of every text in a picture.
fn inks(svg: &str) -> Vec<[f64; 3]> {
    let texts = svg.split("<text").skip(1).map(|text| text.split_once('>').unwrap().0);
    let fills = texts.map(|text| text.split_once("fill=\"#").unwrap().1);
    let part =
        |fill: &str, at: usize| f64::from(u8::from_str_radix(&fill[at..at + 2], 16).unwrap());
    fills.map(|fill| [part(fill, 0), part(fill, 2), part(fill, 4)]).collect()
}

/// The contrast of a colour with white, as the Web Content Accessibility Guidelines define it.
fn contrast_with_white(ink: [f64; 3]) -> f64 {
    let linear = |part: f64| match part / 255.0 {
        part if part <= 0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    let [red, green, blue] = ink.map(linear);
    1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
}

#[test]
fn every_word_of_a_picture_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.svg");
    for chart in ["timeline", "utilization", "latency", "map"] {
        let mut run = gmlake_sim();
        run.args(["plot", "traces/opt-1.3b-N.pickle.xz", "--chart", chart, "--out"]).arg(&out);
        run.assert().success();
        let inks = inks(&fs::read_to_string(&out).unwrap());
        assert!(inks.len() > 5, "{chart}");
        for ink in inks {
            assert!(contrast_with_white(ink) >= 4.5, "{chart}: {ink:?}");
        }
    }
}

#[test]
fn every_word_of_the_page_can_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page/page.css");
    let css = fs::read_to_string(path).unwrap();
    let mut themes = css.split(":root {").skip(1).map(|theme| theme.split_once('}').unwrap().0);
    let (light, dark) = (themes.next().unwrap(), themes.next().unwrap());
    for theme in [light, dark] {
        let colour = |name: &str| {
            let (_, value) = theme.split_once(&format!("--{name}: #")).unwrap();
            let part = |at: usize| f64::from(u8::from_str_radix(&value[at..at + 2], 16).unwrap());
            [part(0), part(2), part(4)]
        };
        for text in ["ink", "soft", "faint", "alarm", "best"] {
            for ground in ["page", "card", "wash"] {
                let (text_, ground_) =
                    (contrast_with_white(colour(text)), contrast_with_white(colour(ground)));
                let contrast = (text_ / ground_).max(ground_ / text_);
                assert!(contrast >= 4.5, "{text} on {ground}: {contrast:.2}");
            }
        }
    }
}

/// Line ends and escape sequences in names of files, jobs and call stacks.
#[test]
fn a_name_is_shown_on_one_line_whatever_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, to: &str| {
        let to = folder.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(name), to).unwrap();
    };
    put("tests/data/by_hand.csv", "a\nBROKEN\u{1b}[2J.csv");
    put("traces/streams.pickle.xz", "j\nBROKEN/rank0.pickle.xz");
    fs::write(
        folder.path().join("m.csv"),
        "path,job\n\"j\nBROKEN/rank0.pickle.xz\",\"b\nBROKEN\"\n",
    )
    .unwrap();
    let (file, job) = ("a\nBROKEN\u{1b}[2J.csv", "j\nBROKEN");
    let none = "no\nBROKEN";
    let commands: [(&[&str], Option<i32>); 17] = [
        (&["compare", file], Some(0)),
        (&["compare", job, "--job", "--allocators", "caching"], Some(0)),
        (&["plan", file], Some(0)),
        (&["fits", file, "--device-memory", "80GiB"], Some(0)),
        (&["tune", file], Some(1)),
        (&["sweep", file, "--set", "gmlake.fragment_limit=2MiB,4MiB"], Some(0)),
        (&["inspect", file], Some(0)),
        (&["blame", file], Some(0)),
        (&["diff", file, file], Some(0)),
        (&["verify", file], Some(2)),
        (&["report", file, "--out", "p\nBROKEN.html"], Some(0)),
        (&["fleet", "--manifest", "m.csv", "--out", "f\nBROKEN"], Some(0)),
        (&["fleet", "report", "f\nBROKEN"], Some(0)),
        (&["compare", none], Some(2)),
        (&["fleet", "report", none], Some(2)),
        (&["compare", file, "--export-csv", "no\nBROKEN/a.csv"], Some(2)),
        (&["compare", file, "--plugin", none], Some(2)),
    ];
    for (command, code) in commands {
        let done = gmlake_sim().current_dir(&folder).args(command).output().unwrap();
        assert_eq!(done.status.code(), code, "{command:?}: {done:?}");
        for text in [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap()) {
            let is_broken = text.lines().any(|line| line.trim_start().starts_with("BROKEN"));
            assert!(!is_broken && !text.contains('\u{1b}'), "{command:?}: {text}");
        }
    }
    let shown = gmlake_sim().current_dir(&folder).args(["compare", file]).assert().success();
    shown.stdout(contains("a\\nBROKEN\\u{1b}[2J.csv"));
}
