//! Files as people have them: cut off, several in one, packed, wrapped. Each is read, or is refused in one clear line.

use std::path::{Path, PathBuf};

use gmlake::trace::{Action, LoadOptions, Records, WarningKind, load, load_bytes};
use serde_json::{Value, json};

/// The content of a case; `None`, said aloud, where the cases are not at hand.
fn case(name: &str) -> Option<Vec<u8>> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/cases").join(name);
    let read = std::fs::read(&path);
    if read.is_err() {
        println!("left out: {} is not there", path.display());
    }
    read.ok()
}

fn only(bytes: &[u8]) -> Records {
    let mut all = load_bytes(bytes, &LoadOptions::default()).expect("it can be read");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn kinds(records: &Records) -> Vec<WarningKind> {
    records.warnings.iter().map(|warning| warning.kind).collect()
}

#[test]
fn a_recording_that_is_cut_off_is_a_part_of_the_whole() {
    let Some(whole) = case("stacks/python.pickle") else { return };
    let all = only(&whole);
    for percent in [10, 25, 50, 75, 90, 95] {
        let part = only(&whole[..whole.len() * percent / 100]);
        assert!(part.entries.len() < all.entries.len());
        assert_eq!(part.entries, all.entries[..part.entries.len()], "{percent} %");
        assert!(part.cut_off.is_some() && kinds(&part) == [WarningKind::CutOff], "{percent} %");
    }
    let half = only(&whole[..whole.len() / 2]);
    let said = half.cut_off.expect("it is cut off");
    let expected =
        format!("the file ends in the middle of entry {} of device 0", half.entries.len() + 1);
    assert_eq!(said, expected);
}

#[test]
fn nearly_all_of_a_dump_that_was_cut_off_is_read() {
    let Some(cut) = case("damaged/cut-at-99-percent.pickle") else { return };
    let Some(whole) = case("stacks/python.pickle") else { return };
    let (part, all) = (only(&cut), only(&whole));
    assert_eq!(part.entries.len(), all.entries.len());
    assert_eq!(part.segments, all.segments);
    assert_eq!(kinds(&part), [WarningKind::CutOff]);
}

#[test]
fn of_several_snapshots_the_last_is_read_and_it_is_said() {
    let Some(two) = case("damaged/two-in-one.pickle") else { return };
    let Some(whole) = case("stacks/python.pickle") else { return };
    let (last, all) = (only(&two), only(&whole));
    assert_eq!(last.entries, all.entries);
    assert_eq!(kinds(&last), [WarningKind::SeveralSnapshots]);
    // A second one that is cut off gives way to the first.
    let cut = only(&two[..two.len() - 5000]);
    assert_eq!((cut.entries.len(), kinds(&cut)), (all.entries.len(), vec![WarningKind::Trailing]));
    let garbage = only(&[&whole[..], b"\n\0\0garbage"].concat());
    assert_eq!(kinds(&garbage), [WarningKind::Trailing]);
    // The page of _memory_viz pads with zeros.
    assert!(kinds(&only(&[&whole[..], b"\0\0\0"].concat())).is_empty());
}

#[test]
fn compressed_files_may_be_cut_off_too() {
    let Some(whole) = case("stacks/python.pickle") else { return };
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, &whole).expect("memory suffices");
    let gzip = gzip.finish().expect("memory suffices");
    let part = only(&gzip[..gzip.len() / 2]);
    let all = only(&whole);
    assert!(!part.entries.is_empty() && part.cut_off.is_some());
    assert_eq!(part.entries, all.entries[..part.entries.len()]);
}

/// A fixture of this repository.
fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(path).expect("the fixture is there")
}

#[test]
fn what_other_programs_write_is_the_same_recording() {
    let expected = only(&data("snapshot.4.pickle"));
    for name in [
        "page.html",
        "base64.txt",
        "stored.zip",
        "deflated.zip",
        "mark.json",
        "twice.pickle",
        "floats.pickle",
        "hex.pickle",
        "ordered.pickle",
        "default.pickle",
        "tuples.pickle",
        "wrapped.pickle",
        "numpy.pickle",
        "numpy1.pickle",
        "numpy-floats.pickle",
    ] {
        let read = only(&data(&format!("variants/{name}")));
        assert_eq!(read.entries, expected.entries, "{name}");
        assert_eq!(read.segments, expected.segments, "{name}");
        assert_eq!(read.settings, expected.settings, "{name}");
        assert_eq!(read.cut_off, None, "{name}");
        let is_twice = kinds(&read).contains(&WarningKind::SeveralSnapshots);
        assert_eq!(is_twice, name.starts_with("twice"), "{name}");
    }
}

