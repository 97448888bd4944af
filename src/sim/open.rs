//! Opens a file: from its path to a trace that is ready to be replayed.
//!
//! Everything that the simulator reads comes through here, so that every command understands the same files.

use std::path::Path;

use crate::alloc_conf::TorchVersion;
use crate::metrics::RunSummary;
use crate::trace::{self, Labels, LoadOptions, Records, Trace, TraceError, ingest};

/// How a file is opened.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The device; `None`: the only one with entries.
    pub device: Option<u32>,
    /// The PyTorch that the allocator settings in the file are read as.
    pub version: TorchVersion,
}

/// What was found about one device of a file.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The file, as given.
    pub file: String,
    /// Every device in the file, with its number of entries.
    pub devices: Vec<(u32, usize)>,
    /// What the file says, entry by entry.
    pub records: Records,
    /// What the program did.
    pub trace: Trace,
    /// What the recording itself says about peaks and calls, if it says enough.
    pub recorded: Option<RunSummary>,
}

/// Opens one device of a file.
///
/// # Errors
/// If the file cannot be read or understood, or it is not clear which device is meant.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, TraceError> {
    let all = load(path, options)?;
    let devices = devices(&all);
    let records = trace::choose_device(all, options.device, path)?;
    Ok(prepare(path, devices, records))
}

/// Opens every device of a file that has entries, or the one that was asked for.
///
/// # Errors
/// If the file cannot be read or understood, or has no such device, or no entries at all.
pub fn open_all(path: &Path, options: &OpenOptions) -> Result<Vec<Opened>, TraceError> {
    let mut all = load(path, options)?;
    let devices = devices(&all);
    let is_plain = devices.iter().filter(|&&(_, entries)| entries > 0).count() < 2;
    if options.device.is_some() || is_plain {
        let records = trace::choose_device(all, options.device, path)?;
        return Ok(vec![prepare(path, devices, records)]);
    }
    all.retain(|records| !records.entries.is_empty());
    Ok(all.into_iter().map(|records| prepare(path, devices.clone(), records)).collect())
}

fn load(path: &Path, options: &OpenOptions) -> Result<Vec<Records>, TraceError> {
    let load = LoadOptions { torch_version: options.version, ..LoadOptions::default() };
    trace::load(path, &load)
}

fn devices(all: &[Records]) -> Vec<(u32, usize)> {
    all.iter().map(|records| (records.device, records.entries.len())).collect()
}

/// Makes a trace of the records, and takes from them what only they say.
fn prepare(path: &Path, devices: Vec<(u32, usize)>, records: Records) -> Opened {
    let trace = ingest(&records, &Labels::default());
    let file = path.display().to_string();
    Opened { file, devices, records, trace, recorded: None }
}
