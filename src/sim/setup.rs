//! The world in which allocators are compared: PyTorch's settings, the device's memory, its addresses.
//!
//! By default it is the world of the recording. If PyTorch ran under a limit, all run under it; and the allocator that
//! was recorded, if it runs with the recorded settings, gets the recorded addresses: best fit breaks ties by address,
//! so that only then it can decide everything as it did. Any other run is a what-if: its addresses are those that the
//! CUDA driver would hand out, or as the user says.

use std::collections::VecDeque;
use std::sync::Arc;

use gmlake_core::cards::Target;
use twox_hash::XxHash3_128;

use super::cache::RunCache;
use super::opened::Opened;
use super::run_count::RunCount;
use crate::alloc_conf::{AllocConf, Backend, TorchVersion, TypedConf};
use crate::allocator::{Choice, Environment, OptionError, Options, Role};
use crate::device::{AddressPolicy, DevicePtr, Profile, SimDevice};
use crate::drive::OnOom;
use crate::trace::Action;
use crate::units::{Bytes, Size};
use crate::verify::range_in_words;

/// Memory of a device that never runs out: more than there are addresses.
pub(crate) const UNLIMITED: Bytes = 1 << 60;

/// How many events a GPU is taken to lag behind the program that feeds it: about a layer of a large model. It only
/// decides whether memory that another stream freed can be had as it is or after a stream-side wait.
pub const DEFAULT_GPU_LAG: u64 = 2000;

/// How much memory the device has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Memory {
    /// As much as the recording shows that there was; without end if it shows none.
    #[default]
    AsRecorded,
    /// It never runs out.
    Unlimited,
    /// This many bytes.
    Bytes(Bytes),
    /// What others leave of a card, and all of it, of which a memory fraction is a share.
    Part {
        /// Bytes that are left.
        left: Bytes,
        /// Bytes of the whole card.
        whole: Bytes,
    },
}

impl Memory {
    /// What a job may hold on a device.
    pub fn of(target: &Target) -> Self {
        let Target { capacity_bytes: left, reserve_bytes, .. } = *target;
        Self::Part { left, whole: left.saturating_add(reserve_bytes) }
    }

    /// What is left of the device, and all of it, if its size was given.
    fn given(self) -> Option<(Bytes, Bytes)> {
        match self {
            Self::AsRecorded | Self::Unlimited => None,
            Self::Bytes(bytes) => Some((bytes, bytes)),
            Self::Part { left, whole } => Some((left, whole)),
        }
    }
}

/// PyTorch's allocator settings, in place of those of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Conf {
    /// A text, which the PyTorch of each recording reads in its own way.
    Typed(TypedConf),
    /// Settings that are read already.
    Known(AllocConf),
}

impl Conf {
    /// What it means where the version of PyTorch does not matter.
    pub fn meaning(&self) -> &AllocConf {
        match self {
            Self::Typed(typed) => typed.meaning(),
            Self::Known(conf) => conf,
        }
    }

    /// The allocator of ours that is PyTorch's under these settings.
    pub fn allocator(&self) -> &'static str {
        match self.meaning() {
            AllocConf { backend: Backend::CudaMallocAsync, .. } => "cuda-async",
            AllocConf { expandable_segments: true, .. } => "expandable",
            _ => "caching",
        }
    }
}

/// Which allocators run under the independent checker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Supervision {
    /// Plug-ins.
    #[default]
    PlugIns,
    /// Every one.
    All,
    /// None: what an allocator takes of the host's time is seen best alone.
    None,
}

impl Supervision {
    pub(crate) fn covers(self, role: Role) -> bool {
        match self {
            Self::PlugIns => role == Role::PlugIn,
            Self::All => true,
            Self::None => false,
        }
    }
}

/// What the allocators are compared under.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The PyTorch whose behaviour is simulated.
    pub version: TorchVersion,
    /// Whether a file whose keys tell another version is followed.
    pub follows_file: bool,
    /// PyTorch's allocator settings; `None`: those of the recording.
    pub conf: Option<Conf>,
    /// Memory of the device.
    pub memory: Memory,
    /// Share of the device's memory that the process may hold; `None`: as the settings say.
    pub memory_fraction: Option<f64>,
    /// How the device chooses addresses; `None`: as recorded where that is possible, as the driver hands them out
    /// otherwise.
    pub addresses: Option<AddressPolicy>,
    /// What to do when memory runs out.
    pub on_oom: OnOom,
    /// How many events the GPU lags behind the program; `None`: [`DEFAULT_GPU_LAG`].
    pub gpu_lag: Option<u64>,
    /// Whether what was held when the recording began is requested anew, rather than taken over as it was.
    pub is_fresh: bool,
    /// What the driver's calls cost; `None`: they are counted only.
    pub profile: Option<Profile>,
    /// Who runs under the checker.
    pub supervision: Supervision,
    /// How many runs were made with this setup and its clones so far, and how many are ahead.
    pub runs: Arc<RunCount>,
    /// Runs that need not be made again, for the ranks of a job.
    pub cache: Option<Arc<RunCache>>,
}

