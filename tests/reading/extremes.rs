//! Sizes and addresses at the ends of what a number holds: an answer or one line, and no sum that overflows.

use std::path::Path;

use gmlake::alloc_conf::AllocConf;
use gmlake::allocator::Environment;
use gmlake::inspect::inspect;
use gmlake::sim::open_bytes;
use gmlake::trace::{LoadOptions, load_bytes};
use gmlake::verify::verify;
use proptest::prelude::*;

use crate::common::cli::gmlake_sim;

/// A power of two with something small added or taken away.
fn number() -> impl Strategy<Value = u64> {
    let edge = (0_u32..=64, -513_i128..=513).prop_map(|(bits, more)| (1_i128 << bits) + more);
    edge.prop_map(|number| number.clamp(0, u64::MAX.into()) as u64)
}

fn entry() -> impl Strategy<Value = String> {
    let actions = ["alloc", "free_requested", "free_completed", "oom", "snapshot"];
    let calls = ["segment_alloc", "segment_free", "segment_map", "segment_unmap"];
    let action = prop::sample::select([&actions[..], &calls].concat());
    (action, number(), number()).prop_map(|(action, at, size)| {
        format!(r#"{{"action": "{action}", "addr": {at}, "size": {size}, "stream": 0}}"#)
    })
}

fn segment() -> impl Strategy<Value = String> {
    let block = (number(), prop::sample::select(vec!["active_allocated", "inactive"]));
    let block = block
        .prop_map(|(size, state)| format!(r#"{{"size": {size}, "state": "{state}"}}"#))
        .boxed();
    (number(), prop::collection::vec(block, 1..3)).prop_map(|(at, blocks)| {
        format!(r#"{{"address": {at}, "blocks": [{}]}}"#, blocks.join(","))
    })
}

proptest! {
    #[test]
    fn no_size_and_no_address_is_a_panic(
        entries in prop::collection::vec(entry(), 1..30),
        segments in prop::collection::vec(segment(), 0..5),
    ) {
        let (entries, segments) = (entries.join(","), segments.join(","));
        let text = format!(r#"{{"segments": [{segments}], "device_traces": [[{entries}]]}}"#);
        let options = LoadOptions::default();
        let environment = Environment::new(AllocConf::default());
        if let Ok(opened) = open_bytes(Path::new("-"), text.as_bytes(), &options) {
            drop(inspect(&opened));
            for records in load_bytes(text.as_bytes(), &options).unwrap() {
                drop(verify(&records, &environment));
            }
        }
    }
}

#[test]
fn memory_at_the_end_of_all_addresses_is_one_line() {
    let last = u64::MAX - (1 << 21);
    let cases = [(1 << 63, 1, "up to the address"), (last, 1, "up to the address")];
    for (at, count, problem) in cases.into_iter().chain([(1 << 40, 40, "together")]) {
        let size: u64 = if count == 1 { 1 << 21 } else { 1 << 59 };
        let entry = format!(
            r#"{{"action": "segment_alloc", "addr": {at}, "size": {size}, "stream": 0,
            "time_us": 1}}"#
        );
        let entries = vec![entry; count].join(",");
        let text = format!(r#"{{"segments": [], "device_traces": [[{entries}]]}}"#);
        for command in ["compare", "inspect", "verify"] {
            let said = gmlake_sim().args([command, "-"]).write_stdin(text.clone()).assert().code(2);
            let said = String::from_utf8_lossy(&said.get_output().stderr).into_owned();
            assert!(said.contains(problem) && said.lines().count() == 1, "{said}");
        }
    }
}
