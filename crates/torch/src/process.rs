//! All GPUs of a process, each behind a lock of its own.
//!
//! PyTorch calls from any thread, without its interpreter's lock, and with any GPU current. It may also call in a
//! process that was forked off: nothing of a GPU works there, and a lock may be held by a thread that is not there.
//! So a forked process ignores what it is given.

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::conf::Conf;
use super::failure::Failure;
use super::gpu_allocator::GpuAllocator;
use super::journal::Observer;
use super::stats::Stats;
use super::{print_error, snapshot};
use gmlake_core::units::Bytes;
use gmlake_cuda::Gpu;

/// More GPUs than one machine has.
const MOST: usize = 128;

type Opened = OnceLock<Result<Mutex<GpuAllocator>, String>>;

/// The plug-in's state.
pub struct Process {
    conf: Conf,
    id: u32,
    allocators: Vec<Opened>,
    /// The GPUs from here on are not open.
    end: AtomicUsize,
    observer: Mutex<Option<Observer>>,
}

/// How a process finds out that it was forked off.
static FORKS: AtomicU8 = AtomicU8::new(ASK);
/// It asks for its number each time, which is a system call.
const ASK: u8 = 0;
/// It will be notified, and was not.
const WILL_BE_NOTIFIED: u8 = 1;
/// It was notified.
const FORKED: u8 = 2;

static PROCESS: OnceLock<Result<Process, String>> = OnceLock::new();

impl Process {
    /// Settles the configuration. Only the first call does, and the first use does if no call came before.
    ///
    /// # Errors
    /// What is wrong with the text, or that there is a configuration already.
    pub fn configure(text: &str) -> Result<(), String> {
        let conf = Conf::parse(text)?;
        let shown = conf.shown();
        let mut is_new = false;
        let process = PROCESS.get_or_init(|| {
            is_new = true;
            Ok(Self::new(conf))
        });
        match process {
            Ok(process) if is_new || process.conf.shown() == shown => Ok(()),
            Ok(process) => {
                Err(format!("gmlake is already in use, with {:?}", process.conf.shown()))
            }
            Err(error) => Err(error.clone()),
        }
    }

