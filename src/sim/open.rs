//! Opens a file: from its path to a trace that is ready to be replayed.
//!
//! Everything that the simulator reads comes through here, so that every command understands the same files. Reading is
//! `trace::load`; what the file does not say in words is worked out by [`reconstruct`](super::reconstruct).

use std::num::NonZeroUsize;
use std::path::Path;

use rayon::prelude::*;

use super::opened::Opened;
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

impl OpenOptions {
    fn to_load(&self) -> LoadOptions {
        let Self { version, stacks, max_input, snapshot, .. } = *self;
        LoadOptions { torch_version: version, stacks, max_bytes: max_input, snapshot, host: false }
    }
}

/// Opens one device of a file.
///
/// # Errors
/// If the file cannot be read or understood, or it is not clear which device is meant.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, TraceError> {
    open_one(path, trace::load(path, &options.to_load())?, options)
}

/// Opens one device of a file whose content is already in memory, under this name.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(name: &Path, bytes: &[u8], options: &OpenOptions) -> Result<Opened, TraceError> {
    open_one(name, trace::load_bytes(bytes, &options.to_load())?, options)
}

/// Opens every device of a file that has entries, or the one that was asked for.
///
/// # Errors
/// If the file cannot be read or understood, or has no such device, or no entries at all.
pub fn open_all(path: &Path, options: &OpenOptions) -> Result<Vec<Opened>, TraceError> {
    let mut all = trace::load(path, &options.to_load())?;
    let devices = devices(&all);
    let is_plain = devices.iter().filter(|&&(_, entries)| entries > 0).count() < 2;
    if options.device.is_some() || is_plain {
        return Ok(vec![open_one(path, all, options)?]);
    }
    all.retain(|records| !records.entries.is_empty());
    let of = |records| reconstruct(remote::shown(path), records, devices.clone(), options.version);
    Ok(all.into_par_iter().map(of).collect())
}

fn open_one(path: &Path, all: Vec<Records>, options: &OpenOptions) -> Result<Opened, TraceError> {
    let devices = devices(&all);
    let records = trace::choose_device(all, options.device, path)?;
    Ok(reconstruct(remote::shown(path), records, devices, options.version))
}

fn devices(all: &[Records]) -> Vec<(u32, usize)> {
    all.iter().map(|records| (records.device, records.entries.len())).collect()
}
