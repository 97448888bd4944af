//! Input that is damaged, hostile or no trace at all: one clear line, never a panic, never much time or memory.

use std::path::Path;
use std::process::Command;

use gmlake::trace::{
    Entry, Labels, LoadOptions, TraceError, WarningKind, ingest, load, load_bytes,
};
use proptest::prelude::*;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name))
        .expect("the fixture is there")
}

fn options(stacks: bool) -> LoadOptions {
    LoadOptions { stacks, ..LoadOptions::default() }
}

/// The error for a content, which must be one line.
fn error(bytes: &[u8]) -> String {
    let [without, with] =
        [false, true].map(|stacks| load_bytes(bytes, &options(stacks)).map(|r| r.len()));
    assert_eq!(without.is_err(), with.is_err());
    let error: TraceError = without.expect_err("the input is bad");
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains("; "), "{text}");
    text
}

/// A pickle of protocol 4 with this body.
fn pickle(body: &[u8]) -> Vec<u8> {
    [b"\x80\x04", body].concat()
}

/// `{"device_traces": [[entry]]}`, where the entry has the given items.
fn entry(items: &[u8]) -> Vec<u8> {
    pickle(&[b"}\x8c\x0ddevice_traces](](}(", items, b"uees."].concat())
}

#[test]
fn the_helper_writes_a_good_entry() {
    let good = entry(b"\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x02");
    let records = load_bytes(&good, &options(false)).expect("a good entry");
    assert_eq!((records[0].entries[0].addr, records[0].entries[0].size), (1, 2));
}

/// What is read of a file that ends anywhere is its beginning, and it says so.
#[test]
fn a_file_that_ends_anywhere_is_a_part_or_an_error() {
    for name in ["snapshot.2.pickle", "snapshot.4.pickle", "snapshot.json"] {
        let whole = data(name);
        for stacks in [false, true] {
            let all = load_bytes(&whole, &options(stacks)).expect("the whole file is good");
            let mut read = 0;
            for end in 1..whole.trim_ascii_end().len() {
                let Ok(part) = load_bytes(&whole[..end], &options(stacks)) else {
                    error(&whole[..end]);
                    continue;
                };
                read += 1;
                for one in &part {
                    // Streams and stacks are numbered as far as they occur.
                    let bare = |e: &Entry| (e.action, e.addr, e.size, e.time_us);
                    let whole = all[0].entries.iter().map(bare).take(one.entries.len());
                    assert!(whole.eq(one.entries.iter().map(bare)), "{name} {end}");
                    assert!(one.warnings.iter().any(|warning| warning.kind == WarningKind::CutOff));
                    let has_all = one.entries.len() == all[0].entries.len();
                    assert!(has_all || one.cut_off.is_some(), "{name}, {end} bytes");
                    assert!(has_all || one.entries.is_empty() || !one.has_segments, "{name} {end}");
                }
            }
            assert!(read > 0, "{name}: nothing was ever recovered");
        }
    }
}

#[test]
fn objects_are_refused_by_name() {
    let cases: [(&[u8], &str); 8] = [
        (b"cos\nsystem\n\x8c\x02ls\x85R.", "byte 2: contains Python objects: os.system;"),
        (b"\x8c\x02os\x8c\x06system\x93.", "contains Python objects: os.system;"),
        (b"(ios\nsystem\n.", "contains Python objects: os.system;"),
        (b"}}R.", "objects: REDUCE"),
        (b"}}b.", "objects: BUILD"),
        (b"K\x01Q.", "objects: BINPERSID"),
        (b"))\x81.", "objects: NEWOBJ"),
        (b"\x82\x01.", "objects: EXT1"),
    ];
    for (body, text) in cases {
        let shown = error(&pickle(body));
        assert!(shown.contains(text), "{shown}");
    }
}

#[test]
fn other_protocols_are_refused() {
    for old in [&b"(dp0\n."[..], b"(lp0\n.", b"}q\x00.", b"]q\x00."] {
        assert!(error(old).contains("pickle protocol 0 or 1"));
    }
    assert!(error(b"\x80\x09.").contains("pickle protocol 9"));
    assert!(error(&pickle(b"I12\n.")).contains("text operation 'I' of protocol 0"));
    assert!(error(&pickle(b"\xff.")).contains("0xff is no pickle operation"));
}

