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

/// No forward pass has more entries; what has is not read a second time.
const MOST_OF_A_PASS: usize = 1 << 20;

/// How a file is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The device; `None`: the only one with entries.
    pub device: Option<u32>,
    /// The PyTorch that wrote the file; `None`: as its keys tell.
    pub version: Option<TorchVersion>,
    /// Whether to keep the call stacks.
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
    let opened = prepare(path, devices, records, options.version);
    Ok(with_phase(opened, options, || reload(path, options)))
}

/// Opens one device of a file whose content is already in memory, under this name.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(name: &Path, bytes: &[u8], options: &OpenOptions) -> Result<Opened, TraceError> {
    let all = trace::load_bytes(bytes, &load_options(options))?;
    let devices = devices(&all);
    let records = trace::choose_device(all, options.device, name)?;
    let opened = prepare(name, devices, records, options.version);
    Ok(with_phase(opened, options, || trace::load_bytes(bytes, &with_stacks(options)).ok()))
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
        let opened = prepare(path, devices, records, options.version);
        return Ok(vec![with_phase(opened, options, || reload(path, options))]);
    }
    all.retain(|records| !records.entries.is_empty());
    let prepare = |records| {
        let opened = prepare(path, devices.clone(), records, options.version);
        with_phase(opened, options, || reload(path, options))
    };
    Ok(all.into_par_iter().map(prepare).collect())
}

fn load(path: &Path, options: &OpenOptions) -> Result<Vec<Records>, TraceError> {
    trace::load(path, &load_options(options))
}

fn load_options(options: &OpenOptions) -> LoadOptions {
    let OpenOptions { version, stacks, max_input, snapshot, .. } = *options;
    LoadOptions { torch_version: version, stacks, max_bytes: max_input, snapshot }
}

fn with_stacks(options: &OpenOptions) -> LoadOptions {
    LoadOptions { stacks: true, ..load_options(options) }
}

/// The same file with call stacks. Standard input and remote files are not read again.
fn reload(path: &Path, options: &OpenOptions) -> Option<Vec<Records>> {
    path.is_file().then(|| trace::load(path, &with_stacks(options)).ok()).flatten()
}

/// Adds to the coverage of a recording that died in its first step whether that was before the backward pass. Only call
/// stacks tell; `reload` reads the file with them.
fn with_phase(
    mut opened: Opened,
    options: &OpenOptions,
    reload: impl FnOnce() -> Option<Vec<Records>>,
) -> Opened {
    if !opened.coverage.ends_in_first_step() || opened.records.entries.len() > MOST_OF_A_PASS {
        return opened;
    }
    let device = opened.records.device;
    let is_before = match options.stacks {
        true => ends_before_backward(&opened.records),
        false => reload().is_some_and(|all| {
            let mut same = all.iter().filter(|records| records.device == device);
            same.next().is_some_and(ends_before_backward)
        }),
    };
    if is_before {
        opened.coverage = opened.coverage.without_backward();
    }
    opened
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
    let mut opened = Opened { devices, ..reconstruct(records, version) };
    opened.file = remote::shown(path);
    if let Some(recorded) = &mut opened.recorded {
        recorded.file.clone_from(&opened.file);
    }
    opened
}
