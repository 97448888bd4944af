//! Snapshots of several devices that have no events, only what was held when they were taken.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::cli::gmlake_sim;
use predicates::str::contains;

/// A segment with one block that is in use.
fn segment(device: u32, at: u64, mib: u64) -> String {
    let bytes = mib << 20;
    format!(
        r#"{{"device": {device}, "address": {at}, "total_size": {bytes}, "allocated_size": {bytes},
            "active_size": {bytes}, "requested_size": {bytes}, "stream": 0, "segment_type": "large",
            "segment_pool_id": [0, 0], "is_expandable": false, "blocks": [{{"address": {at},
            "size": {bytes}, "requested_size": {bytes}, "state": "active_allocated"}}]}}"#
    )
}

/// Devices 0 and 2 have 100 MiB and 300 MiB, device 1 has nothing.
fn states(folder: &Path) -> PathBuf {
    let segments = [(0, 1, 100), (2, 2, 100), (2, 3, 200)];
    let segments = segments.map(|(device, at, mib)| segment(device, at << 32, mib));
    let path = folder.join("states.json");
    let text =
        format!(r#"{{"segments": [{}], "device_traces": [[], [], []]}}"#, segments.join(","));
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn every_device_of_a_state_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = states(folder.path());
    let mut compare = gmlake_sim();
    compare.args(["compare", "--json", "--every-device", "--allocators", "bound"]).arg(&path);
    let found = compare.assert().success();
    let document: serde_json::Value = serde_json::from_slice(&found.get_output().stdout).unwrap();
    let runs = document["result"]["runs"].as_array().unwrap();
    let bounds = runs.iter().filter(|run| run["allocator"] == "bound");
    let peaks: Vec<_> = bounds.map(|run| (&run["device"], &run["reserved_peak_bytes"])).collect();
    assert_eq!(peaks.len(), 2, "{document}");
    for ((device, peak), (expected, mib)) in peaks.into_iter().zip([(0, 100_u64), (2, 300)]) {
        assert_eq!((device, peak), (&expected.into(), &(mib << 20).into()));
    }
    let out = folder.path().join("out");
    gmlake_sim().arg("fleet").arg(&path).arg("--out").arg(&out).assert().success();
}

#[test]
fn of_several_states_one_is_to_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let path = states(folder.path());
    let listed = "device 0 (1 segment), device 2 (2 segments)";
    let mut compare = gmlake_sim();
    compare.arg("compare").arg(&path).assert().code(2).stderr(contains(format!(
        "segments, and no events, of several devices: {listed}; choose one of them with --device"
    )));
    let mut chosen = gmlake_sim();
    chosen.args(["compare", "--device", "2"]).arg(&path).assert().success();
    let mut wrong = gmlake_sim();
    wrong
        .args(["compare", "--device", "1"])
        .arg(&path)
        .assert()
        .code(2)
        .stderr(contains(format!("no segments, and no events, of device 1, only of {listed}")));
}
