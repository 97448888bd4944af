//! The choice: which allocators run, with which options, and in which world.

use std::sync::Arc;

use super::setup::{Conf, Setup};
use crate::alloc_conf::AllocConf;
pub use crate::allocator::Choice;
use crate::allocator::{self, Environment, OptionError, Options, Spec};
use crate::input_error::InputError;
use crate::trace::LoadOptions;
use gmlake_core::devices::Devices;

/// Why a choice of allocators was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The allocator refused its options.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] InputError),
}

impl ChoiceError {
    /// An allocator was named twice.
    pub(crate) fn twice(name: &str) -> Self {
        InputError(format!("allocator {name:?} is listed twice")).into()
    }

    /// An option of an allocator that does not run.
    pub(crate) fn not_chosen(option: &str) -> Self {
        let problem = "is of an allocator that is not among those compared";
        InputError(format!("option {option:?} {problem}")).into()
    }
}

/// What to compare, and how.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// How files are opened.
    pub open: LoadOptions,
    /// The allocators, in the order of the table.
    pub allocators: Vec<Choice>,
    /// The world that they run in.
    pub setup: Setup,
    /// Name of the allocator that the others are compared with; `None`: the recording, else `caching`, else the first.
    pub reference: Option<String>,
    /// Whether an assumption about a trace is an error.
    pub is_strict: bool,
    /// Whether the runs are to keep what was held at their peaks, at up to twice the price.
    pub has_peaks: bool,
    /// Whether `caching` stands for what PyTorch had, by the settings of each recording, if none are given.
    pub as_recorded: bool,
    /// Cards for which each run says whether it would do.
    pub cards: Devices,
    /// Whether the smallest of them that would do is enough to know.
    pub only_smallest_card: bool,
    /// Whether every device of a file is compared, and not the only one that has events.
    pub every_device: bool,
    /// Whether every block of the allocator that was recorded is followed, for the page.
    pub in_depth: bool,
}

impl Choices {
    /// The same for many ranks, of which those that make the same requests need one run.
    #[must_use]
    pub fn with_cache(mut self) -> Self {
        self.setup.cache = Some(Arc::default());
        self
    }
}

/// In place of names: every allocator there is.
const EVERY: &str = "all";

/// Takes allocators by name, those that run by default if no name is given and every one for `all`, and options as
/// `allocator.name=value`.
///
/// # Errors
/// If a name, an option or a value is not known; the message says what there is.
pub fn choose(names: &[String], options: &[String]) -> Result<Vec<Choice>, ChoiceError> {
    choose_with(&[], names, options)
}

/// Takes one allocator by name.
///
/// # Errors
/// As [`choose`], and for `all`.
pub fn choose_one(name: &str, options: &[String]) -> Result<Choice, ChoiceError> {
    if name.trim() == EVERY {
        return Err(InputError(format!("{EVERY:?} is not one allocator: name one")).into());
    }
    let mut chosen = choose(&[name.to_owned()], options)?;
    Ok(chosen.remove(0))
}

/// [`choose`] with plug-ins behind them, unless they are named among them.
///
/// # Errors
/// As [`choose`].
pub fn choose_with(
    plug_ins: &[&'static Spec],
    names: &[String],
    options: &[String],
) -> Result<Vec<Choice>, ChoiceError> {
    let mut chosen: Vec<Choice> = Vec::new();
    let is_all = names.iter().any(|name| name.trim() == EVERY);
    for name in names.iter().map(|name| name.trim()).filter(|&name| name != EVERY) {
        let spec = find(name)?;
        if chosen.iter().any(|choice| choice.spec.name == spec.name) {
            return Err(ChoiceError::twice(name));
        }
        chosen.push(Choice { spec, options: Options::default() });
    }
    if names.is_empty() || is_all {
        let wanted = allocator::ALL.iter().filter(|spec| is_all || spec.role.is_default());
        chosen = wanted.map(|spec| Choice { spec, options: Options::default() }).collect();
    }
    for &spec in plug_ins {
        if !chosen.iter().any(|choice| choice.spec.name == spec.name) {
            chosen.push(Choice { spec, options: Options::default() });
        }
    }
    for text in options {
        set_option(&mut chosen, text)?;
    }
    for choice in &chosen {
        choice.spec.build(&choice.options, &Environment::new(AllocConf::default()))?;
    }
    Ok(chosen)
}

/// The same allocators under settings that were given: `caching` is what PyTorch then runs with, so that under
/// `expandable_segments:True` its row is that of `expandable`. None is there twice.
pub fn under(chosen: Vec<Choice>, conf: Option<&Conf>) -> Vec<Choice> {
    let mut found: Vec<Choice> = Vec::with_capacity(chosen.len());
    for choice in chosen {
        let choice = conf.map_or_else(|| choice.clone(), |conf| as_set(&choice, conf));
        let is_same =
            |other: &Choice| other.spec.name == choice.spec.name && other.options == choice.options;
        if !found.iter().any(is_same) {
            found.push(choice);
        }
    }
    found
}

/// One allocator under settings that were given.
pub(crate) fn as_set(choice: &Choice, conf: &Conf) -> Choice {
    as_pytorchs(choice, conf.allocator())
}

/// One allocator, where PyTorch's own is of this name.
pub(crate) fn as_pytorchs(choice: &Choice, name: &str) -> Choice {
    match allocator::find(name).filter(|_| choice.spec.name == PYTORCH && name != PYTORCH) {
        // CUDA's pool has none of the options of PyTorch's own, which ignores them, too.
        Some(spec) if spec.options.is_empty() => Choice { spec, options: Options::default() },
        Some(spec) => Choice { spec, options: choice.options.clone() },
        None => choice.clone(),
    }
}

/// PyTorch's allocator where its settings do not make it another one.
const PYTORCH: &str = "caching";

/// The allocator of this name; the error says which there are.
pub(crate) fn find(name: &str) -> Result<&'static Spec, ChoiceError> {
    allocator::find(name).ok_or_else(|| {
        let known = allocator::names().join(", ");
        InputError(format!("there is no allocator {name:?}; there are: {known}")).into()
    })
}

fn set_option(chosen: &mut [Choice], text: &str) -> Result<(), ChoiceError> {
    let hint = "write allocator.option=value, such as gmlake.fragment_limit=128MiB";
    let malformed = || InputError(format!("{text:?} is not an option: {hint}"));
    let (key, value) = text.split_once('=').ok_or_else(malformed)?;
    let (name, option) = key.trim().split_once('.').ok_or_else(malformed)?;
    let spec = find(name)?;
    let choice = chosen.iter_mut().find(|choice| choice.spec.name == spec.name);
    let choice = choice.ok_or_else(|| ChoiceError::not_chosen(text))?;
    choice.options.set(option, value.trim());
    Ok(())
}
