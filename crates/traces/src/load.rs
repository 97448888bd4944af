//! `load`: a file's records; `choose_device`: those of the one device that a run is about.

use std::path::Path;

use super::input::Input;
use super::{LoadOptions, Position, Records, Result, TraceError};

/// Reads a file in any of our formats, plain or compressed: one [`Records`] for each device that has entries or
/// segments, in order of device. `-` is standard input.
///
/// # Errors
/// If the file cannot be read, is in none of our formats, or is damaged.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Vec<Records>> {
    let records = Input::open(path, options).and_then(|input| input.records(options));
    records.map_err(|error| error.in_file(path))
}

/// Like [`load`], from the content of a file, plain or compressed.
///
/// # Errors
/// As [`load`], with `-` for the path.
pub fn load_bytes(bytes: &[u8], options: &LoadOptions) -> Result<Vec<Records>> {
    Input::from_bytes(bytes, options)?.records(options)
}

/// The content of a file, decompressed if it is compressed.
///
/// # Errors
/// If it is damaged, or larger than the limit of `options`.
pub fn unpack(bytes: &[u8], options: &LoadOptions) -> Result<Vec<u8>> {
    Ok(Input::from_bytes(bytes, options)?.bytes().to_vec())
}

/// The records of `device`, or of the only device with entries. If no device has entries, but some have segments, it is
/// one of those: a state without a history.
///
/// # Errors
/// If there are no entries and no segments at all, none of that device, or several devices have some and none was
/// chosen.
pub fn choose_device(records: Vec<Records>, device: Option<u32>, path: &Path) -> Result<Records> {
    let fail = |problem: String, remedy: &str| {
        Err(TraceError::new(Position::File, problem, remedy).in_file(path))
    };
    let (mut recorded, mut states): (Vec<Records>, Vec<Records>) =
        records.into_iter().partition(|device| !device.entries.is_empty());
    states.retain(|device| !device.segments.is_empty());
    if recorded.is_empty() {
        recorded = states;
    }
    if recorded.is_empty() {
        return fail(
            "no events: recording was never enabled, or was stopped before the snapshot".to_owned(),
            "call torch.cuda.memory._record_memory_history(max_entries=sys.maxsize) before the job",
        );
    }
    let found = match device {
        Some(wanted) => recorded.iter().position(|device| device.device == wanted),
        None => (recorded.len() == 1).then_some(0),
    };
    match (found, device) {
        (Some(place), _) => Ok(recorded.swap_remove(place)),
        (None, Some(wanted)) => {
            let problem = format!("no events of device {wanted}, only of {}", list(&recorded));
            fail(problem, "choose one of these with --device")
        }
        (None, None) => {
            let problem = format!("events of several devices: {}", list(&recorded));
            fail(problem, "choose one of them with --device")
        }
    }
}

/// `device 0 (12 entries), device 3 (5 entries)`.
fn list(records: &[Records]) -> String {
    let one =
        |device: &Records| format!("device {} ({} entries)", device.device, device.entries.len());
    records.iter().map(one).collect::<Vec<_>>().join(", ")
}
