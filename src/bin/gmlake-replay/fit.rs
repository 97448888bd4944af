//! `fit`: prices again, from call times that a calibration wrote. Needs no GPU.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use gmlake::device::Profile;
use gmlake::replay::calibrate::{Observed, Prices, call_times};
use gmlake::report::Export;
use gmlake::trace::{LoadOptions, unpack};

use crate::args::FitArgs;
use crate::prices;
use crate::show::Screen;

/// Whether it ran to its end.
pub(crate) fn fit(args: &FitArgs) -> Result<bool> {
    let out = args.out.as_deref().map(Export::open).transpose()?;
    let profile = Profile::open(&args.profile)?;
    let mut programs = Vec::new();
    for file in &args.files {
        programs.extend(read(file).with_context(|| file.display().to_string())?);
    }
    let found = Prices::fit(&programs);
    if found.calls.rows().all(|(_, lines)| lines.is_empty()) {
        bail!("too few calls to fit prices to; calibrate for longer (--seconds)");
    }
    let mut profile = found.put_into(profile);
    if let Some(name) = &args.name {
        profile.name.clone_from(name);
    }
    let screen = Screen::beside([args.out.as_deref()]);
    prices::show(&screen, &profile, &found.rare, found.observed)?;
    out.map_or(Ok(()), |file| file.finish_json(&profile))?;
    Ok(true)
}

fn read(file: &Path) -> Result<Vec<Observed>> {
    let bytes = unpack(&fs::read(file)?, &LoadOptions::default())?;
    Ok(call_times::read(bytes.as_slice())?)
}
