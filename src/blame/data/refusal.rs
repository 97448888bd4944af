//! Refusal: a request that an allocator could not serve, and why not.

use serde::{Deserialize, Serialize};

use super::rows::{BlameRow, By};
use crate::trace::Coverage;
use crate::units::Bytes;

/// Free memory that was of no use, by cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusableFree {
    /// The cause, by its short name.
    pub cause: &'static str,
    /// What the bytes are, in words.
    pub meaning: &'static str,
    /// Bytes.
    pub bytes: Bytes,
    /// The largest free block among them.
    pub largest_bytes: Bytes,
}

/// Another allocator, or another setting of PyTorch's, under the same limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Served {
    /// The allocator.
    pub allocator: String,
    /// What `PYTORCH_CUDA_ALLOC_CONF` has to say for it beyond what it says now; `None`: nothing.
    pub setting: Option<String>,
    /// Whether it serves the whole job, or only this request and some after it.
    pub runs_job: bool,
}

/// Another process on the card at that moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherProcess {
    /// Its number in the system.
    pub pid: u32,
    /// What it ran, in a few words.
    pub name: String,
    /// Bytes of the card that it held, if the monitor told.
    pub bytes: Option<Bytes>,
}

/// A request that was not served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The trace file, as given.
    pub file: String,
    /// Index of the device in that file.
    pub device: u32,
    /// The allocator.
    pub allocator: String,
    /// Index of the event.
    pub event: u64,
    /// Its training step, from 1.
    pub step: Option<u64>,
    /// The kind of name.
    pub by: By,
    /// Who requested it.
    pub name: String,
    /// Where the name is a line: the user's own line that called it, if that is another one.
    pub own: Option<String>,
    /// Bytes asked for.
    pub requested_bytes: Bytes,
    /// Bytes that the job may hold, if there is a limit that is known.
    pub memory_bytes: Option<Bytes>,
    /// Bytes between which that limit lies, if the recording shows no more: from the first, below the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_range_bytes: Option<(Bytes, Bytes)>,
    /// Bytes held from the device, after all that could be given back was.
    pub reserved_bytes: Bytes,
    /// Bytes asked for and live.
    pub live_bytes: Bytes,
    /// The largest free block of the pool and stream that the request asks.
    pub usable_bytes: Bytes,
    /// Free memory by the reason for which it was of no use; and rounding, which is not free.
    pub free: Vec<UnusableFree>,
    /// Who held, largest first: the rows add up to the live bytes.
    pub held: Vec<BlameRow>,
    /// Allocators and settings that serve it under the same limit.
    pub served_by: Vec<Served>,
    /// What else serves it, each tried: in words.
    pub also_served_by: Vec<&'static str>,
    /// Bytes that the driver had left where it was not the driver that refused.
    pub not_short_of: Option<Bytes>,
    /// How much of the job the recording shows.
    pub coverage: Coverage,
    /// The smallest card of the catalogue on which the same allocator runs the whole job, and what it has for the job;
    /// `None` also where the recording is not the whole job.
    pub card: Option<(String, Bytes)>,
    /// The smallest card for PyTorch with expandable segments, if that is a smaller one, and nothing runs the whole job
    /// under the same limit.
    pub expandable_card: Option<(String, Bytes)>,
    /// Other processes on the card when memory ran out, where the card was recorded too (`gmlake.record(card=True)`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherProcess>,
}
