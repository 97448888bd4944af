//! Opens a file: from its path to a trace that is ready to be replayed.
//!
//! Everything that the simulator reads comes through here, so that every command understands the same files. Reading is
//! `trace::load`; what the file does not say in words is worked out by [`reconstruct`](super::reconstruct).

use std::num::NonZeroUsize;
use std::path::Path;

use rayon::prelude::*;

use super::opened::Opened;
use super::places::ends_before_backward;
use super::reconstruct::reconstruct;
use crate::alloc_conf::TorchVersion;
use crate::remote;
use crate::trace::{self, LoadOptions, MAX_INPUT, Records, TraceError};
use crate::units::Bytes;

/// How a file is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The device; `None`: the only one with entries.
    pub device: Option<u32>,
    /// The PyTorch that wrote the file; `None`: as its keys tell.
    pub version: Option<TorchVersion>,
    /// Whether to keep the call stacks; see [`LoadOptions::stacks`].
    pub stacks: bool,
    /// A file whose content is larger than this is refused.
    pub max_input: Bytes,
    /// Which snapshot of a file that holds several; see [`LoadOptions::snapshot`].
    pub snapshot: Option<NonZeroUsize>,
}

impl Default for OpenOptions {
    /// The only device, without stacks, read as what wrote it; at most [`MAX_INPUT`].
    fn default() -> Self {
        Self { device: None, version: None, stacks: false, max_input: MAX_INPUT, snapshot: None }
    }
}

/// Opens one device of a file.
///
/// # Errors
/// If the file cannot be read or understood, or it is not clear which device is meant.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, TraceError> {
    let all = load(path, options)?;
    let devices = devices(&all);
    let records = trace::choose_device(all, options.device, path)?;
    Ok(prepare(path, devices, records, options.version))
}

/// Opens one device of a file whose content is already in memory, under this name.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(name: &Path, bytes: &[u8], options: &OpenOptions) -> Result<Opened, TraceError> {
    let all = trace::load_bytes(bytes, &load_options(options))?;
    let devices = devices(&all);
    let records = trace::choose_device(all, options.device, name)?;
    Ok(prepare(name, devices, records, options.version))
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
        return Ok(vec![prepare(path, devices, records, options.version)]);
    }
    all.retain(|records| !records.entries.is_empty());
    let prepare = |records| prepare(path, devices.clone(), records, options.version);
    Ok(all.into_par_iter().map(prepare).collect())
}

fn load(path: &Path, options: &OpenOptions) -> Result<Vec<Records>, TraceError> {
    trace::load(path, &load_options(options))
}

fn load_options(options: &OpenOptions) -> LoadOptions {
    let OpenOptions { version, stacks, max_input, snapshot, .. } = *options;
    LoadOptions { torch_version: version, stacks, max_bytes: max_input, snapshot, host: false }
}

fn devices(all: &[Records]) -> Vec<(u32, usize)> {
    all.iter().map(|records| (records.device, records.entries.len())).collect()
}

fn prepare(
    path: &Path,
    devices: Vec<(u32, usize)>,
    records: Records,
    version: Option<TorchVersion>,
) -> Opened {
    let file = remote::shown(path);
    let mut opened = Opened { devices, ..reconstruct(file, records, version) };
    if opened.coverage.ends_in_first_step() && ends_before_backward(&opened.records) {
        opened.coverage = opened.coverage.without_backward();
    }
    opened
}
