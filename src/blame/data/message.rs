//! Messages: what the text of an out-of-memory tells, its numbers and what they leave open.

use serde::Serialize;

use crate::units::Bytes;

/// Why memory ran out, as far as a text can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A limit that was set for the process, below the memory of the device.
    Limit,
    /// The device had more free than was requested.
    FreeYetRefused,
    /// PyTorch held enough free memory, in pieces.
    Fragmentation,
    /// Other processes held memory of the device.
    OtherProcesses,
    /// More was needed than there was.
    TooMuch,
    /// The size of the request makes no sense.
    WrongSize,
    /// Not PyTorch's allocator but the driver, or a library, found no memory.
    OutsidePyTorch,
    /// What a server of language models keeps of the device is too small for it.
    ServerShare,
    /// It was the memory of the host, not that of a GPU.
    HostMemory,
    /// The text does not say.
    Unknown,
}

/// One of the causes, with what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// Whether the numbers leave no other explanation.
    pub is_certain: bool,
    /// The bytes that it concerns, as far as they are known.
    pub bytes: Option<Bytes>,
    /// What speaks for it, in words.
    pub explanation: String,
}

/// The numbers of a message; `None` where it does not say. They are rounded as the text is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MessageNumbers {
    /// Bytes that were requested from the device, after rounding.
    pub requested_bytes: Option<Bytes>,
    /// Memory of the device.
    pub total_bytes: Option<Bytes>,
    /// What the device had free after the request had failed.
    pub free_bytes: Option<Bytes>,
    /// The most that the process might hold.
    pub allowed_bytes: Option<Bytes>,
    /// Bytes of live tensors.
    pub allocated_bytes: Option<Bytes>,
    /// Those of them in private pools, such as CUDA graphs'.
    pub private_pool_bytes: Option<Bytes>,
    /// Bytes that PyTorch held free.
    pub unallocated_bytes: Option<Bytes>,
    /// All that the process held of the device.
    pub process_bytes: Option<Bytes>,
    /// What of it was not PyTorch's: the context of CUDA, libraries.
    pub outside_pytorch_bytes: Option<Bytes>,
    /// What other processes held.
    pub others_bytes: Option<Bytes>,
    /// The least that the job needs in live tensors.
    pub needs_at_least_bytes: Option<Bytes>,
}

/// A row of `torch.cuda.memory_summary()`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummaryRow {
    /// Its name there.
    pub metric: String,
    /// Current, peak, allocated in all, freed in all.
    pub bytes: [Bytes; 4],
}

/// What `torch.cuda.memory_summary()` printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemorySummary {
    /// Requests that failed.
    pub ooms: Option<u64>,
    /// How often PyTorch emptied its cache because the device had no more.
    pub retries: Option<u64>,
    /// The rows that are sizes and are not of a single pool.
    pub rows: Vec<SummaryRow>,
}

impl MemorySummary {
    /// The row of this name.
    pub fn row(&self, metric: &str) -> Option<[Bytes; 4]> {
        self.rows.iter().find(|row| row.metric == metric).map(|row| row.bytes)
    }
}

/// The line of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceLine {
    /// The file.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function.
    pub function: String,
}

/// The text of an out-of-memory, explained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The file, as given.
    pub file: String,
    /// Who reported it: `CUDA`, `HIP`, `XPU` or another backend, if it says so.
    pub backend: Option<String>,
    /// Index of the GPU.
    pub device: Option<u32>,
    /// The numbers.
    pub numbers: MessageNumbers,
    /// The table of `memory_summary()`, if there is one.
    pub summary: Option<MemorySummary>,
    /// The innermost line of the call stack that a user can change.
    pub line: Option<SourceLine>,
    /// Further messages in the text.
    pub more: u64,
    /// Causes, the likeliest first.
    pub findings: Vec<Finding>,
    /// What to do, the most promising first.
    pub advice: Vec<String>,
}
