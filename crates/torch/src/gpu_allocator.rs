//! The allocator of one GPU: its device, who holds what, and which streams still use it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;

use super::arenas::Arenas;
use super::block::{Freed, Live, Owner};
use super::conf::Conf;
use super::debug::Debug;
use super::failure::{Failure, PytorchSize};
use super::graph::GraphPools;
use super::journal::{Event, Journal, Observer};
use super::pending::Pending;
use super::print_error;
use super::segments::Segments;
use super::sleeper::Sleeper;
use super::streams::Streams;
use super::sums::{Sums, Tallied};
use gmlake_allocators::allocator::{
    AllocError, AllocResult, Allocation, Allocator, BlockId, Environment, Request, Usage,
};
use gmlake_allocators::device::{Device, Limited, Timed, Watched};
use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::program::{Action, Entry, PoolId, StreamId};
use gmlake_core::units::Bytes;
use gmlake_cuda::{CudaDevice, DriverError, Entered, Gpu, Relaxed};

/// What of a GPU is counted, and limited, while it is awake.
pub(super) type Driver = Limited<CudaDevice, (Segments, Timed)>;

/// All that the plug-in knows about one GPU. Not thread-safe by itself: [`super::Process`] has the lock.
pub struct GpuAllocator {
    pub(super) gpu: Gpu,
    pub(super) conf: Conf,
    pub(super) device: Sleeper<Driver>,
    pub(super) main: Box<dyn Allocator>,
    pub(super) arenas: Arenas,
    pub(super) pools: GraphPools,
    pub(super) live: FxHashMap<u64, Live>,
    /// Streams that a block was lent to.
    uses: FxHashMap<u64, Vec<StreamId>>,
    pub(super) pending: Pending,
    pub(super) streams: Streams,
    pub(super) synchronizations: Arc<AtomicU64>,
    /// How many of them this knows of.
    pub(super) seen: u64,
    pub(super) debug: Option<Debug>,
    pub(super) journal: Journal,
    pub(super) tallied: Tallied,
    pub(super) peak: Usage,
    pub(super) sums: Sums,
    /// What was counted when the counts were to begin anew.
    pub(super) counted_before: [i64; 5],
    /// Captures and pools that are served elsewhere (see [`Self::hold`]).
    pub(super) holds: u32,
    pub(super) observer: Option<Observer>,
    /// Bytes that may be held here and elsewhere; [`Bytes::MAX`]: no limit.
    limit: Bytes,
}

/// While the GPU's context is current on this thread, and a capture elsewhere is no hindrance.
pub(super) struct Here {
    // Fields go in this order: the mode first, then the context.
    _mode: Option<Relaxed>,
    _context: Entered,
}

impl GpuAllocator {
    /// Opens a GPU. Its primary context is shared with PyTorch.
    ///
    /// # Errors
    /// If there is no such GPU, or no driver; the text says which.
    pub fn open(index: u32, conf: &Conf) -> Result<Self, String> {
        let gpu = Gpu::open_as_guest(index).map_err(|error| error.to_string())?;
        let (total_memory, debug) = inspect(&gpu, conf).map_err(|error| error.to_string())?;
        let environment = Environment { total_memory, ..Environment::new(AllocConf::default()) };
        let main = conf.spec.build(&conf.options, &environment).map_err(|e| e.to_string())?;
        let device = CudaDevice::new(gpu.clone());
        Ok(Self {
            gpu,
            synchronizations: device.synchronizations(),
            device: Sleeper::new(Limited::new(device, Default::default())),
            main,
            arenas: Arenas::default(),
            pools: GraphPools::default(),
            live: FxHashMap::default(),
            uses: FxHashMap::default(),
            pending: Pending::default(),
            streams: Streams::default(),
            seen: 0,
            debug,
            journal: Journal::new(conf.history),
            conf: conf.clone(),
            tallied: Tallied::default(),
            peak: Usage::default(),
            sums: Sums::default(),
            counted_before: [0; 5],
            holds: 0,
            observer: None,
            limit: Bytes::MAX,
        })
    }

