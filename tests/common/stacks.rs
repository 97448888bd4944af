//! A made-up job with call stacks, as PyTorch would have recorded it.
//!
//! Four steps, or more. Each asks for activations on one line and gives them back, and for a block that it keeps on
//! another, if there is to be a leak; a third line, of a library, keeps the last two of ever larger tensors, if there
//! are to be such. Before the steps comes the state, and gradients come from a thread without a Python stack.
//! Where PyTorch puts all that, the simulator tells.

use std::collections::VecDeque;

use gmlake::sim::{Opened, Setup, choose, transcribe};
use gmlake::trace::{
    Action, Annotation, Entry, Frame, Labels, PoolId, Records, Stack, Stacks, StreamId, ingest,
    write_snapshot,
};
use gmlake::units::{Bytes, MIB};

/// What the job does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// Bytes of the activations of each step.
    pub(crate) activations: Bytes,
    /// Bytes that a step leaves behind.
    pub(crate) leak: Bytes,
    /// Of so many steps the last one does.
    pub(crate) leak_every: u64,
    /// Whether all that they left is freed after the last step.
    pub(crate) frees_leak: bool,
    /// Bytes by which a tensor that replaces the last but one is larger than the last.
    pub(crate) replaced: Bytes,
    /// Steps.
    pub(crate) steps: u64,
    /// How many lines lie before those of the job in its file.
    pub(crate) offset: u64,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            activations: 64 * MIB,
            leak: 0,
            leak_every: 1,
            frees_leak: false,
            replaced: 0,
            steps: 4,
            offset: 0,
        }
    }
}

const NO_STACK: u32 = Entry::NO_STACK;
const STATE: u32 = 0;
const ACTIVATIONS: u32 = 1;
const LEAK: u32 = 2;
const REPLACED: u32 = 3;

fn stacks(offset: u64) -> Stacks {
    let frame = |file: &str, line: u64, function: &str| Frame {
        file: file.into(),
        line: line + offset,
        function: function.into(),
    };
    let torch = "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py";
    let cache = "/venv/lib/python3.12/site-packages/transformers/cache_utils.py";
    let frames = vec![
        Frame { file: torch.into(), line: 125, function: "forward".into() },
        frame("/jobs/me/job/train.py", 10, "build"),
        frame("/jobs/me/job/train.py", 30, "step"),
        frame("/jobs/me/job/train.py", 33, "step"),
        frame("/jobs/me/job/train.py", 50, "<module>"),
        Frame { file: cache.into(), line: 99, function: "update".into() },
        frame("/jobs/me/job/train.py", 36, "step"),
    ];
    let stack = |frames: &[u32]| Stack { frames: frames.into(), ..Stack::default() };
    let stacks: [&[u32]; 4] = [&[0, 1, 4], &[0, 2, 4], &[3, 4], &[5, 6, 4]];
    Stacks { frames, stacks: stacks.map(stack).into() }
}

/// The job's recording, as a pickle.
pub(crate) fn snapshot(job: &Job) -> Vec<u8> {
    let mut program = Program::default();
    program.alloc(100 * MIB, STATE);
    let (mut recent, mut left) = (VecDeque::new(), Vec::new());
    for step in 1..=job.steps {
        let activations = program.alloc(job.activations, ACTIVATIONS);
        let gradients = program.alloc(20 * MIB, NO_STACK);
        if job.leak > 0 && step.is_multiple_of(job.leak_every) {
            left.push(program.alloc(job.leak, LEAK));
        }
        if job.replaced > 0 {
            recent.push_back(program.alloc(step * job.replaced, REPLACED));
            let old = if recent.len() > 2 { recent.pop_front() } else { None };
            old.into_iter().for_each(|smaller| program.free(smaller));
        }
        program.free(activations);
        program.free(gradients);
        program.annotate();
    }
    left.into_iter().filter(|_| job.frees_leak).for_each(|block| program.free(block));
    let records = Records {
        entries: program.entries,
        annotations: program.annotations,
        streams: vec![0],
        pools: vec![(0, 0)],
        stacks: stacks(job.offset),
        ..Records::default()
    };
    let trace = ingest(&records, &Labels::default());
    let opened = Opened { records, trace, ..Opened::default() };
    let caching = choose(&["caching".to_owned()], &[]).expect("we have it").remove(0);
    let records = transcribe(&opened, &caching, &Setup::default()).expect("it runs");
    let mut bytes = Vec::new();
    write_snapshot(&records, &mut bytes).expect("memory suffices");
    bytes
}

#[derive(Default)]
struct Program {
    entries: Vec<Entry>,
    annotations: Vec<Annotation>,
    next: u64,
}

impl Program {
    /// A block at an address of its own.
    fn alloc(&mut self, size: Bytes, stack: u32) -> (u64, Bytes) {
        let addr = (1 << 40) + self.next;
        self.next += size.next_multiple_of(2 * MIB);
        self.entry(Action::Alloc, addr, size, stack);
        (addr, size)
    }

    fn free(&mut self, (addr, size): (u64, Bytes)) {
        self.entry(Action::FreeRequested, addr, size, NO_STACK);
        self.entry(Action::FreeCompleted, addr, size, NO_STACK);
    }

    fn entry(&mut self, action: Action, addr: u64, size: Bytes, stack: u32) {
        let time_us = 1_000_000 + 10 * self.entries.len() as u64;
        let (stream, pool) = (StreamId(0), PoolId::DEFAULT);
        self.entries.push(Entry { addr, size, time_us, stack, stream, action, pool });
    }

    fn annotate(&mut self) {
        let time_us = 1_000_000 + 10 * self.entries.len() as u64 - 5;
        for is_start in [true, false] {
            let name = "Optimizer.step#AdamW.step".to_owned();
            self.annotations.push(Annotation { name, is_start, time_us });
        }
    }
}
