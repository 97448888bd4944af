//! The virtual GPU of a process: its devices, and what a program has asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rustc_hash::FxHashSet;
use serde_json::json;

use super::host_memory::HostMemory;
use super::post::Post;
use super::visible::visible;
use super::workspace::{
    Asked, Basis, CONVOLUTIONS, Guess, Guesses, Layer, Question, Subject, Versions, Workspaces,
};
use super::{
    Addresses, Completion, Graphs, HostPace, Known, Memory, MemoryError, Properties, Timeline, Work,
};
use gmlake_core::beside::{self, Beside, Uses};
use gmlake_core::units::Bytes;

/// How a virtual GPU is set up, by environment variables.
#[derive(Debug, Clone)]
pub struct Conf {
    /// `GMLAKE_GPU`: which card, by its name.
    pub card: Properties,
    /// `GMLAKE_GPU_COUNT`: how many there are.
    pub devices: usize,
    /// `GMLAKE_GPU_EVENTS`: when events complete.
    pub completion: Completion,
    /// `GMLAKE_GPU_CUDA`: the version of CUDA that the program was built for, such as 13000.
    pub cuda: i32,
    /// `GMLAKE_GPU_CUDNN`: the version of cuDNN that the program was built for, such as `91_900`.
    pub cudnn: i32,
    /// `GMLAKE_GPU_POST`: the folder through which the processes of a job send each other small data.
    pub post: Option<PathBuf>,
    /// `GMLAKE_GPU_WORKSPACES`: tables of measured workspaces, as a list of paths.
    pub workspaces: Workspaces,
}

impl Conf {
    /// What the environment says; `GMLAKE_GPU_MEMORY` takes the place of the card's memory, in bytes.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str, otherwise: u64| match variable(name) {
            Some(text) => text.parse().map_err(|_| format!("{name}={text} is not a number")),
            None => Ok(otherwise),
        };
        let name = variable("GMLAKE_GPU").unwrap_or_else(|| "H200".to_owned());
        let mut card = Properties::find(&name)?;
        card.memory = number("GMLAKE_GPU_MEMORY", card.memory)?;
        let completion = match variable("GMLAKE_GPU_EVENTS").as_deref() {
            None | Some("clock") => Completion::Clock,
            Some("early") => Completion::Early,
            Some("late") => Completion::Late,
            Some("fast") => Completion::Fast,
            Some("slow") => Completion::Slow,
            Some(text) => {
                return Err(format!("GMLAKE_GPU_EVENTS={text}: early, late, clock, fast or slow"));
            }
        };
        let cudnn = number("GMLAKE_GPU_CUDNN", 91_900)? as i32;
        let tables = variable("GMLAKE_GPU_WORKSPACES").unwrap_or_default();
        let tables: Vec<_> =
            std::env::split_paths(&tables).filter(|path| !path.as_os_str().is_empty()).collect();
        let versions = Versions { cudnn, cuda: number("GMLAKE_GPU_CUDA", 13_000)? as i32 };
        let tables = tables.iter().map(PathBuf::as_path);
        let workspaces = Workspaces::read(tables, &card.chip.reported, versions)?;
        Ok(Self {
            card,
            devices: number("GMLAKE_GPU_COUNT", 1)?.clamp(1, 64) as usize,
            completion,
            cuda: versions.cuda,
            cudnn,
            post: variable("GMLAKE_GPU_POST").map(PathBuf::from),
            workspaces,
        })
    }
}

/// How many matrix products a collective waits for, since each fills the GPU that it runs on.
///
/// In the recording `fsdp1-opt-13b-LR-w4`, 236 reduce-scatters that take 1.8 ms alone, next to products of 0.9 ms, took
/// 2.65 or 3.7 ms in most cases, and at most 4.6 to 5.9: one, two, up to four products
/// (`examples/predict/reduce_scatters.py`). The most, since the latest decides a peak.
const PRODUCTS_WAITED: u64 = 4;

/// The name of the first stream or other object; the default stream of each device has a lower one.
const FIRST_OBJECT: u64 = 0x1_0000;