#[test]
fn an_archive_that_is_cut_or_changed_anywhere_is_no_panic() {
    for name in ["variants/stored.zip", "variants/deflated.zip", "variants/page.html"] {
        let whole = data(name);
        for at in 0..whole.len() {
            let _ = load_bytes(&whole[..at], &LoadOptions::default()).map(|all| all.len());
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = load_bytes(&changed, &LoadOptions::default()).map(|all| all.len());
        }
    }
}

#[test]
fn a_folder_of_folders_is_a_job() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inner = folder.path().join("iteration_10");
    std::fs::create_dir(&inner).expect("it can be made");
    for rank in 0..2 {
        let path = inner.join(format!("rank{rank}_memory_snapshot.pickle"));
        std::fs::write(path, data("snapshot.4.pickle")).expect("it can be written");
    }
    let jobs = gmlake::sim::job::jobs(&[folder.path().to_owned()], true).expect("a job");
    let ranks: Vec<_> = jobs[0].ranks.iter().map(|rank| rank.number).collect();
    assert_eq!(ranks, [Some(0), Some(1)]);
}

/// The one device of snapshot number `number` of a file.
fn numbered(bytes: &[u8], number: usize) -> Result<Records, String> {
    let snapshot = std::num::NonZeroUsize::new(number);
    let options = LoadOptions { snapshot, ..LoadOptions::default() };
    let mut all = load_bytes(bytes, &options).map_err(|error| error.to_string())?;
    assert_eq!(all.len(), 1);
    Ok(all.remove(0))
}

/// A snapshot in JSON whose only request is of this size.
fn small(size: u64) -> Value {
    let entry = json!({"action": "alloc", "addr": 512, "size": size, "stream": 0});
    json!({"segments": [], "device_traces": [[entry]]})
}

fn sizes(records: &Records) -> Vec<u64> {
    records.entries.iter().map(|entry| entry.size).collect()
}

#[test]
fn of_several_pickles_any_can_be_chosen() {
    let twice = [data("snapshot.4.pickle"), data("snapshot.2.pickle")].concat();
    let ranks = data("variants/ranks.pickle");
    let expected = only(&data("snapshot.4.pickle"));
    for file in [&twice, &ranks] {
        for number in [1, 2] {
            let chosen = numbered(file, number).expect("it is there");
            assert_eq!(chosen.entries, expected.entries);
            assert!(!kinds(&chosen).contains(&WarningKind::SeveralSnapshots));
        }
        let error = numbered(file, 3).expect_err("there are two");
        assert!(error.contains("holds 2 snapshots, and no number 3"), "{error}");
    }
    // Two lists of two.
    let lists = [&ranks[..], &ranks].concat();
    assert_eq!(numbered(&lists, 4).expect("it is there").entries, expected.entries);
    let error = numbered(&lists, 5).expect_err("there are four");
    assert!(error.contains("choose 1 to 4 with --snapshot"), "{error}");
    let error = numbered(&data("snapshot.4.pickle"), 2).expect_err("there is one");
    assert!(error.contains("holds one snapshot, and no number 2"), "{error}");
    let error = numbered(&data("chrome.json"), 2).expect_err("there is one");
    assert!(error.contains("leave --snapshot out"), "{error}");
}