#[test]
fn numbers_that_cannot_be_are_named_with_their_place() {
    let alloc = b"\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04size";
    let cases: [(&[u8], &str); 7] = [
        (b"J\xff\xff\xff\xff", "device_traces[0][0].size (byte"),
        (b"J\xff\xff\xff\xff", "is a negative number"),
        (b"\x8a\x0a0123456789", "is a number beyond 64 bits"),
        (b"G@\x04\x00\x00\x00\x00\x00\x00", "is a fractional number"),
        (b"\x8c\x02xx", "is a string (\"xx\"), but must be a whole number"),
        (b"\x88", "is a truth value"),
        (b"N", "has no \"size\""),
    ];
    for (size, text) in cases {
        let shown = error(&entry(&[alloc, size].concat()));
        assert!(shown.contains(text), "{shown}");
    }
    // 2^64 - 1 is a number of 9 bytes, and is one; 2^50 may be a size.
    let largest = [&alloc[..], b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"].concat();
    assert!(error(&entry(&largest)).contains("18446744073709551615 bytes, which is beyond any"));
    let large = [&alloc[..], b"\x8a\x07\0\0\0\0\0\0\x04"].concat();
    let records = load_bytes(&entry(&large), &options(false)).expect("an odd but whole number");
    assert_eq!(records[0].entries[0].size, 1 << 50);
    let trace = ingest(&records[0], &Labels::default());
    assert!(trace.events.is_empty() && trace.warnings[0].to_string().contains("beyond any GPU"));
}

#[test]
fn what_is_in_the_wrong_place_is_named() {
    let cases: [(&[u8], &str); 8] = [
        (b"K\x05.", "snapshot is a whole number, but must be a dict"),
        (b"}.", "snapshot is an empty dict"),
        (b"}\x8c\x01aK\x01s.", "neither \"segments\" nor \"device_traces\""),
        (b"}\x8c\x0ddevice_tracesK\x01s.", "snapshot.device_traces is a whole number"),
        (b"}\x8c\x0ddevice_traces]K\x01as.", "snapshot.device_traces[0] is a whole number"),
        (b"}\x8c\x0ddevice_traces]]K\x01aas.", "device_traces[0][0] is a whole number"),
        (b"}\x8c\x08segments]}\x8c\x01aK\x01sas.", "segments[0].blocks (byte"),
        (b"}\x8c\x08segments](}(\x8c\x08filename)\x8c\x04line)\x8c\x04name)ues.", "stack frame"),
    ];
    for (body, text) in cases {
        let (without, body) = (load_bytes(&pickle(body), &options(false)), body);
        let shown = without.map(|r| r.len()).expect_err("the wrong place").to_string();
        assert!(shown.contains(text), "{shown} for {body:?}");
    }
}

#[test]
fn odd_stack_operations_are_errors() {
    let cases: [(&[u8], &str); 9] = [
        (b".", "takes more from the stack than is there"),
        (b"K\x01(\x85.", "takes more from the stack than is there"),
        (b"}(K\x01u.", "without a value"),
        (b"(K\x01K\x02u.", "sets items of nothing, not of a dict"),
        (b"](K\x01K\x02u.", "sets items of a list, not of a dict"),
        (b"}K\x01a.", "appends to a dict, not a list"),
        (b"e.", "needs a mark"),
        (b"h\x05.", "memo 5 was never set"),
        (b"}r\xff\xff\xff\xff.", "memo number 4294967295 is absurd"),
    ];
    for (body, text) in cases {
        let shown = error(&pickle(body));
        assert!(shown.contains(text), "{shown} for {body:?}");
    }
}

#[test]
fn structures_that_contain_themselves_end() {
    // x = []; x.append(x), as the document, as device_traces, as a trace; d = {}; d["device_traces"] = d.
    for body in [
        &b"]\x94h\x00a."[..],
        b"}\x8c\x0ddevice_traces]\x94h\x00as.",
        b"}\x8c\x08segments]\x94h\x00as.",
        b"}\x94\x8c\x0ddevice_tracesh\x00s.",
    ] {
        assert!(error(&pickle(body)).contains("must be"));
    }
    let own_frames =
        b"\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x02\x8c\x06frames]\x94h\x00a";
    let with = load_bytes(&entry(own_frames), &options(true)).map(|r| r.len());
    assert!(with.expect_err("no frame").to_string().contains("frames[0] is a list"));
    assert_eq!(load_bytes(&entry(own_frames), &options(false)).map(|r| r.len()), Ok(1));
}

/// References to a list of references to one entry: a hundred million entries from 50 KB.
#[test]
fn a_document_that_unfolds_without_end_is_refused() {
    let mut body = b"}\x8c\x0ddevice_traces](](}(".to_vec();
    body.extend(b"\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x02u\x94");
    body.extend(b"h\x00".repeat(10_000));
    body.extend(b"e\x94");
    body.extend(b"h\x01".repeat(10_000));
    body.extend(b"es.");
    assert!(error(&pickle(&body)).contains("takes more than 256"));
}

#[test]
fn json_errors_name_line_and_column() {
    let cases: [(&str, &str); 6] = [
        (
            "{\"segments\": [],\n \"device_traces\": 5}",
            "line 2, column 19: the number 5 in the place of a list",
        ),
        ("{\"device_traces\": [[{\"action\": \"alloc\"}]]}", "an entry has no \"addr\""),
        (
            "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": -1}]]}",
            "the number -1 in the place of a whole number from 0 on",
        ),
        (
            "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1.5, \"size\": 1}]]}",
            "the number 1.5 in",
        ),
        (
            "{\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 1, \"size\": NaN}]]}",
            "NaN and Infinity",
        ),
        ("{\"device_traces\": []} x", "more text behind the end"),
    ];
    for (text, expected) in cases {
        let shown = error(text.as_bytes());
        assert!(shown.contains(expected), "{shown}");
    }
    let deep = format!("{{\"segments\": [], \"x\": {}", "[".repeat(1_000_000));
    error(deep.as_bytes());
}