/// All devices of a process, and what was counted.
#[derive(Debug)]
pub struct VirtualGpu {
    /// How it was set up.
    pub conf: Conf,
    /// The address space of all devices.
    pub space: Addresses,
    /// The memory of each device that the program sees; none before it uses one.
    pub memories: Vec<Memory>,
    /// The machine's numbers of these devices.
    pub visible: Vec<usize>,
    /// `CUDA_VISIBLE_DEVICES`, as it was when the program first used a device.
    visible_devices: Option<String>,
    /// Host memory that the devices can reach.
    pub host: HostMemory,
    /// The bytes whose values are known.
    pub known: Known,
    /// Streams and events.
    pub timeline: Timeline,
    /// How quick this machine is at the moment.
    pub pace: HostPace,
    /// Captures.
    pub graphs: Graphs,
    /// The way to other processes.
    pub post: Post,
    /// What takes memory besides PyTorch's allocator, counted.
    uses: Uses,
    loaded: FxHashSet<u64>,
    /// How long the last matrix product takes, in nanoseconds.
    product_ns: u64,
    launches: u64,
    /// Reads of bytes that a kernel would have made.
    pub unknown_reads: u64,
    unwritten: BTreeSet<String>,
    /// Layers of convolutions whose workspaces are estimates.
    estimated_layers: FxHashSet<Layer>,
    /// Workspaces that were not measured, as lines of text.
    estimated: BTreeSet<String>,
    /// Workspaces that are not known.
    pub guesses: Guesses,
    next_object: u64,
}

impl VirtualGpu {
    /// Devices as `conf` says, with addresses from `bottom` up to `top`. The program sees none yet.
    pub fn new(conf: Conf, bottom: u64, top: u64) -> Self {
        let uses = Uses::of([("context", 1), ("driver", 1)]);
        Self {
            space: Addresses::between(bottom, top),
            memories: Vec::new(),
            visible: Vec::new(),
            visible_devices: None,
            host: HostMemory::default(),
            known: Known::default(),
            timeline: Timeline::new(conf.completion),
            pace: HostPace::default(),
            graphs: Graphs::default(),
            post: conf.post.clone().map_or_else(Post::default, Post::through),
            conf,
            uses,
            loaded: FxHashSet::default(),
            product_ns: 0,
            launches: 0,
            unknown_reads: 0,
            unwritten: BTreeSet::new(),
            estimated_layers: FxHashSet::default(),
            estimated: BTreeSet::new(),
            guesses: Guesses::default(),
            next_object: FIRST_OBJECT,
        }
    }

    /// The program uses a device for the first time, and sees those that `CUDA_VISIBLE_DEVICES` names.
    pub fn see(&mut self, variable: Option<String>) {
        self.visible = visible(variable.as_deref(), self.conf.devices);
        self.visible_devices = variable;
        self.memories = self.visible.iter().map(|_| Memory::new(self.conf.card.memory)).collect();
        self.count(&[("gpu", self.visible.len().saturating_sub(1) as u64)]);
    }

    /// `cudaMalloc` on a device.
    pub fn malloc(&mut self, device: usize, bytes: Bytes) -> Result<u64, MemoryError> {
        self.memories[device].malloc(&mut self.space, bytes)
    }

    /// `cudaFree`, of whichever device: the size that was freed. The GPU is waited for, as the driver does.
    pub fn free(&mut self, at: u64) -> Option<Bytes> {
        self.timeline.wait_for_all();
        self.memories.iter_mut().find_map(|memory| memory.free(&mut self.space, at).ok())
    }

    /// `cuMemAddressReserve` on a device.
    pub fn reserve(&mut self, device: usize, bytes: Bytes) -> Result<u64, MemoryError> {
        self.memories[device].reserve(&mut self.space, bytes)
    }

    /// `cuMemAddressFree`, of whichever device.
    pub fn unreserve(&mut self, at: u64, bytes: Bytes) -> Result<(), MemoryError> {
        let found = self.memories.iter_mut().find(|memory| memory.range_of(at).is_some());
        found.ok_or(MemoryError::Invalid)?.unreserve(&mut self.space, at, bytes)
    }

    /// `cuMemUnmap`, on whichever device.
    pub fn unmap(&mut self, at: u64, bytes: Bytes) -> Result<(), MemoryError> {
        let found = self.memories.iter_mut().find(|memory| memory.range_of(at).is_some());
        found.ok_or(MemoryError::Invalid)?.unmap(at, bytes)
    }

    /// The beginning and the size of what an address lies in, on whichever device.
    pub fn range_of(&self, at: u64) -> Option<(u64, Bytes)> {
        self.memories.iter().find_map(|memory| memory.range_of(at))
    }

    /// A name for a stream, an event or another object that has no contents.
    pub fn object(&mut self) -> u64 {
        self.next_object += 0x10;
        self.next_object
    }

