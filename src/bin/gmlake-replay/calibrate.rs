//! `calibrate`: what the memory calls of this GPU cost.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use gmlake::replay::cuda::Gpu;

use crate::args::CalibrateArgs;

pub(crate) fn calibrate(args: &CalibrateArgs, _stop: &AtomicBool) -> Result<bool> {
    let gpu = Gpu::open(args.device)?;
    println!("{}", gpu.name);
    Ok(true)
}