impl Setup {
    /// Bytes that a run may hold, if there is an end to it.
    pub fn memory(&self, opened: &Opened) -> Option<Bytes> {
        self.limit(opened).into_iter().chain(self.physical(opened)).min()
    }

    /// Bytes that the device has for the job.
    fn physical(&self, opened: &Opened) -> Option<Bytes> {
        match self.memory {
            Memory::AsRecorded => opened.capacity,
            given => given.given().map(|(left, _)| left),
        }
    }

    /// What an allocator gets to know of the world.
    pub fn environment(&self, opened: &Opened) -> Environment {
        let limit = self.limit(opened);
        let mut environment = Environment { memory_fraction: None, limit, ..self.given(opened) };
        environment.no_split.clone_from(&opened.trace.no_split);
        // What remains of the settings' fraction would be a share of a memory that never runs out.
        environment.conf.memory_fraction = None;
        environment
    }

    /// The device for one allocator.
    pub(crate) fn device(&self, opened: &Opened, choice: &Choice) -> SimDevice {
        // PyTorch's own keeps to a limit by itself.
        let memory = match choice.spec.role {
            Role::PyTorch => self.physical(opened),
            _ => self.memory(opened),
        };
        let recorded = || self.recorded_addresses(opened, choice).map(AddressPolicy::Recorded);
        let policy = self.addresses.clone().or_else(recorded).unwrap_or(AddressPolicy::Driver);
        SimDevice::with_policy(memory.unwrap_or(UNLIMITED), policy)
            .lagging(self.gpu_lag.unwrap_or(DEFAULT_GPU_LAG))
    }

    /// What a reader of the results should know of this setup, in words.
    pub fn notes(&self, opened: &Opened) -> Vec<String> {
        let mut notes = self.notes_of_memory(opened);
        let version = self.version(opened);
        if let Some(writer) = opened.records.written_by.filter(|_| version != self.version) {
            notes.push(format!(
                "simulated as PyTorch {version}: its keys are those of {writer}; --torch-version \
                 sets another"
            ));
        }
        let conf = self.conf(opened);
        if self.conf.as_ref().is_some_and(|conf| conf.allocator() == "expandable") {
            notes.push("with expandable_segments:True PyTorch is the row expandable".to_owned());
        }
        if conf.backend == Backend::CudaMallocAsync {
            notes.push(match self.conf {
                Some(_) => {
                    "with backend:cudaMallocAsync PyTorch is the row cuda-async, and ignores the \
                     options of its own allocator"
                }
                None => {
                    "the settings name backend:cudaMallocAsync, but the events are of PyTorch's \
                     own allocator"
                }
            }
            .to_owned());
        }
        let idle = conf.without_effect;
        if !idle.is_empty() {
            notes
                .push(format!("settings that change nothing in a simulation: {}", idle.join(", ")));
        }
        notes
    }

    fn notes_of_memory(&self, opened: &Opened) -> Vec<String> {
        let fraction = self.given(opened).fraction();
        let recorded = opened.limit.or(opened.capacity).map(Size);
        match (self.memory, recorded, fraction) {
            (Memory::AsRecorded, Some(memory), _) => vec![inferred(memory, opened)],
            (Memory::AsRecorded | Memory::Unlimited, _, Some(fraction)) => vec![format!(
                "the memory fraction of {fraction} limits nothing, since the device's memory is \
                 not known: give --device-memory"
            )],
            _ => Vec::new(),
        }
    }

    /// All that a run depends on apart from the recording, in one line.
    pub fn text(&self, choice: &Choice) -> String {
        let profile = self.profile.as_ref().map(|profile| {
            let hash = XxHash3_128::oneshot(format!("{profile:?}").as_bytes());
            format!("{} {hash:032x}", profile.name)
        });
        format!("{} {profile:?}", self.conditions(choice))
    }

    /// All that an allocator's decisions depend on apart from the recording, in one line.
    pub fn conditions(&self, choice: &Choice) -> String {
        let Self {
            version,
            follows_file,
            conf,
            memory,
            memory_fraction,
            addresses,
            on_oom,
            gpu_lag,
            is_fresh,
            profile: _,
            supervision: _,
            runs: _,
            cache: _,
        } = self;
        let conf = conf.as_ref().map(|conf| conf.meaning());
        let (allocator, options) = (choice.spec.name, choice.options.rows());
        format!(
            "{allocator} {options:?} {version} {follows_file} {conf:?} {memory:?} {memory_fraction:?} \
             {addresses:?} {on_oom:?} {gpu_lag:?} {is_fresh}"
        )
    }

    /// A limit below the device's memory.
    fn limit(&self, opened: &Opened) -> Option<Bytes> {
        match self.memory {
            Memory::AsRecorded => opened.limit,
            Memory::Unlimited => None,
            Memory::Bytes(_) | Memory::Part { .. } => self.given(opened).memory_limit(),
        }
    }