#[test]
fn csv_errors_name_the_line() {
    let cases: [(&str, &str); 11] = [
        ("action,addr\nalloc,1\n", "line 1: the header has no column \"size\""),
        ("action,addr,size\nsetting,colour:1,0\n", "line 2: \"colour:1\" is no setting"),
        ("action,addr,size\nsetting,max_split_size:x,0\n", "line 2: \"max_split_size:x\" is no"),
        ("action,addr,size\nfinal_block_allocated,1,2\n", "line 2: a block of no segment"),
        ("action,addr,size\nfinal_segment_large,-1,2\n", "line 2: addr is \"-1\""),
        ("action,addr,size\nalloc,1,2\nalloc,-5,2\n", "line 3: addr is \"-5\""),
        ("action,addr,size\nfrees,1,2\n", "line 2: action \"frees\" is none of free, alloc"),
        ("# by hand\nevent,id,size\nalloc,a,x\n", "line 3: \"x\" is not a size"),
        ("event,id,size\nfree,a\n", "line 2: free of \"a\", which is not live"),
        ("event,id,size\nalloc,a,1\nalloc,a,1\n", "line 3: \"a\" is live already"),
        ("event,id,size\nalloc,,1\n", "line 2: \"alloc\" without an id"),
    ];
    for (text, expected) in cases {
        let shown = error(text.as_bytes());
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn files_that_are_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().join("empty.pickle");
    std::fs::write(&empty, b"").expect("it can be written");
    let cases = [
        (folder.path().to_owned(), "is a directory"),
        (folder.path().join("missing.pickle"), "cannot be read"),
        (empty, "is empty"),
    ];
    for (path, text) in cases {
        let shown = load(&path, &options(false)).map(|r| r.len()).expect_err("no file").to_string();
        assert!(shown.starts_with(&path.display().to_string()) && shown.contains(text), "{shown}");
    }
    assert!(error(b"").contains("is empty"));
    assert!(error(b"\n").contains(r#"it begins with "\n";"#), "{}", error(b"\n"));
}

/// 10 GB of zeros in each compression, and a pickle that goes on with zeros, or with what could be one.
#[test]
fn bombs_are_refused_before_they_go_off() {
    let packed = |bytes: &[u8]| zstd::encode_all(bytes, 1).expect("memory suffices");
    // Frames one after the other are one file: the same 100 MiB, a hundred times.
    let bomb =
        |head: &[u8], tail: u8| [packed(head), packed(&vec![tail; 100 << 20]).repeat(100)].concat();
    assert!(error(&bomb(b"", 0)).contains("is no trace: zeros"));
    assert!(error(&bomb(b"\x80\x04", 0)).contains("0x00 is no pickle operation"));
    assert!(error(&bomb(b"{\"segments\": [", b' ')).contains("bomb"));
    let small = LoadOptions { max_bytes: 1000, ..LoadOptions::default() };
    let packed = zstd::encode_all(&data("snapshot.4.pickle")[..], 3).expect("memory suffices");
    for bytes in [packed, data("snapshot.4.pickle")] {
        let shown = load_bytes(&bytes, &small).map(|r| r.len()).expect_err("too large").to_string();
        assert!(shown.contains("above the limit of 1000 B"), "{shown}");
    }
}

/// Small files whose content would fill the memory: every operation that makes much of a byte or two.
#[test]
fn what_a_small_file_makes_stays_small() {
    let many = |piece: &[u8]| piece.repeat((80 << 20) / piece.len());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("small.pickle.zst");
    let cases: [(&[u8], &[u8]); 8] = [
        // Lists, dicts and tuples by the hundred million; numbers on the stack, and in the memo.
        (b"", b"]N"),
        (b"", b"}N"),
        (b"", b"K\x01\x85"),
        (b"", b"NK\x01"),
        (b"(", b"(N"),
        (b"K\x01", b"\x94\x94K\x01\x94"),
        (b"](", b"NNNNNNNNh\x00eh\x00("),
        // A list that is appended to itself.
        (b"]\x94(", b"h\x00h\x00h\x00"),
    ];
    for (head, piece) in cases {
        let plain = pickle(&[head, &many(piece)].concat());
        let packed = zstd::encode_all(&plain[..], 1).expect("memory suffices");
        assert!(packed.len() < 40_000, "{} bytes of {piece:?}", packed.len());
        std::fs::write(&file, &packed).expect("it can be written");
        // The content itself, 256 MiB, what packed files may take, and the tables as they grow.
        let shown = limited(1000 << 10, &["inspect", &file.to_string_lossy()]);
        let known = ["of memory to read, far more", "memo 0 was never set"];
        assert!(known.iter().any(|text| shown.contains(text)), "{shown} for {piece:?}");
    }
}

/// What the program says that may have this many KiB of memory, and finds its input bad.
fn limited(kib: u64, args: &[&str]) -> String {
    let script = format!("ulimit -v {kib}; exec \"$@\"");
    let mut run = Command::new("sh");
    run.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_gmlake-sim")]).args(args);
    let run = run.output().expect("there is a shell");
    let shown = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(2), "{shown}");
    assert_eq!(shown.lines().count(), 1, "{shown}");
    shown
}

/// Streams without an end end at their first block.
#[test]
fn a_stream_that_is_no_trace_is_refused_at_once() {
    // One random byte in 256 begins a pickle, so that the first is chosen.
    let random = r"(printf '\376'; cat /dev/urandom) |";
    for stream in ["yes |", random, "cat /dev/zero |", "yes '{' | gzip -1 |"] {
        let script = format!("{stream} exec \"$0\" inspect -");
        let shown = refused(&script);
        assert!(shown.contains("is no trace"), "{shown} for {stream}");
    }
    // What begins like a pickle must go on like one.
    for head in [r"\200\004", r"\200\004B\377\377\377\177"] {
        let shown =
            refused(&format!("(printf '{head}'; cat /dev/urandom) | exec \"$0\" inspect -"));
        assert!(shown.contains("byte "), "{shown}");
    }
    for device in ["/dev/urandom", "/dev/zero"] {
        let shown = refused(&format!("exec \"$0\" inspect {device}"));
        assert!(shown.starts_with(&format!("gmlake-sim: {device}: ")), "{shown}");
    }
}

/// What a script says that runs the program on a bad stream, within a moment.
fn refused(script: &str) -> String {
    let begin = std::time::Instant::now();
    let run = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_gmlake-sim")]).output();
    let run = run.expect("there is a shell");
    assert!(begin.elapsed().as_secs() < 10, "{script} took {:?}", begin.elapsed());
    assert_eq!(run.status.code(), Some(2), "{script}");
    String::from_utf8_lossy(&run.stderr).into_owned()
}

#[test]
fn the_limit_is_an_option() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/snapshot.4.pickle");
    let shown = refused(&format!("exec \"$0\" inspect {file} --max-input 1KiB"));
    assert!(
        shown.contains("content above the limit of 1 KiB; raise it with --max-input"),
        "{shown}"
    );
}

#[test]
fn damaged_compression_is_an_error() {
    let packed = zstd::encode_all(&data("snapshot.4.pickle")[..], 3).expect("memory suffices");
    assert!(error(&packed[..packed.len() / 2]).contains("zstd data is damaged"));
    assert!(error(b"\x1f\x8b\x08rubbish").contains("gzip data is damaged"));
    assert!(error(b"\xfd7zXZ\x00rubbish and more of it").contains("xz data is damaged"));
}

/// CPython reads what it wrote; do we read the same numbers?
#[test]
fn cpython_and_we_agree_on_what_it_writes() {
    let script = "
import pickle, random, sys
seed, protocol = int(sys.argv[1]), int(sys.argv[2])
random.seed(seed)
shared = [{'name': 'f', 'filename': 'g', 'line': 1}] * 3
entries = []
for i in range(2500):
    entry = {'action': random.choice(['alloc', 'free_requested', 'snapshot']),
             'addr': random.getrandbits(random.choice([1, 8, 16, 31, 32, 47, 63, 64])),
             'size': random.getrandbits(random.choice([8, 16, 40])), 'time_us': i,
             'stream': random.choice([0, 7, 2**63, 2**64 - 1])}
    odd = [None, 1.5, (), (1, 2, 3, 4), -5, 10**30, 'e' * 300, [{}], {'a': [{1: 2}]}]
    if protocol >= 4: odd += [b'x', b'y' * 300, {1, 2}, frozenset([3])]
    entry['extra'] = random.choice(odd)
    if i % 3 == 0: entry['frames'] = shared
    items = list(entry.items()); random.shuffle(items)
    entries.append(dict(items))
print(' '.join(f'{e[\"addr\"]}:{e[\"size\"]}:{e[\"stream\"]}' for e in entries), file=sys.stderr)
sys.stdout.buffer.write(pickle.dumps({'device_traces': [entries], 'segments': []}, protocol))
";
    for (seed, protocol) in [(1, "2"), (2, "3"), (3, "4"), (4, "5")] {
        let run =
            Command::new("python3").args(["-c", script, &seed.to_string(), protocol]).output();
        let Ok(run) = run.map_err(|_| eprintln!("no python3: skipped")) else { return };
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let records = load_bytes(&run.stdout, &options(true)).expect("CPython wrote it").remove(0);
        let ours: Vec<String> = records
            .entries
            .iter()
            .map(|e| format!("{}:{}:{}", e.addr, e.size, records.streams[usize::from(e.stream.0)]))
            .collect();
        assert_eq!(ours.join(" "), String::from_utf8_lossy(&run.stderr).trim());
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let csv = [&b"action,addr,size\n"[..], b"event,id,size\n"];
        for head in [&b""[..], b"\x80\x04", b"{\"segments\":"].into_iter().chain(csv) {
            drop(load_bytes(&[head, &bytes].concat(), &options(true)));
        }
    }

    #[test]
    fn damaged_files_never_panic(
        at in 0_usize..2000,
        byte in any::<u8>(),
        cut in 0_usize..8,
        other in 0_usize..2000,
    ) {
        let pickles = ["snapshot.2.pickle", "snapshot.4.pickle"];
        for name in pickles.into_iter().chain(["snapshot.json", "chrome.json", "recorded.csv"]) {
            let mut bytes = data(name);
            let (at, other) = (at % bytes.len(), other % bytes.len());
            bytes[at] = byte;
            bytes.drain(other..(other + cut).min(bytes.len()));
            for stacks in [false, true] {
                for records in load_bytes(&bytes, &options(stacks)).unwrap_or_default() {
                    drop(ingest(&records, &Labels::default()));
                }
            }
        }
    }
}
