//! Entries per second of loading a snapshot, from bytes in memory to records, on one core:
//! `cargo bench --bench load`.
//!
//! PyTorch's own file of 311,534 entries comes first, from a plain file and from memory, then the same as Python writes
//! it again: in other protocols, with every text written out, with keys in another order, with nothing numbered. Where
//! there is no `python3`, these are left out.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gmlake::trace::{LoadOptions, load as load_file, load_bytes, unpack};

/// A recording without stacks, and one with those of every entry.
const RECORDINGS: [&str; 2] = ["opt-1.3b-LR-var.pickle.xz", "opt-1.3b-LR-var.frames.pickle.xz"];

/// Reads a pickle, and writes it again in the way that the first argument names.
const AGAIN: &str = "
import json, pickle, sys
snapshot, how = pickle.load(sys.stdin.buffer), sys.argv[1]
if how == 'texts':
    for trace in snapshot['device_traces']:
        for e in trace:
            e.update({k: bytes(v, 'ascii').decode() for k, v in e.items() if isinstance(v, str)})
if how == 'order':
    for trace in snapshot['device_traces']:
        trace[:] = [dict(sorted(e.items(), reverse=True)) for e in trace]
pickler = pickle.Pickler(sys.stdout.buffer, int(how) if how.isdigit() else 4)
pickler.fast = how == 'plain'
pickler.dump(snapshot)
";

/// The ways, and what they are.
const WAYS: [(&str, &str); 6] = [
    ("2", "protocol 2"),
    ("3", "protocol 3"),
    ("5", "protocol 5"),
    ("texts", "every text written out"),
    ("order", "other order of keys"),
    ("plain", "nothing numbered"),
];

fn load(c: &mut Criterion) {
    let mut group = c.benchmark_group("load");
    group.sample_size(10);
    for name in RECORDINGS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(name);
        let packed = std::fs::read(path).expect("the recording is there");
        let original = unpack(&packed, &LoadOptions::default()).expect("it is good");
        let mut file = tempfile::NamedTempFile::new().expect("there is room for it");
        file.write_all(&original).expect("there is room for it");
        let options = LoadOptions::default();
        group.throughput(Throughput::Elements(entries(&original, &options)));
        group.bench_function(format!("{}, a plain file", short(name)), |bencher| {
            bencher.iter(|| load_file(file.path(), &options).expect("it is good"));
        });
        let again = WAYS.iter().filter(|_| name == RECORDINGS[0]);
        let again = again.filter_map(|(way, what)| Some((*what, rewritten(&original, way)?)));
        let written: Vec<_> =
            [("as PyTorch wrote it", original.clone())].into_iter().chain(again).collect();
        for (what, bytes) in &written {
            for stacks in [false, true] {
                let options = LoadOptions { stacks, ..LoadOptions::default() };
                let entries = entries(bytes, &options);
                group.throughput(Throughput::Elements(entries));
                let label = if stacks { ", stacks kept" } else { "" };
                group.bench_function(format!("{}, {what}{label}", short(name)), |bencher| {
                    bencher.iter(|| load_bytes(bytes, &options).expect("it is good"));
                });
            }
        }
    }
    group.finish();
}

fn short(name: &str) -> &str {
    name.trim_end_matches(".pickle.xz")
}

fn entries(bytes: &[u8], options: &LoadOptions) -> u64 {
    let records = load_bytes(bytes, options).expect("it is good");
    records.iter().map(|records| records.entries.len() as u64).sum()
}

fn rewritten(pickle: &[u8], way: &str) -> Option<Vec<u8>> {
    let mut python = Command::new("python3");
    python.args(["-c", AGAIN, way]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().ok()?;
    child.stdin.take()?.write_all(pickle).ok()?;
    let output = child.wait_with_output().ok()?;
    output.status.success().then_some(output.stdout)
}

criterion_group!(benches, load);
criterion_main!(benches);
