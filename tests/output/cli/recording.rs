//! A recording for the command line's tests, as Python would write it.

use serde_json::{Value, json};

use super::MIB;

/// A job on a caching allocator: 3 MiB, 30 MiB, and 4 MiB in the place of the first.
///
/// ```text
///   segment A, 20 MiB   [ 3 |            ]  then  [ 4 |           ]
///   segment B, 30 MiB   [ 30             ]
/// ```
pub(super) fn snapshot() -> Value {
    let (a, b) = (0x7f00_0000_0000_u64, 0x7f00_1000_0000_u64);
    let steps = [
        ("segment_alloc", a, 20 * MIB),
        ("alloc", a, 3 * MIB),
        ("segment_alloc", b, 30 * MIB),
        ("alloc", b, 30 * MIB),
        ("free_requested", a, 3 * MIB),
        ("free_completed", a, 3 * MIB),
        ("alloc", a, 4 * MIB),
    ];
    let entry = |(index, &(action, addr, size)): (usize, &(&str, u64, u64))| {
        let time_us = 1_700_000_000_000_000 + 250_000 * index as u64;
        json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us})
    };
    let in_a =
        vec![block(a, 4 * MIB, "active_allocated"), block(a + 4 * MIB, 16 * MIB, "inactive")];
    let in_b = vec![block(b, 30 * MIB, "active_allocated")];
    json!({
        "segments": [segment(a, 20 * MIB, in_a), segment(b, 30 * MIB, in_b)],
        "device_traces": [steps.iter().enumerate().map(entry).collect::<Vec<_>>()],
        "allocator_settings": { "PYTORCH_CUDA_ALLOC_CONF": "" },
        "external_annotations": []
    })
}

fn block(address: u64, size: u64, state: &str) -> Value {
    json!({"address": address, "size": size, "requested_size": size, "state": state, "frames": []})
}

fn segment(address: u64, size: u64, blocks: Vec<Value>) -> Value {
    json!({
        "device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
        "segment_pool_id": [0, 0], "is_expandable": false, "frames": [], "blocks": blocks
    })
}

/// The value as Python's `pickle` writes it in protocol 2; pairs of numbers are tuples.
fn pickle(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'N'),
        Value::Bool(yes) => out.push(if *yes { 0x88 } else { 0x89 }),
        Value::Number(number) => {
            out.extend([0x8a, 8]);
            out.extend(number.as_i64().expect("a whole number").to_le_bytes());
        }
        Value::String(text) => {
            out.push(b'X');
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        }
        Value::Array(items) if items.len() == 2 && items.iter().all(Value::is_u64) => {
            items.iter().for_each(|item| pickle(item, out));
            out.push(0x86);
        }
        Value::Array(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| pickle(item, out));
            out.push(b'e');
        }
        Value::Object(pairs) => {
            out.extend(b"}(");
            for (key, value) in pairs {
                pickle(&Value::from(key.as_str()), out);
                pickle(value, out);
            }
            out.push(b'u');
        }
    }
}

pub(super) fn pickled(value: &Value) -> Vec<u8> {
    let mut out = vec![0x80, 2];
    pickle(value, &mut out);
    out.push(b'.');
    out
}