    /// The PyTorch that is simulated.
    pub fn version(&self, opened: &Opened) -> TorchVersion {
        let known = opened.trace.version.filter(|_| self.follows_file);
        known.unwrap_or(self.version)
    }

    /// The settings that PyTorch runs with.
    fn conf(&self, opened: &Opened) -> AllocConf {
        match &self.conf {
            None => opened.trace.settings.clone().unwrap_or_default(),
            Some(Conf::Known(conf)) => conf.clone(),
            Some(Conf::Typed(typed)) => {
                typed.read(self.version(opened)).unwrap_or_else(|_| typed.meaning().clone())
            }
        }
    }

    /// Makes sure that the PyTorch of the recording takes the settings that were typed.
    ///
    /// # Errors
    /// If it refuses them.
    pub fn check(&self, opened: &Opened) -> Result<(), OptionError> {
        let Some(Conf::Typed(typed)) = &self.conf else { return Ok(()) };
        let read = typed.read(self.version(opened));
        read.map(drop).map_err(|error| OptionError(error.to_string()))
    }

    /// The allocator of ours that is PyTorch's own, under the settings given or recorded.
    pub fn pytorch(&self, opened: &Opened) -> &'static str {
        self.conf.as_ref().map_or_else(|| opened.recorded_by(), Conf::allocator)
    }

    /// The environment that the user and the settings describe, whether it can be kept to or not.
    fn given(&self, opened: &Opened) -> Environment {
        let mut environment = Environment {
            version: self.version(opened),
            memory_fraction: self.memory_fraction,
            ..Environment::new(self.conf(opened))
        };
        if let Some((_, whole)) = self.memory.given() {
            environment.total_memory = whole;
        }
        environment
    }

    /// The addresses of the recording with the sizes of what they were for, if the run gets them.
    pub(crate) fn recorded_addresses(
        &self,
        opened: &Opened,
        choice: &Choice,
    ) -> Option<VecDeque<(DevicePtr, Bytes)>> {
        let is_as_recorded = choice.spec.name == opened.recorded_by()
            && choice.options == Options::default()
            && self.conf.is_none()
            && self.addresses.is_none();
        if !is_as_recorded {
            return None;
        }
        let start = opened.start.segments.iter().filter(|segment| !segment.is_expandable);
        let start = start.map(|segment| (DevicePtr(segment.address), segment.size));
        let entries = opened.records.entries.iter();
        let grown = entries.filter(|entry| entry.action == Action::SegmentAlloc);
        let grown = grown.map(|entry| (DevicePtr(entry.addr), entry.size));
        Some(start.chain(grown).collect())
    }
}

/// How much memory was inferred, from what, and what is simulated where it is not certain.
fn inferred(memory: Size, opened: &Opened) -> String {
    let range = opened.memory_range.as_ref();
    let source = match range {
        Some(range) if range.end == Bytes::MAX => "PyTorch's decisions",
        _ => "failed requests",
    };
    let found = range.map_or_else(
        || memory.to_string(),
        |range| format!("{}, simulated with {memory}", range_in_words(range)),
    );
    format!(
        "memory limit inferred from {source}: {found} (override with --device-memory SIZE, or \
         'unlimited')"
    )
}

/// What a reader should know of allocators that have no private pools, where the program has some.
pub fn note_of_pools(opened: &Opened, choices: &[Choice]) -> Option<String> {
    let has_one = choices.iter().any(|choice| choice.spec.role.lacks_pools());
    (has_one && opened.has_private_pools()).then(|| {
        "private pools (CUDA graphs, MemPool) are PyTorch's, whatever serves the rest".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GIB;

    #[test]
    fn a_fraction_limits_only_a_known_memory() {
        let opened = Opened::default();
        let mut setup = Setup { memory_fraction: Some(0.5), ..Setup::default() };
        assert_eq!(setup.environment(&opened).limit, None);
        assert_eq!(setup.notes(&opened).len(), 1);
        setup.memory = Memory::Bytes(80 * GIB);
        assert_eq!(setup.environment(&opened).limit, Some(40 * GIB));
        assert!(setup.notes(&opened).is_empty());
        setup.memory_fraction = Some(1.0);
        assert_eq!(setup.environment(&opened).limit, None);
    }

    #[test]
    fn the_recorded_limit_holds_unless_another_is_given() {
        let opened = Opened { limit: Some(20 * GIB), ..Opened::default() };
        let mut setup = Setup::default();
        assert_eq!(setup.memory(&opened), Some(20 * GIB));
        assert_eq!(setup.notes(&opened).len(), 1);
        setup.memory = Memory::Unlimited;
        assert_eq!(setup.memory(&opened), None);
        setup.memory = Memory::Bytes(GIB);
        assert_eq!(setup.memory(&opened), Some(GIB));
    }
}
