//! Typed arguments of several commands, as the library understands them.

use std::path::PathBuf;

use anyhow::bail;
use gmlake::alloc_conf::{TorchVersion, TypedConf};
use gmlake::device::Profile;
use gmlake::remote;
use gmlake::run::RECORDED;
use gmlake::sim::job::{self, Job};
use gmlake::sim::{Choice, Choices, Conf, Setup, choose_with, under};
use gmlake::units::Count;

use crate::args::{AllocatorArgs, DeviceArgs, InputArgs};
use crate::terminal;

/// What was typed, as the library understands it.
pub(crate) fn choices(
    input: &InputArgs,
    device: &DeviceArgs,
    allocators: &AllocatorArgs,
    reference: Option<String>,
) -> anyhow::Result<Choices> {
    let conf = allocators.alloc_conf.as_deref();
    let allocators = chosen(allocators)?;
    if let Some(name) = &reference
        && name != RECORDED
        && !allocators.iter().any(|choice| choice.spec.name == name)
    {
        let chosen: Vec<_> = allocators.iter().map(|choice| choice.spec.name).collect();
        bail!(
            "there is no row {name:?} to compare with; there are: recorded, {}",
            chosen.join(", ")
        );
    }
    let setup = setup(input.torch_version, device, conf)?;
    let allocators = under(allocators, setup.conf.as_ref());
    let chosen = |name: &str| allocators.iter().any(|choice| choice.spec.name == name);
    // PyTorch's settings may have made another row of it.
    let reference = reference.map(|name| match &setup.conf {
        Some(conf) if name == "caching" && !chosen(&name) => conf.allocator().to_owned(),
        _ => name,
    });
    let open = input.open(false);
    let is_strict = input.strict;
    Ok(Choices { open, allocators, setup, reference, is_strict, ..Choices::default() })
}

/// The allocators, as typed, with the plug-ins.
fn chosen(args: &AllocatorArgs) -> anyhow::Result<Vec<Choice>> {
    let plug_ins = args.plugin.iter().map(|file| gmlake::plugin::load(file));
    let plug_ins = plug_ins.collect::<Result<Vec<_>, _>>()?;
    Ok(choose_with(&plug_ins, &args.allocators, &args.set)?)
}

/// The simulated device and settings, as typed.
pub(crate) fn setup(
    version: Option<TorchVersion>,
    args: &DeviceArgs,
    conf: Option<&str>,
) -> anyhow::Result<Setup> {
    let simulated = simulated(version, conf)?;
    Ok(Setup {
        memory: args.device_memory.unwrap_or_default(),
        memory_fraction: args.memory_fraction,
        addresses: args.addresses.clone(),
        on_oom: args.on_oom,
        gpu_lag: Some(args.gpu_lag),
        profile: args.profile.as_deref().map(Profile::open).transpose()?,
        ..simulated
    })
}

/// The simulated PyTorch and its settings, as typed.
pub(crate) fn simulated(typed: Option<TorchVersion>, conf: Option<&str>) -> anyhow::Result<Setup> {
    let (version, follows_file) = (typed.unwrap_or_default(), typed.is_none());
    let conf = conf.map(|text| TypedConf::new(text, typed)).transpose()?.map(Conf::Typed);
    Ok(Setup { version, follows_file, conf, ..Setup::default() })
}

/// Allocators and how files are read, for commands that set the device's memory themselves.
pub(crate) fn choices_of_any_device(
    input: &InputArgs,
    args: &AllocatorArgs,
) -> anyhow::Result<Choices> {
    let setup = simulated(input.torch_version, args.alloc_conf.as_deref())?;
    Ok(Choices {
        open: input.open(false),
        allocators: under(chosen(args)?, setup.conf.as_ref()),
        setup,
        is_strict: input.strict,
        ..Choices::default()
    })
}

/// Tells of the ranks of a job that are not there, and of files that may be some.
pub(crate) fn warn_of_gaps(job: &Job) {
    warn_of_left_out(&job.left_out);
    if let Some(missing) = job.without() {
        terminal::warn(&format!("{}: {missing}", job.name));
    }
}

/// Tells of files beside pickles that are not read, and of what is no file.
pub(crate) fn warn_of_left_out(files: &[PathBuf]) {
    let (special, tables): (Vec<_>, Vec<_>) = files.iter().partition(|path| job::is_special(path));
    let kinds = [(tables, "JSON or CSV file", " beside pickles"), (special, "special file", "")];
    for (files, kind, place) in kinds {
        let Some(first) = files.first() else { continue };
        let (files, first) = (Count(files.len() as u64, kind), remote::shown(first));
        terminal::warn(&format!(
            "{files}{place} not read, such as {first}; name such files to read them"
        ));
    }
}
