//! Snapshots of other versions: which PyTorch wrote a file, as its keys tell, and names that no version has yet.

use gmlake::trace::{LoadOptions, Records, WarningKind, load_bytes};
use serde_json::{Value, json};

/// A value as a pickle of protocol 2.
fn pickle(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bool(yes) => out.push(if *yes { 0x88 } else { 0x89 }),
        Value::Number(number) => {
            let whole = number.as_i64().expect("a whole number");
            out.extend([0x8a, 8]);
            out.extend(whole.to_le_bytes());
        }
        Value::String(text) => {
            out.push(b'X');
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.bytes());
        }
        Value::Array(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| pickle(item, out));
            out.push(b'e');
        }
        Value::Object(items) => {
            out.extend(b"}(");
            for (key, item) in items {
                pickle(&Value::String(key.clone()), out);
                pickle(item, out);
            }
            out.push(b'u');
        }
        Value::Null => out.push(b'N'),
    }
}

/// The same file as JSON and as a pickle, read; both readers see the same.
fn read(value: &Value) -> Records {
    let mut bytes = vec![0x80, 2];
    pickle(value, &mut bytes);
    bytes.push(b'.');
    let [from_pickle, from_json] = [bytes, value.to_string().into_bytes()]
        .map(|bytes| load_bytes(&bytes, &LoadOptions::default()).expect("a good file").remove(0));
    assert_eq!(format!("{from_pickle:?}"), format!("{from_json:?}"));
    from_json
}

fn entry(action: &str, at: u64, more: &[(&str, Value)]) -> Value {
    let mut made = json!({"action": action, "addr": at, "size": 512, "stream": 0, "time_us": 1});
    more.iter().for_each(|(key, value)| made[*key] = value.clone());
    made
}

fn snapshot(entries: &[Value], settings: &[&str]) -> Value {
    let mut made = json!({
        "segments": [],
        "device_traces": [entries],
        "external_annotations": [],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0,
            "expandable_segments": false,
            "pinned_num_register_threads": 1,
            "release_lock_on_cudamalloc": false,
            "pinned_use_cuda_host_register": false,
            "roundup_power2_divisions": {"1": 0},
        },
    });
    settings.iter().for_each(|key| made["allocator_settings"][*key] = json!(false));
    made
}

#[test]
fn keys_tell_of_the_writer() {
    let reuse = "graph_capture_record_stream_reuse";
    let labels = [("compile_context", json!("N/A")), ("user_metadata", json!(""))];
    let known = |value: &Value| read(value).written_by.map(|writer| writer.to_string());
    let of_2_7 = snapshot(&[entry("alloc", 512, &[])], &[]);
    assert_eq!(known(&of_2_7).as_deref(), Some("PyTorch 2.5 to 2.7"));
    let of_2_8 = snapshot(&[entry("alloc", 512, &labels[..1])], &[]);
    assert_eq!(known(&of_2_8).as_deref(), Some("PyTorch 2.8"));
    let mut newer = snapshot(&[entry("alloc", 512, &labels)], &[reuse]);
    assert_eq!(known(&newer).as_deref(), Some("PyTorch 2.10 to 2.11"));
    newer["device_traces"][0][0]["pool_id"] = json!([0, 0]);
    assert_eq!(known(&newer).as_deref(), Some("PyTorch 2.12"));
    newer["allocator_settings"]["max_round_threshold"] = json!(0);
    newer["host_traces"] = json!([]);
    assert_eq!(known(&newer).as_deref(), Some("PyTorch 2.14 or later"));
    newer["allocator_settings"]["expandable_segments"] = Value::Null;
    let settings = newer["allocator_settings"].as_object_mut().expect("a dict");
    settings.remove("pinned_num_register_threads");
    assert_eq!(known(&newer), None);
}

#[test]
fn unknown_names_are_left_out_and_named_once() {
    let entries = [
        entry("alloc", 512, &[]),
        entry("annotate", 512, &[("internal_metadata", json!("w"))]),
        entry("annotate", 512, &[]),
        entry("of_tomorrow", 0, &[]),
        entry("free_requested", 512, &[]),
    ];
    let mut made = snapshot(&entries, &["setting_of_tomorrow"]);
    made["part_of_tomorrow"] = json!([{"segments": []}]);
    let records = read(&made);
    assert_eq!((records.entries.len(), records.unknown_actions), (2, 3));
    let [actions, keys] = &records.warnings[..] else { panic!("{:?}", records.warnings) };
    assert_eq!((actions.kind, actions.count), (WarningKind::UnknownAction, 3));
    assert_eq!(actions.first, "\"annotate\" before entry 1; also \"of_tomorrow\"");
    assert_eq!((keys.kind, keys.count), (WarningKind::UnknownKey, 2));
    assert_eq!(keys.first, "\"part_of_tomorrow\", \"setting_of_tomorrow\"");
}