    /// The state; configured by `GMLAKE_CONF` if by nothing else.
    ///
    /// # Errors
    /// What is wrong with `GMLAKE_CONF`.
    pub fn get() -> Result<&'static Self, Failure> {
        let process = PROCESS.get_or_init(|| {
            let text = std::env::var("GMLAKE_CONF").unwrap_or_default();
            Conf::parse(&text).map(Self::new).map_err(|error| format!("GMLAKE_CONF: {error}"))
        });
        process.as_ref().map_err(|error| Failure::Other(format!("gmlake: {error}")))
    }

    /// The state, if there is any yet.
    pub fn in_use() -> Option<&'static Self> {
        PROCESS.get().and_then(|process| process.as_ref().ok())
    }

    /// Looks whether there is a GPU to work with, and nothing else: which allocator it will be is still open. The
    /// context stays, for PyTorch to use next.
    ///
    /// # Errors
    /// If there is no such GPU, or no driver; the text says which.
    pub fn check(device: i32) -> Result<(), String> {
        let index = u32::try_from(device).unwrap_or(u32::MAX);
        Gpu::open_as_guest(index).map(std::mem::forget).map_err(|error| format!("gmlake: {error}"))
    }

    /// From now on [`Self::has_forked`] will be called in every process that is forked off.
    pub fn will_tell_of_forks() {
        let _ = FORKS.compare_exchange(ASK, WILL_BE_NOTIFIED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// This process was forked off.
    pub fn has_forked() {
        FORKS.store(FORKED, Ordering::Relaxed);
    }

    /// Tells of everything that happens on any GPU from now on, or of nothing.
    pub fn observe(&self, observer: Option<Observer>) {
        *self.observer() = observer;
        self.each(|allocator| allocator.observe(observer));
    }

    fn observer(&self) -> MutexGuard<'_, Option<Observer>> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(conf: Conf) -> Self {
        let allocators = std::iter::repeat_with(OnceLock::new).take(MOST).collect();
        Self {
            conf,
            id: std::process::id(),
            allocators,
            end: AtomicUsize::new(0),
            observer: Mutex::default(),
        }
    }

    /// Memory on a GPU; 0 for nothing.
    ///
    /// # Errors
    /// Out of memory, or no such GPU, or what the driver says.
    pub fn malloc(&self, size: Bytes, device: i32, stream: u64) -> Result<u64, Failure> {
        if size == 0 {
            return Ok(0);
        }
        self.allocator(device)?.malloc(size, stream).map(|allocation| allocation.at.0)
    }

    /// Takes memory back. An address that was never handed out is counted and otherwise left alone.
    pub fn free(&self, at: u64, device: i32) {
        if at == 0 || self.is_forked() {
            return;
        }
        let Ok(mut allocator) = self.allocator(device) else { return };
        if allocator.free(at).is_none() {
            allocator.tallied.unknown_frees += 1;
            if allocator.tallied.unknown_frees == 1 {
                print_error(&format!(
                    "gmlake: GPU {device}: free of {at:#x}, which was not handed out"
                ));
            }
        }
    }

    /// Lends a block to another stream; see [`GpuAllocator::record_stream`].
    /// Says whether the block is one of ours.
    pub fn record_stream(&self, at: u64, stream: u64) -> bool {
        // Addresses are unique among all GPUs.
        at != 0 && self.opened().any(|mut allocator| allocator.record_stream(at, stream))
    }

    /// The block that an address is in.
    pub fn base(&self, at: u64) -> Option<(u64, Bytes)> {
        self.opened().find_map(|allocator| allocator.base(at))
    }

    /// Gives back what no block needs, on every GPU in use.
    ///
    /// # Errors
    /// The first failure, after all have been tried.
    pub fn trim(&self) -> Result<(), Failure> {
        let results: Vec<_> = self.opened().map(|mut allocator| allocator.trim()).collect();
        results.into_iter().collect()
    }

    /// What is known about every GPU in use.
    pub fn stats(&self) -> Vec<Stats> {
        self.opened().map(|allocator| allocator.stats()).collect()
    }

    /// Something to be done on every GPU in use.
    pub fn each(&self, mut run: impl FnMut(&mut GpuAllocator)) {
        self.opened().for_each(|mut allocator| run(&mut allocator));
    }

    /// Writes the recorded history and what is held now as a PyTorch snapshot, in JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn snapshot(path: &Path) -> std::io::Result<()> {
        let allocators: Vec<_> = Self::in_use().into_iter().flat_map(Self::opened).collect();
        snapshot::write(path, &allocators)
    }

    /// One GPU, opened when it is first asked for.
    ///
    /// # Errors
    /// If there is no such GPU, or no driver, or this process was forked off.
    pub fn allocator(&self, device: i32) -> Result<MutexGuard<'_, GpuAllocator>, Failure> {
        let index = usize::try_from(device).ok().filter(|&index| index < MOST && !self.is_forked());
        let Some(index) = index else {
            return Err(Failure::Other(format!("gmlake: no GPU {device} in this process")));
        };
        let mut is_new = false;
        let opened = self.allocators[index].get_or_init(|| {
            is_new = true;
            GpuAllocator::open(index as u32, &self.conf).map(Mutex::new)
        });
        let allocator =
            opened.as_ref().map_err(|error| Failure::Other(format!("gmlake: {error}")))?;
        if is_new {
            self.end.fetch_max(index + 1, Ordering::Release);
            let gpu = lock(allocator).gpu.clone();
            lock(allocator).observe(*self.observer());
            self.introduce(&gpu);
        }
        Ok(lock(allocator))
    }

    /// GPUs of one process use each other's memory, which has to be allowed for mapped memory. One lock at a time.
    #[cold]
    fn introduce(&self, gpu: &Gpu) {
        let others: Vec<_> = self.opened().map(|allocator| allocator.gpu.clone()).collect();
        for other in others.iter().filter(|other| other.index != gpu.index) {
            for mut allocator in self.opened() {
                let peer = match allocator.gpu.index {
                    index if index == gpu.index => other,
                    index if index == other.index => gpu,
                    _ => continue,
                };
                if let Err(error) = allocator.add_peer(peer) {
                    let pair = (allocator.gpu.index, peer.index);
                    print_error(&format!(
                        "gmlake: memory of GPU {} for GPU {}: {error}",
                        pair.0, pair.1
                    ));
                }
            }
        }
    }

    pub(super) fn opened(&self) -> impl Iterator<Item = MutexGuard<'_, GpuAllocator>> {
        let is_forked = self.is_forked();
        let end = self.end.load(Ordering::Acquire);
        let allocators =
            self.allocators[..end].iter().filter_map(OnceLock::get).filter(move |_| !is_forked);
        allocators.filter_map(|allocator| allocator.as_ref().ok()).map(lock)
    }

    pub(super) fn is_forked(&self) -> bool {
        match FORKS.load(Ordering::Relaxed) {
            ASK => std::process::id() != self.id,
            known => known == FORKED,
        }
    }
}

/// A thread that panicked has ended the process: nothing runs after it.
fn lock(allocator: &Mutex<GpuAllocator>) -> MutexGuard<'_, GpuAllocator> {
    allocator.lock().unwrap_or_else(PoisonError::into_inner)
}
