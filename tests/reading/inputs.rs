//! Files as people have them: cut off, several in one, packed, wrapped. Each is read, or is refused in one clear line.

use std::path::{Path, PathBuf};

use gmlake::trace::{LoadOptions, Records, WarningKind, load_bytes};

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
fn files_that_cannot_help_say_what_they_are_and_what_to_do() {
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"rank0");
    tar[257..262].copy_from_slice(b"ustar");
    let checkpoint = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n.";
    let safe = b"\x20\0\0\0\0\0\0\0{\"w\":{\"data_offsets\":[0,1]}}";
    let ranks = data("variants/ranks.pickle");
    let stats = data("variants/stats.pickle");
    let cases: [(&[u8], &str); 13] = [
        (b"BZh91AY", "bunzip2"),
        (&tar, "a tar archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"SQLite format 3\0", "Nsight"),
        (b"[[1, 2, 3], [[0, 1]]]", "export_memory_timeline"),
        (b"<html><img src='data:image/png;base64,iVBORw0'>", "export_memory_timeline"),
        (b"<html></html>", "a web page without a snapshot"),
        (b"{'segments': [{'device': 0}]}", "Python's repr"),
        (checkpoint, "a checkpoint with tensors (torch._utils._rebuild_tensor_v2)"),
        (safe, "safetensors"),
        (b"PK\x03\x04 cut off", "the zip archive is damaged"),
        (&ranks, "holds 2 snapshots"),
        (&stats, "memory_stats()"),
    ];
    for (bytes, words) in cases {
        let error = load_bytes(bytes, &LoadOptions::default()).map(|all| all.len());
        let shown = error.expect_err(words).to_string();
        assert!(shown.contains(words) && !shown.contains('\n'), "{shown}");
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
