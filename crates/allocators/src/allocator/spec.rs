//! Specifications: what an allocator is called, which options it has, and how it is made.
//!
//! An option is written `allocator.name=value`, such as `gmlake.fragment_limit=128MiB`. Every allocator takes its
//! options out of an [`Options`] bag by name and type; what is left over in the end was unknown.

use std::fmt;
use std::str::FromStr;

use super::Allocator;
use crate::device::GRANULE;
use gmlake_core::alloc_conf::{AllocConf, DEFAULT_TOTAL_MEMORY, TorchVersion};
use gmlake_core::program::PoolId;
use gmlake_core::units::{Bytes, GIB, parse_memory, parse_size};

/// What a run provides in addition to the allocator's own options.
#[derive(Debug, Clone)]
pub struct Environment {
    /// PyTorch's allocator settings: those of the recording, or given by the user.
    pub conf: AllocConf,
    /// The PyTorch whose behaviour is simulated.
    pub version: TorchVersion,
    /// Memory of the device, in bytes.
    pub total_memory: Bytes,
    /// Share of the device's memory that the process may hold (`set_per_process_memory_fraction`); `None`: no limit.
    pub memory_fraction: Option<f64>,
    /// The same limit in bytes, where it is known more exactly than its fraction.
    pub limit: Option<Bytes>,
    /// Private pools whose segments PyTorch hands out whole (`no_split` of a `MemPool`).
    pub no_split: Vec<PoolId>,
}

impl Environment {
    /// The share of the device's memory that limits the process, if any does: that of the run, else of the settings.
    /// All of it is no limit, but up to 2.9 PyTorch took it for one.
    pub fn fraction(&self) -> Option<f64> {
        let fraction = self.memory_fraction.or(self.conf.memory_fraction);
        fraction.filter(|&fraction| fraction < 1.0 || !self.version.is_at_least(10))
    }

    /// Bytes that the process may hold, if there is a limit.
    pub fn memory_limit(&self) -> Option<Bytes> {
        let of_fraction = |fraction: f64| (fraction * self.total_memory as f64) as Bytes;
        self.limit.or_else(|| self.fraction().map(of_fraction))
    }

    /// These settings, on the PyTorch and the device that are assumed where nothing is known, without a limit.
    pub fn new(conf: AllocConf) -> Self {
        Self {
            conf,
            version: TorchVersion::default(),
            total_memory: DEFAULT_TOTAL_MEMORY,
            memory_fraction: None,
            limit: None,
            no_split: Vec::new(),
        }
    }
}

/// One option of an allocator.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Its name, without the allocator's.
    pub name: &'static str,
    /// Its default, as a user would write it.
    pub default: &'static str,
    /// One sentence.
    pub help: &'static str,
}

/// How an allocator is made.
type Build =
    &'static (dyn Fn(&mut Options, &Environment) -> Result<Box<dyn Allocator>, OptionError> + Sync);

/// What an allocator is to somebody who trains a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// PyTorch's own, under one of its settings. It keeps to [`Environment::limit`] itself; any other is given a device
    /// of that size.
    PyTorch,
    /// It can take the place of PyTorch's own.
    Candidate,
    /// It calls the driver for every request: only to compare with.
    Direct,
    /// A lower bound, which hands out memory that is not there.
    Bound,
    /// A model of another system's allocator; it runs when it is named.
    OnRequest,
    /// A plan that knows the future; it runs when it is named.
    Oracle,
    /// Somebody else's, from a shared library: it runs when its file is named, and under the checker.
    PlugIn,
}

impl Role {
    /// Whether one could train with it.
    pub const fn is_choice(self) -> bool {
        matches!(self, Self::PyTorch | Self::Candidate | Self::OnRequest | Self::PlugIn)
    }

    /// Whether it would serve a program in the place of PyTorch's, without private pools of its own.
    pub const fn lacks_pools(self) -> bool {
        matches!(self, Self::Candidate | Self::OnRequest | Self::PlugIn)
    }

    /// Whether it runs where no allocator is named.
    pub const fn is_default(self) -> bool {
        !matches!(self, Self::OnRequest | Self::Oracle | Self::PlugIn)
    }
}

/// An entry in the list of allocators.
#[derive(Clone, Copy)]
pub struct Spec {
    /// The name on the command line.
    pub name: &'static str,
    /// One line that says what it is.
    pub summary: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// What it is to somebody who trains a model.
    pub role: Role,
    /// All addresses are multiples of this many bytes.
    pub alignment: Bytes,
    /// Makes it.
    pub build: Build,
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An allocator, and the options to run it with.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The allocator.
    pub spec: &'static Spec,
    /// Options that differ from its defaults.
    pub options: Options,
}