    /// A name for an object that a function made, which may take memory.
    pub fn made_by(&mut self, function: &str) -> u64 {
        if beside::is_counted(function) {
            self.uses.add(function, 1);
            self.take_beside();
        }
        self.object()
    }

    /// Counts uses that take memory, by the names of [`beside`].
    pub fn count(&mut self, uses: &[(&str, u64)]) {
        for (name, count) in uses {
            self.uses.add(name, *count);
        }
        self.take_beside();
    }

    /// Counts a use that takes memory only the first time.
    pub fn count_once(&mut self, name: &str) {
        if self.uses.add_once(name) {
            self.take_beside();
        }
    }

    /// Counts the executable graphs; a driver keeps the memory of those that are gone for those to come.
    pub fn count_graphs(&mut self) {
        let (graphs, nodes) = self.graphs.live();
        self.uses.raise("graph", graphs);
        self.uses.raise("graph_node", nodes);
        self.take_beside();
    }

    /// What the process takes of each card besides PyTorch's allocator.
    pub fn beside(&self) -> Beside {
        beside::beside_pytorch(&self.conf.card.name, &self.uses)
    }

    fn take_beside(&mut self) {
        let bytes = self.beside().bytes;
        for memory in &mut self.memories {
            memory.take_beside(bytes);
        }
    }

    /// Queues work on a stream, or counts it where the stream is captured.
    pub fn work(&mut self, stream: u64, work: Work) {
        self.launches += 1;
        self.timeline.spend(work.host_ns());
        if let Some(capture) = self.graphs.of(stream) {
            capture.nodes += 1;
            return;
        }
        self.count_once("kernel");
        if let Some(kernel) = work.kernel_of_product() {
            self.load(kernel);
        }
        let mut ns = work.ns(&self.conf.card);
        match work {
            Work::Product { .. } => self.product_ns = ns,
            Work::Link(_) => ns += PRODUCTS_WAITED * self.product_ns,
            Work::Threads(_) | Work::Bytes(_) | Work::Bus(_) => {}
        }
        self.timeline.queue(stream, ns);
    }

    /// Loads a kernel when it is first used: CUDA does so lazily, and waits for the GPU. On an H200 the first launch of
    /// 6 of 8 kernels and the first product of 40 of 51 shapes came back when all queued work was done, and no later
    /// one.
    pub fn load(&mut self, kernel: u64) {
        if self.loaded.insert(kernel) {
            self.timeline.wait_for_all();
        }
    }

    /// Notes that a function was called which is missing; true the first time.
    pub fn note_unwritten(&mut self, name: &str) -> bool {
        self.unwritten.insert(name.to_owned())
    }

    /// Bytes of workspace for a convolution: what a table of the user's says, or else our own. Ours was measured on
    /// GPUs of Hopper's kind; all else is an estimate.
    pub fn convolution(&mut self, asked: &Asked) -> Bytes {
        if let Some(bytes) = self.conf.workspaces.get(&Question::Convolution.line(asked)) {
            return bytes;
        }
        let is_hopper = self.conf.card.chip.capability == (9, 0);
        let it = &asked.convolution;
        let basis = if is_hopper { it.basis() } else { Basis::Chosen };
        let bytes = it.workspace();
        if basis == Basis::Measured {
            return bytes;
        }
        self.estimated_layers.extend(Layer::of(it));
        let (ends, chances) = it.spread(basis, bytes);
        let guess = Guess { what: CONVOLUTIONS, bytes, ends, chances };
        self.workspace(Subject::Convolution(asked.clone()), guess)
    }

    /// Bytes of workspace: what a table of the user's says, or else an estimate, which is noted.
    pub fn workspace(&mut self, subject: Subject, guess: Guess) -> Bytes {
        if let Some(line) = subject.line() {
            if let Some(bytes) = self.conf.workspaces.get(&line) {
                return bytes;
            }
            self.estimated.insert(line);
        }
        self.guesses.note(subject, guess);
        guess.bytes
    }

    /// How many workspaces of each kind are estimates that may be wrong.
    fn estimated_kinds(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = self.guesses.counts();
        if !self.estimated_layers.is_empty() {
            counts.insert(CONVOLUTIONS, self.estimated_layers.len());
        }
        counts
    }

    /// The most memory that was ever in use, on the device that used most.
    pub fn peak(&self) -> Bytes {
        self.memories.iter().map(Memory::peak).max().unwrap_or(0)
    }

