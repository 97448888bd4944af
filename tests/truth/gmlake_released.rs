//! The released GMLake on real recordings, against what the published code did there.
//!
//! Each row of `tests/data/gmlake_released_on_traces.csv` is one recording under one setting, run through the
//! published allocator on a counting driver. Traces that are not in `traces/` are looked for in the folder named by
//! `GMLAKE_TRACES`, or in `../shared/traces`; rows without a trace are skipped, those with a shipped one never.

use std::path::{Path, PathBuf};

use gmlake::allocator::{Allocator, Released, ReleasedOptions};
use gmlake::device::{CallCounts, Counted, SimDevice, Watched};
use gmlake::drive::{OnOom, Replay};
use gmlake::trace::{EventKind, Labels, LoadOptions, Trace, choose_device, ingest, load};
use gmlake::units::{Bytes, GIB};

/// Rows whose traces come with the repository: seven recordings, three settings each.
const SHIPPED_ROWS: usize = 21;

/// One line of the table, as far as it does not depend on the machine.
#[derive(Debug, serde::Deserialize)]
struct Row {
    trace: String,
    #[serde(rename = "fragLimit_bytes")]
    frag_limit: Bytes,
    #[serde(rename = "reAlloc")]
    re_alloc: u8,
    reserved_peak_gib: String,
    ooms: usize,
    retries: u64,
    create: u64,
    map: u64,
    set_access: u64,
    reserve: u64,
    unmap: u64,
    release: u64,
    cuda_malloc: u64,
    events: usize,
}

fn find_trace(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("GMLAKE_TRACES").map(PathBuf::from);
    let folders = [Some(root.join("traces")), named, Some(root.join("../shared/traces"))];
    let paths =
        folders.into_iter().flatten().map(|folder| folder.join(format!("{name}.pickle.xz")));
    paths.into_iter().find(|path| path.exists())
}

fn read(path: &Path) -> Trace {
    let records = load(path, &LoadOptions::default()).expect("a recording");
    ingest(&choose_device(records, None, path).expect("one device"), &Labels::default())
}

/// Requests and frees, each free counted once.
fn calls_of_the_program(trace: &Trace) -> usize {
    trace.events.iter().filter(|event| event.kind != EventKind::FreeRequested).count()
}

fn check(row: &Row, trace: &Trace) {
    let options = ReleasedOptions {
        frag_limit: row.frag_limit,
        re_alloc: row.re_alloc > 0,
        auto_gc: 10_000 * GIB,
        ..ReleasedOptions::default()
    };
    let mut allocator = Released::new(options, Bytes::MAX);
    let mut device = Watched::new(SimDevice::new(141 * GIB), Counted::default());
    let mut replay = Replay::new(trace, OnOom::Skip);
    let whole = 0..trace.events.len();
    let flow =
        replay.advance(whole, &mut allocator, &mut device, &mut ()).expect("no driver error");
    assert!(flow.is_continue());
    let expected = CallCounts {
        mem_alloc: row.cuda_malloc,
        address_reserve: row.reserve,
        create: row.create,
        release: row.release,
        map: row.map,
        set_access: row.set_access,
        unmap: row.unmap,
        ..CallCounts::default()
    };
    assert_eq!(device.watch.calls, expected, "{row:?}");
    let peak = format!("{:.2}", allocator.peak().reserved as f64 / GIB as f64);
    assert_eq!(peak, row.reserved_peak_gib, "{row:?}");
    assert_eq!(
        (allocator.retries(), replay.outcome.ooms.len()),
        (row.retries, row.ooms),
        "{row:?}"
    );
}

#[test]
fn every_driver_call_on_real_traces_is_that_of_the_published_code() {
    let table = include_bytes!("../data/gmlake_released_on_traces.csv");
    let rows: Vec<Row> = csv::Reader::from_reader(&table[..])
        .deserialize()
        .collect::<Result<_, _>>()
        .expect("the table is well-formed");
    assert_eq!(rows.len(), 51);
    let mut checked = 0;
    for of_one_trace in rows.chunk_by(|a, b| a.trace == b.trace) {
        let Some(path) = find_trace(&of_one_trace[0].trace) else { continue };
        let trace = read(&path);
        assert_eq!(calls_of_the_program(&trace), of_one_trace[0].events, "{}", path.display());
        of_one_trace.iter().for_each(|row| check(row, &trace));
        checked += of_one_trace.len();
    }
    eprintln!("{checked} of {} rows checked", rows.len());
    assert!(checked >= SHIPPED_ROWS);
}
