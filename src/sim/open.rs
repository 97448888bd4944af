//! Opens a file: from its path to a trace that is ready to be replayed.
//!
//! Everything that the simulator reads comes through here, so that every command understands the same files. Reading is
//! `trace::load`; what the file does not say in words is worked out by [`reconstruct`](super::reconstruct).

use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;

use super::fingerprint::fingerprint;
use super::reconstruct::reconstruct;
use super::recording::Refused;
use crate::alloc_conf::TorchVersion;
use crate::metrics::RunSummary;
use crate::remote;
use crate::trace::{
    self, Coverage, CoverageKind, Layout, LoadOptions, MAX_INPUT, Records, Trace, TraceError,
    WarningKind,
};
use crate::units::Bytes;

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
}

impl Default for OpenOptions {
    /// The only device, without stacks, read as what wrote it; at most [`MAX_INPUT`].
    fn default() -> Self {
        Self { device: None, version: None, stacks: false, max_input: MAX_INPUT }
    }
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
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// What was held when the recording began; empty if it began with the program.
    pub start: Layout,
    /// The memory limit that PyTorch must have run under, in bytes.
    pub limit: Option<Bytes>,
    /// The device's memory in bytes, where the driver refused to give more.
    pub capacity: Option<Bytes>,
    /// The first request that ran out, and what the driver had then.
    pub refused: Option<Refused>,
    /// Whether requests ran out in a private pool, while PyTorch kept the cache of all others.
    pub kept_cache: bool,
    /// What our model of PyTorch had to assume to follow the recording, one sentence each.
    pub notes: Vec<String>,
    /// What the recording itself says about peaks and calls, if it says enough.
    pub recorded: Option<RunSummary>,
    /// What [`Opened::program`] has found out; nothing before it was asked.
    pub program: OnceLock<u128>,
}

impl Opened {
    /// A number that stands for the requests and all else that runs depend on; equal programs have equal ones.
    #[must_use]
    pub fn program(&self) -> u128 {
        let limits = (self.limit, self.capacity);
        *self.program.get_or_init(|| fingerprint(&self.trace, limits))
    }

    /// All that a reader of any result should know of the recording, one sentence each; how much it covers comes first.
    #[must_use]
    pub fn all_notes(&self) -> Vec<String> {
        let warnings = self.trace.warnings.iter();
        let warnings = warnings.filter(|warning| warning.kind != WarningKind::LiveBefore);
        let texts = warnings.map(ToString::to_string).chain(self.notes.iter().cloned());
        self.coverage.caution().into_iter().chain(texts).collect()
    }

    /// Why no setting can be recommended from this recording, if that is so: the peak, or a whole step, is not in it.
    #[must_use]
    pub fn too_little_to_tune(&self) -> Option<String> {
        let is_enough = match self.coverage.kind() {
            CoverageKind::Complete => true,
            CoverageKind::Partial | CoverageKind::StateOnly => false,
            _ => !self.trace.steps.is_empty(),
        };
        let cure = self.coverage.cure().filter(|_| !is_enough)?;
        Some(format!("no setting can be recommended: {} ({cure})", self.coverage.reason()))
    }

    /// Name of the allocator that the recording ran on.
    #[must_use]
    pub fn recorded_by(&self) -> &'static str {
        let is_expandable = self.trace.settings.as_ref().is_some_and(|c| c.expandable_segments);
        if is_expandable { "expandable" } else { "caching" }
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
    let OpenOptions { version, stacks, max_input, .. } = *options;
    LoadOptions { torch_version: version, stacks, max_bytes: max_input }
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