    /// What was counted, as a JSON object.
    pub fn report(&self) -> String {
        json!({
            "card": self.conf.card.name,
            "devices": self.conf.devices,
            "visible": self.visible,
            "visible_devices": self.visible_devices,
            "launches": self.launches,
            "unknown_reads": self.unknown_reads,
            "uses": self.uses,
            "beside": self.beside(),
            "contested": self.timeline.contested(),
            "unwritten": self.unwritten,
            "estimated_kinds": self.estimated_kinds(),
            "estimated": self.estimated,
            "guesses": self.guesses.rows().collect::<Vec<_>>(),
            "guesses_used": self.guesses.runs(),
            "workspaces_of_others": self.conf.workspaces.of_others,
            "peak_bytes": self.peak(),
            "host_peak_bytes": self.host.peaks(),
            "host_pinned": self.host.pinned(),
            "clock_ns": self.timeline.host_ns(),
            "host_pace": self.pace.average(),
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALIGNED, Asker, Precision};
    use gmlake_core::units::{GIB, TIB};

    fn conf(pairs: &[(&str, &str)]) -> Result<Conf, String> {
        let found =
            |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, to)| (*to).to_owned());
        Conf::from(found)
    }

    #[test]
    fn the_environment_chooses_card_memory_and_devices() {
        let all = [
            ("GMLAKE_GPU", "a100-80gb"),
            ("GMLAKE_GPU_MEMORY", "1073741824"),
            ("GMLAKE_GPU_COUNT", "4"),
            ("GMLAKE_GPU_EVENTS", "late"),
        ];
        let mut gpu = VirtualGpu::new(conf(&all).unwrap(), TIB, 2 * TIB);
        gpu.see(None);
        assert_eq!((gpu.memories.len(), gpu.memories[3].info().1), (4, GIB));
        assert_eq!((gpu.conf.card.architecture(), gpu.conf.completion), (80, Completion::Late));
        for (name, value) in
            [("GMLAKE_GPU", "H900"), ("GMLAKE_GPU_MEMORY", "much"), ("GMLAKE_GPU_EVENTS", "soon")]
        {
            let error = conf(&[(name, value)]).unwrap_err();
            assert!(error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_process_takes_memory_for_each_further_device_that_it_sees() {
        let beside = |variable: Option<&str>| {
            let all = [("GMLAKE_GPU", "H200"), ("GMLAKE_GPU_COUNT", "8")];
            let mut gpu = VirtualGpu::new(conf(&all).unwrap(), TIB, 2 * TIB);
            gpu.see(variable.map(str::to_owned));
            (gpu.memories.len(), gpu.beside().bytes)
        };
        let one = beside(Some("5"));
        assert_eq!(one.0, 1);
        assert_eq!(beside(Some("5,2,0")), (3, one.1 + 2 * (14 << 20)));
        assert_eq!(beside(None), (8, one.1 + 7 * (14 << 20)));
        assert_eq!(beside(Some("")), (0, one.1));
    }

    #[test]
    fn a_collective_waits_for_products_like_the_last_one() {
        let (precision, alignment) = (Precision::Half, ALIGNED);
        let product = Work::Product { flops: 1e12, results: 1e6, precision, alignment };
        let done = |works: &[(u64, Work)]| {
            let mut gpu = VirtualGpu::new(conf(&[]).unwrap(), TIB, 2 * TIB);
            works.iter().for_each(|&(stream, work)| gpu.work(stream, work));
            gpu.timeline.all_done_ns()
        };
        let alone = done(&[(1, Work::Link(1 << 20))]);
        let together = done(&[(1, product), (2, Work::Link(1 << 20))]);
        assert!(together > alone + 3_000_000, "{alone} {together}");
    }

    #[test]
    fn work_on_a_captured_stream_is_counted_and_not_queued() {
        let mut gpu = VirtualGpu::new(conf(&[]).unwrap(), TIB, 2 * TIB);
        assert!(gpu.graphs.begin(1));
        gpu.work(1, Work::Threads(1 << 20));
        assert!(gpu.timeline.is_idle(1, Asker::Worker));
        gpu.work(2, Work::Threads(1 << 20));
        assert!(!gpu.timeline.is_idle(2, Asker::Worker));
        let report: serde_json::Value = serde_json::from_str(&gpu.report()).unwrap();
        assert_eq!(report["launches"], 2);
    }
}
