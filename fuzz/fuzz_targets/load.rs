//! Any bytes as a trace file: an error or records, which can then be ingested and written; never a panic, a hang or
//! memory without end.

#![no_main]

use gmlake::trace::{Labels, LoadOptions, ingest, load_bytes, write_csv};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for stacks in [false, true] {
        let options = LoadOptions { stacks, max_bytes: 16 << 20, ..LoadOptions::default() };
        for records in load_bytes(bytes, &options).unwrap_or_default() {
            drop(ingest(&records, &Labels::default()));
            write_csv(&records, std::io::sink()).expect("a sink takes everything");
        }
    }
});