    /// Memory for `size` bytes, to be used on the stream with this handle first. `size` is not zero.
    ///
    /// # Errors
    /// Out of memory, after everything that can be given back was; or what the driver says.
    pub fn malloc(&mut self, size: Bytes, stream: u64) -> Result<Allocation, Failure> {
        let outcome = self.attempt(size, stream);
        if matches!(outcome, Err(Failure::OutOfMemory(_))) {
            self.note_refused(size, stream);
        }
        outcome
    }

    /// The same for who may ask again, once others have given memory back: a refusal is not counted.
    ///
    /// # Errors
    /// As `malloc`.
    pub fn attempt(&mut self, size: Bytes, stream: u64) -> Result<Allocation, Failure> {
        let _here = self.enter()?;
        self.complete_reached();
        let owner = self.owner(stream)?;
        let id = self.number(stream)?;
        let request = Request { size, stream: id, pool: PoolId::DEFAULT };
        let mut outcome = self.request(owner, request);
        if matches!(outcome, Err(AllocError::OutOfMemory { .. })) && self.reclaim() {
            outcome = self.request(owner, request);
        }
        self.complete_if_synchronized();
        let error = self.driver_error();
        // Giving up, an allocator waits for the GPU, and a capture fails that.
        let is_hopeless = outcome.is_err() && self.is_held();
        if let Some(error) = error.filter(|_| !is_hopeless) {
            if let Ok(allocation) = outcome {
                self.free_block(owner, allocation.block);
            }
            return Err(error.into());
        }
        match outcome {
            Ok(allocation) => Ok(self.hand_out(owner, request, allocation)),
            Err(error) => Err(self.explain(size, &error)),
        }
    }

    /// Takes a block back, and returns its size if it was one of ours. Never fails: what the driver says is kept until
    /// the next request, and when the driver has gone, its memory has gone with it.
    pub fn free(&mut self, at: u64) -> Option<Bytes> {
        let live = self.live.remove(&at)?;
        let uses = if self.uses.is_empty() { None } else { self.uses.remove(&at) };
        self.tallied.frees += 1;
        self.tallied.freed_bytes_total += live.requested;
        self.sums.freed(live.requested, live.size);
        let Ok(_here) = self.enter() else { return Some(live.size) };
        let Live { block, owner, stream, requested: size, size: held } = live;
        let freed = Freed { at, size, held, stream, block, owner };
        self.note(Action::FreeRequested, &freed);
        match uses {
            None => {
                self.poison(at, &live);
                self.free_block(owner, block);
                self.completed(&freed);
            }
            Some(uses) => self.wait_for(freed, uses),
        }
        Some(held)
    }

    /// Lends a block to another stream: its memory is not reused before that stream is done with what is queued when
    /// the block is freed. Says whether the block is one of ours.
    pub fn record_stream(&mut self, at: u64, stream: u64) -> bool {
        let Some(&Live { stream: own, .. }) = self.live.get(&at) else { return false };
        if let Ok(id) = self.number(stream)
            && id != own
        {
            let uses = self.uses.entry(at).or_default();
            if !uses.contains(&id) {
                uses.push(id);
                self.tallied.recorded_uses += 1;
            }
        }
        true
    }