#[test]
fn of_several_snapshots_in_json_any_can_be_chosen() {
    let (one, two) = (small(1024), small(2048));
    let dumps = format!("{one}\n{two}\n");
    let list = json!([one, two]).to_string();
    let ranks = format!("{{\"rank1\": {one}, \"note\": 5, \"rank0\": {two}}}");
    for file in [&dumps, &list, &ranks] {
        for (number, size) in [(1, 1024), (2, 2048)] {
            let chosen = numbered(file.as_bytes(), number).expect(file);
            assert_eq!(sizes(&chosen), [size], "{file}");
        }
        let error = numbered(file.as_bytes(), 3).expect_err("there are two");
        assert!(error.contains("holds 2 snapshots, and no number 3"), "{error}");
    }
    let last = only(dumps.as_bytes());
    assert_eq!((sizes(&last), kinds(&last)), (vec![2048], vec![WarningKind::SeveralSnapshots]));
    let cut = only(&dumps.as_bytes()[..dumps.len() - 9]);
    assert_eq!((sizes(&cut), kinds(&cut)), (vec![1024], vec![WarningKind::Trailing]));
    for file in [&list, &ranks] {
        let error = load_bytes(file.as_bytes(), &LoadOptions::default()).map(|all| all.len());
        let error = error.expect_err("it is not clear which").to_string();
        assert!(error.contains("holds 2 snapshots") && error.contains("--snapshot N"), "{error}");
    }
    assert_eq!(sizes(&only(json!([one]).to_string().as_bytes())), [1024]);
    assert_eq!(sizes(&numbered(json!([one]).to_string().as_bytes(), 1).expect("one")), [1024]);
}

/// The parts of the fixture, one a line.
fn lines() -> String {
    let snapshot: Value = serde_json::from_slice(&data("snapshot.json")).expect("it is JSON");
    let mut lines = String::new();
    for (device, entries) in
        snapshot["device_traces"].as_array().expect("a list").iter().enumerate()
    {
        for entry in entries.as_array().expect("a list") {
            let mut entry = entry.clone();
            entry["device"] = device.into();
            lines += &format!("{entry}\n");
        }
    }
    for part in ["segments", "external_annotations"] {
        for item in snapshot[part].as_array().into_iter().flatten() {
            lines += &format!("{item}\n");
        }
    }
    lines
}

#[test]
fn json_lines_are_the_same_recording() {
    let (whole, lines) = (only(&data("snapshot.json")), lines());
    let list = format!("[{}]", lines.trim_end().replace('\n', ", "));
    for file in [&lines, &list] {
        let read = only(file.as_bytes());
        assert_eq!(read.entries, whole.entries);
        assert_eq!(read.segments, whole.segments);
        assert_eq!(read.annotations, whole.annotations);
        assert_eq!(read.warnings, whole.warnings);
    }
    let options = LoadOptions { stacks: true, ..LoadOptions::default() };
    let stacks = |bytes: &[u8]| {
        let all = load_bytes(bytes, &options).expect("it can be read");
        let stack = |number| all[0].stacks.frames_of(number).map(|frame| format!("{frame:?}"));
        all[0].entries.iter().map(|entry| stack(entry.stack).collect()).collect()
    };
    let expected: Vec<Vec<String>> = stacks(&data("snapshot.json"));
    assert_eq!(stacks(lines.as_bytes()), expected);
}