impl Spec {
    /// Makes the allocator with the given options.
    ///
    /// # Errors
    /// If a value is wrong, or an option is not one of this allocator's.
    pub fn build(
        &self,
        options: &Options,
        environment: &Environment,
    ) -> Result<Box<dyn Allocator>, OptionError> {
        let mut left = options.clone();
        let allocator = (self.build)(&mut left, environment)?;
        let Some((name, _)) = left.pairs.first() else { return Ok(allocator) };
        let known = self.options.iter().map(|option| option.name).collect::<Vec<_>>().join(", ");
        Err(OptionError(format!("{} has no option {name:?}; it has: {known}", self.name)))
    }
}

/// Why an option was refused, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub String);

/// Options of one allocator as typed: name and value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    pairs: Vec<(String, String)>,
}

impl Options {
    /// Sets an option, in place of an earlier value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.pairs.retain(|(other, _)| other != name);
        self.pairs.push((name.to_owned(), value.to_owned()));
    }

    /// The options, as `name=value`, in the order in which they were set.
    pub fn rows(&self) -> Vec<String> {
        self.pairs.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// All that is left over, in one text: a plug-in reads its options itself.
    pub fn take_all(&mut self) -> String {
        let text = self.rows().join(",");
        self.pairs.clear();
        text
    }

    /// The value of an option, which is then no longer among those left over.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(other, _)| other == name)?;
        Some(self.pairs.remove(at).1)
    }

    fn read<T>(
        &mut self,
        (name, default): (&str, &str),
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, OptionError> {
        let value = self.take(name).unwrap_or_else(|| default.to_owned());
        let wrong = || format!("option {name} is {value:?}, but must be {expected}");
        parse(&value).ok_or_else(|| OptionError(wrong()))
    }

    /// A size such as `128MiB`; a small one that is typed must have its unit.
    pub(super) fn size(&mut self, name: &str, default: &str) -> Result<Bytes, OptionError> {
        self.read((name, default), "a size such as 128MiB", |text| match text == default {
            true => parse_size(text).ok(),
            false => parse_memory(text).ok(),
        })
    }

    /// The size of a physical chunk: a multiple of 2 MiB, and at most 1 GiB.
    pub(super) fn chunk(&mut self, name: &str, default: &str) -> Result<Bytes, OptionError> {
        let valid = |size: &Bytes| (GRANULE..=GIB).contains(size) && size.is_multiple_of(GRANULE);
        let expected = "a multiple of 2MiB, up to 1GiB";
        self.read((name, default), expected, |text| parse_size(text).ok().filter(valid))
    }

    /// A whole number.
    pub(super) fn whole<T: FromStr>(
        &mut self,
        name: &str,
        default: &str,
    ) -> Result<T, OptionError> {
        self.read((name, default), "a whole number", |text| text.parse().ok())
    }

    /// A whole number of GiB, in bytes.
    pub(super) fn whole_gib(&mut self, name: &str, default: &str) -> Result<Bytes, OptionError> {
        self.whole(name, default).map(|gib: u64| gib.saturating_mul(GIB))
    }

    /// Whether a whole number is not 0.
    pub(super) fn flag(&mut self, name: &str, default: &str) -> Result<bool, OptionError> {
        self.whole(name, default).map(|number: u64| number > 0)
    }

    /// A finite number that is not negative.
    pub(super) fn number(&mut self, name: &str, default: &str) -> Result<f64, OptionError> {
        let valid = |number: &f64| number.is_finite() && *number >= 0.0;
        self.read((name, default), "a number from 0 on", |text| text.parse().ok().filter(valid))
    }

    /// `on` or `off`.
    pub(super) fn switch(&mut self, name: &str, default: &str) -> Result<bool, OptionError> {
        self.read((name, default), "on or off", |text| match text {
            "on" | "true" | "1" => Some(true),
            "off" | "false" | "0" => Some(false),
            _ => None,
        })
    }
}

/// Writes an allocator's settings from one table: for each the field, how it is read ([`Options`]), its name and
/// default as a user writes them, and one sentence.
macro_rules! settings {
    ($(#[$doc:meta])* $settings:ident {
        $(
            $(#[$of_field:meta])*
            $field:ident: $type:ty = $read:ident($name:literal, $default:literal), $help:literal;
        )+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $settings {
            $($(#[$of_field])* pub $field: $type,)+
        }

        impl $settings {
            /// The options as a user sees them.
            pub const SPECS: &'static [$crate::allocator::OptionSpec] = &[
                $($crate::allocator::OptionSpec { name: $name, default: $default, help: $help },)+
            ];

            /// Takes the options out of the bag.
            ///
            /// # Errors
            /// If a value is wrong.
            pub fn take(
                options: &mut $crate::allocator::Options,
            ) -> Result<Self, $crate::allocator::OptionError> {
                Ok(Self { $($field: options.$read($name, $default)?,)+ })
            }
        }

        impl Default for $settings {
            fn default() -> Self {
                Self::take(&mut $crate::allocator::Options::default()).expect("defaults are valid")
            }
        }
    };
}
pub(super) use settings;
