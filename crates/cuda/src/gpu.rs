//! Opening a GPU, with a clear word about what is missing.

use std::sync::Arc;

use super::driver::{self, Context, DriverError, Ordinal};
use gmlake_allocators::device::{GRANULE, MemoryInfo};
use gmlake_core::units::Size;

/// Why there is no GPU to work with.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GpuError {
    /// No `libcuda` was found.
    #[error("no NVIDIA driver: libcuda.so.1 is not on this machine")]
    NoDriver,
    /// The driver does not start, there is no such GPU, or it is none of those that we know.
    #[error("{0}")]
    Unusable(String),
    /// Another failure.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// A share in the context of one GPU. The last one that goes ends the context.
#[derive(Debug)]
struct Shared {
    ordinal: Ordinal,
    context: Context,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // There is nowhere to report it; the process gives everything back anyway.
        let _ = driver::release_context(self.ordinal);
    }
}

/// An open GPU. Clones share one context, which is current on the thread that opened it.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The newest CUDA that its driver can serve, such as `13.0`.
    pub cuda: String,
    shared: Arc<Shared>,
}

impl Gpu {
    /// Opens a GPU, and makes its context current on this thread.
    ///
    /// # Errors
    /// If there is no driver or no such GPU, or it cannot be used.
    pub fn open(index: u32) -> Result<Self, GpuError> {
        load()?;
        let count = driver::device_count()?;
        if index >= count {
            let problem = format!("there is no GPU {index}: the driver has {count}");
            return Err(GpuError::Unusable(problem));
        }
        let ordinal = driver::device(index)?;
        let name = driver::device_name(ordinal)?;
        if !driver::has_vmm(ordinal)? {
            let problem = format!("GPU {index} ({name}) has no virtual memory management");
            return Err(GpuError::Unusable(problem));
        }
        let granularity = driver::granularity(ordinal)?;
        if granularity != GRANULE {
            let unit = Size(granularity);
            let problem = format!("GPU {index} maps memory in units of {unit}, not of 2 MiB");
            return Err(GpuError::Unusable(problem));
        }
        let version = driver::version()?;
        let cuda = format!("{}.{}", version / 1000, version % 1000 / 10);
        let context = driver::retain_context(ordinal)?;
        let shared = Arc::new(Shared { ordinal, context });
        driver::set_current(context)?;
        Ok(Self { index, name, cuda, shared })
    }

    /// Opens a GPU, and leaves current on this thread what is.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_as_guest(index: u32) -> Result<Self, GpuError> {
        load()?;
        let _back = Entered(driver::current()?.map_or(Before::None, Before::Other));
        Self::open(index)
    }

    /// Makes the context current on this thread, which is another than that which opened the GPU.
    pub fn bind(&self) -> Result<(), DriverError> {
        driver::set_current(self.shared.context)
    }

    /// Makes the context current on this thread until the answer is dropped, and what was current before again then.
    pub fn enter(&self) -> Result<Entered, DriverError> {
        let before = driver::current()?;
        if before == Some(self.shared.context) {
            return Ok(Entered(Before::Same));
        }
        self.bind()?;
        Ok(Entered(before.map_or(Before::None, Before::Other)))
    }

    /// Free and total memory.
    pub fn memory(&self) -> Result<MemoryInfo, DriverError> {
        let (free, total) = driver::memory_info()?;
        Ok(MemoryInfo { free, total })
    }

    /// The GPU's number with the driver.
    pub fn ordinal(&self) -> Ordinal {
        self.shared.ordinal
    }
}

fn load() -> Result<(), GpuError> {
    let unusable = |error| format!("the NVIDIA driver does not start: {error}");
    let why = |error: Option<_>| error.map(unusable).map_or(GpuError::NoDriver, GpuError::Unusable);
    driver::load().map_err(why)
}

/// What was current before.
#[derive(Debug)]
enum Before {
    Same,
    None,
    Other(Context),
}

/// A visit to a GPU's context: see [`Gpu::enter`].
#[derive(Debug)]
pub struct Entered(Before);

impl Drop for Entered {
    fn drop(&mut self) {
        // A driver that refuses this refuses everything, and the owner of the thread will hear of it.
        let _ = match self.0 {
            Before::Same => Ok(()),
            Before::None => driver::set_none(),
            Before::Other(context) => driver::set_current(context),
        };
    }
}