#[test]
fn json_lines_that_are_cut_off_or_wrong_say_so() {
    let entries: String = lines()
        .lines()
        .filter(|line| line.contains("\"action\""))
        .fold(String::new(), |all, line| all + line + "\n");
    let whole = only(entries.as_bytes()).entries;
    let cut = only(&entries.as_bytes()[..entries.len() - 5]);
    assert_eq!(cut.entries, whole[..whole.len() - 1]);
    let said = format!("the file ends in the middle of line {}", entries.lines().count());
    assert_eq!(cut.cut_off, Some(said));
    for (line, words) in [
        (r#"{"loss": 2.5}"#, "line 2: \"blocks\" is missing"),
        (r#"{"action": "alloc", "addr": 5}"#, "line 2: an entry has no \"size\""),
        (
            r#"{"action": "alloc", "addr": 5, "size": 1.5}"#,
            "line 2: the number 1.5 in the place of",
        ),
        (r#"{"action": "alloc", "addr": 5, "size": 1, "device": -1}"#, "line 2: "),
        ("[1, 2]", "line 2: "),
        ("step 7", "line 2: "),
    ] {
        let first = "{\"action\": \"alloc\", \"addr\": 1, \"size\": 1}";
        let file = format!("{first}\n{line}\n{first}\n");
        let error = load_bytes(file.as_bytes(), &LoadOptions::default()).map(|all| all.len());
        let shown = error.expect_err(line).to_string();
        assert!(shown.contains(words) && !shown.contains('\n'), "{shown}");
    }
}

#[test]
fn numbers_in_json_are_whole_however_they_are_written() {
    let expected = only(&data("snapshot.json"));
    let text = String::from_utf8(data("snapshot.json")).expect("it is UTF-8");
    let written = |write: fn(u64) -> Value| {
        let mut snapshot: Value = serde_json::from_str(&text).expect("it is JSON");
        let lists = snapshot["device_traces"].as_array_mut().expect("a list").iter_mut();
        let entries = lists.flat_map(|list| list.as_array_mut().expect("a list"));
        entries.for_each(|entry| change(entry, write));
        for segment in snapshot["segments"].as_array_mut().expect("a list") {
            change(segment, write);
            segment["blocks"]
                .as_array_mut()
                .expect("a list")
                .iter_mut()
                .for_each(|block| change(block, write));
        }
        only(snapshot.to_string().as_bytes())
    };
    let forms: [fn(u64) -> Value; 3] = [
        |number| if number < 1 << 53 { (number as f64).into() } else { number.into() },
        |number| number.to_string().into(),
        |number| format!("{number:#x}").into(),
    ];
    for form in forms {
        let read = written(form);
        assert_eq!(
            (read.entries, read.segments),
            (expected.entries.clone(), expected.segments.clone())
        );
    }
    let wrong = small(7).to_string().replace(":7", ":7.5");
    let error = load_bytes(wrong.as_bytes(), &LoadOptions::default()).map(|all| all.len());
    let shown = error.expect_err("half a byte").to_string();
    assert!(shown.contains("7.5") && shown.contains("whole number"), "{shown}");
    assert_eq!(only(small(7).to_string().as_bytes()).entries[0].action, Action::Alloc);
}

/// Writes every whole number of an object otherwise, but those of stack frames and pairs.
fn change(part: &mut Value, write: fn(u64) -> Value) {
    for (_, value) in part.as_object_mut().expect("an object").iter_mut() {
        if let Some(number) = value.as_u64() {
            *value = write(number);
        }
    }
}

#[test]
fn numpy_that_is_no_number_is_refused_by_name() {
    // numpy.datetime64(0, "s") as a size.
    let date =
        b"\x80\x02cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\nX\x02\0\0\0M8\x89\x88\x87R.";
    let error = load_bytes(date, &LoadOptions::default()).map(|all| all.len());
    let shown = error.expect_err("a date").to_string();
    assert!(shown.contains("numpy's M8") && shown.contains("int(x)"), "{shown}");
    let big = b"\x80\x02cnumpy\ndtype\nX\x02\0\0\0i8\x89\x88\x87R(K\x03X\x01\0\0\0>tb.";
    assert!(load_bytes(big, &LoadOptions::default()).map(|all| all.len()).is_err());
}

#[test]
fn a_file_that_is_cut_short_again_and_again_ends_nothing() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("job.csv");
    let whole = "alloc,0x200,512,0,1\nfree,0x200,512,0,2\n".repeat(40_000);
    std::fs::write(&path, format!("action,addr,size,stream,time_us\n{whole}")).expect("written");
    let len = std::fs::metadata(&path).expect("it is there").len();
    let is_done = AtomicBool::new(false);
    let failures = std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::File::options().write(true).open(&path).expect("it opens");
            while !is_done.load(Ordering::Relaxed) {
                file.set_len(100).and_then(|()| file.set_len(len)).expect("it can be cut");
            }
        });
        let is_whole = |all: Vec<Records>| {
            assert!(
                all[0].cut_off.is_some() || all[0].entries.len() == 120_000,
                "{:?}",
                all[0].cut_off
            );
            all[0].cut_off.is_none()
        };
        let read = || load(&path, &LoadOptions::default());
        let failures = (0..50).filter(|_| !read().is_ok_and(is_whole)).count();
        is_done.store(true, Ordering::Relaxed);
        failures
    });
    // The rest is zeros or not there; nothing of it is a table.
    assert!(failures > 0);
}