    /// Gives back all that no block needs (`torch.cuda.empty_cache`). Nothing happens during a capture, which must
    /// not wait for the GPU.
    pub fn trim(&mut self) -> Result<(), Failure> {
        let _here = match self.enter() {
            Err(error) if error.is_shutdown() => return Ok(()),
            here => here?,
        };
        if !self.is_held() {
            self.trim_all();
        }
        self.driver_error().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Holds no more than this share of the GPU's memory from now on; 1 or more: as much as there is.
    pub fn set_fraction(&mut self, fraction: f64) -> Result<(), Failure> {
        let _here = self.enter()?;
        let total = self.gpu.memory()?.total;
        let limit = (fraction.max(0.0) * total as f64) as Bytes;
        self.limit = if fraction < 1.0 { limit } else { Bytes::MAX };
        self.share_limit();
        Ok(())
    }

    /// What may be held here is what others leave of the limit.
    pub(super) fn share_limit(&mut self) {
        self.device.device.limit = match self.limit {
            Bytes::MAX => Bytes::MAX,
            limit => limit.saturating_sub(self.sums.reserved_elsewhere()),
        };
    }

    /// The block that an address is in: where it begins, and how many bytes it has.
    pub fn base(&self, at: u64) -> Option<(u64, Bytes)> {
        let mut blocks = self.live.iter().map(|(&base, live)| (base, live.size));
        blocks.find(|&(base, size)| base <= at && at - base < size)
    }

    /// Lets another GPU of this process use the memory of this one.
    pub fn add_peer(&mut self, peer: &Gpu) -> Result<(), DriverError> {
        let _here = self.enter()?;
        self.cuda().add_peer(peer)
    }

    /// The peaks begin anew.
    pub fn reset_peak(&mut self) {
        self.peak = self.usage();
        self.sums.reset_peaks();
    }

    /// Keeps this many events from now on; 0: records nothing more.
    pub fn set_history(&mut self, capacity: usize) {
        self.journal.resize(capacity);
    }

    /// The numbers of the allocator and of all pools.
    pub fn usage(&self) -> Usage {
        let pools = self.pools.iter().map(|(_, pool)| pool.allocator.usage());
        let served = self.served_by().map(|(_, allocator)| allocator.usage());
        pools.chain(served).fold(Usage::default(), |sum, usage| sum + usage)
    }

    /// Makes the GPU's context current on this thread until the answer is dropped.
    pub(super) fn enter(&self) -> Result<Here, DriverError> {
        let _context = self.gpu.enter()?;
        let _mode = self.is_held().then(Relaxed::enter).transpose()?;
        Ok(Here { _mode, _context })
    }

    fn number(&mut self, handle: u64) -> Result<StreamId, Failure> {
        let too_many = || Failure::Other("gmlake: more than 65536 streams were used".to_owned());
        let (id, is_new) = self.streams.number(handle).ok_or_else(too_many)?;
        if is_new {
            self.cuda().register_stream(id, handle);
        }
        Ok(id)
    }

    /// Runs something on the allocator of an owner, and the device that it is handed.
    pub(super) fn on<T>(
        &mut self,
        owner: Owner,
        run: impl FnOnce(&mut dyn Allocator, &mut dyn Device) -> T,
    ) -> T {
        self.device.label = owner.label();
        let allocator = match owner {
            Owner::Main => &mut self.main,
            Owner::Arena(place) => self.arenas.allocator(place),
            Owner::Graph(place) => &mut self.pools.at_mut(place).allocator,
        };
        let answer = match &mut self.debug {
            None => run(allocator.as_mut(), &mut self.device),
            Some(debug) => run(allocator.as_mut(), &mut debug.record.watch(&mut self.device)),
        };
        self.account();
        answer
    }

    /// The segments of the device.
    pub(super) fn segment_watch(&mut self) -> &mut Segments {
        &mut self.driver().watch.0
    }

    /// The driver, with those who watch its calls.
    fn driver(&mut self) -> &mut Watched<CudaDevice, (Segments, Timed)> {
        &mut self.device.device.device
    }

    /// The device at the bottom.
    fn cuda(&mut self) -> &mut CudaDevice {
        &mut self.driver().device
    }

    fn request(&mut self, owner: Owner, request: Request) -> AllocResult {
        self.on(owner, |allocator, device| allocator.malloc(device, request))
    }

    /// No one uses a block any more.
    #[inline]
    pub(super) fn completed(&mut self, freed: &Freed) {
        self.sums.completed(freed.size, freed.held);
        self.note(Action::FreeCompleted, freed);
        self.gone(freed.owner);
    }

    fn free_block(&mut self, owner: Owner, block: BlockId) {
        self.on(owner, |allocator, device| allocator.free(device, block));
    }

    fn hand_out(&mut self, owner: Owner, request: Request, allocation: Allocation) -> Allocation {
        let Request { size: requested, stream, .. } = request;
        let Allocation { at, size, block } = allocation;
        if owner == Owner::Main
            && let Some(debug) = &mut self.debug
            && let Err(error) = debug.handed_out(self.streams.handle(stream), at, size)
        {
            print_error(&format!("gmlake: poison: {error}"));
        }
        if let Owner::Graph(place) = owner {
            self.pools.at_mut(place).live += 1;
        }
        let live = Live { block, owner, stream, requested, size };
        let before = self.live.insert(at.0, live);
        assert!(before.is_none(), "{at} was handed out twice: {before:?} and {live:?}");
        self.tallied.mallocs += 1;
        self.tallied.requested_bytes_total += requested;
        self.peak = self.peak.max(self.usage());
        self.sums.handed_out(requested, size);
        let what = Freed { at: at.0, size: requested, held: size, stream, block, owner };
        self.note(Action::Alloc, &what);
        allocation
    }

    fn poison(&mut self, at: u64, live: &Live) {
        if live.owner != Owner::Main || self.is_held() {
            return;
        }
        let stream = self.streams.handle(live.stream);
        if let Some(debug) = &mut self.debug
            && let Err(error) =
                debug.freed(stream, gmlake_allocators::device::DevicePtr(at), live.size)
            && !error.is_shutdown()
        {
            print_error(&format!("gmlake: poison: {error}"));
        }
    }

    /// What the driver said to a call that could not return it.
    #[inline]
    pub(super) fn driver_error(&mut self) -> Option<DriverError> {
        let device = self.cuda();
        device.first_error()?;
        device.take_error().filter(|error| !error.is_shutdown())
    }

    #[inline]
    pub(super) fn note(&mut self, action: Action, what: &Freed) {
        if let Some(observe) = self.observer {
            let (at, stream) = (what.at, self.streams.handle(what.stream));
            observe(&Event { device: self.gpu.index, action, at, size: what.size, stream });
        }
        if !self.journal.is_on() {
            return;
        }
        let pool = match what.owner {
            Owner::Main | Owner::Arena(_) => PoolId::DEFAULT,
            Owner::Graph(place) => PoolId(u8::try_from(place + 1).unwrap_or(u8::MAX)),
        };
        let Freed { at: addr, size, stream, .. } = *what;
        let stack = Entry::NO_STACK;
        self.journal.note(action, Entry { addr, size, time_us: 0, stack, stream, action, pool });
    }

    /// Counts and notes that the program was refused memory.
    #[cold]
    pub fn note_refused(&mut self, size: Bytes, stream: u64) {
        self.tallied.num_ooms += 1;
        let Ok(_here) = self.enter() else { return };
        let (Ok(owner), Ok(stream)) = (self.owner(stream), self.number(stream)) else { return };
        let (at, block) = (self.device.memory_info().free, BlockId { index: 0, generation: 0 });
        self.note(Action::Oom, &Freed { at, size, held: size, stream, block, owner });
    }

    #[cold]
    fn explain(&mut self, size: Bytes, error: &AllocError) -> Failure {
        let AllocError::OutOfMemory { .. } = error else {
            return Failure::Other(format!("CUDA error: {error}"));
        };
        let memory = self.device.memory_info();
        let usage = self.usage();
        let limit = match self.limit {
            Bytes::MAX => String::new(),
            limit => format!(" of the {} that this process may hold", PytorchSize(limit)),
        };
        Failure::OutOfMemory(format!(
            "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free{limit}. \
             gmlake ({}) holds {}, of which {} are in tensors and {} wait for a stream.",
            PytorchSize(size),
            self.gpu.index,
            PytorchSize(memory.total),
            PytorchSize(memory.free),
            self.conf.spec.name,
            PytorchSize(usage.reserved),
            PytorchSize(usage.allocated),
            PytorchSize(usage.active - usage.allocated),
        ))
    }
}

/// The GPU's memory, and the poisoner if there is to be one.
fn inspect(gpu: &Gpu, conf: &Conf) -> Result<(Bytes, Option<Debug>), DriverError> {
    let _here = gpu.enter()?;
    let debug = conf.poison.then(Debug::new).transpose()?;
    Ok((gpu.memory()?.total, debug))
}
