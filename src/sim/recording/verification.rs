//! Verification results: differences, and what the entries do not say in words.

use super::start::StartState;
use crate::allocator::Usage;
use crate::device::CallCounts;
use crate::metrics::Timeline;
use crate::trace::{Action, Labels};
use crate::units::Bytes;

/// One thing in which the model did otherwise than PyTorch.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// Index of the entry; one past the last for the final state.
    pub entry: usize,
    /// What PyTorch did.
    pub recorded: String,
    /// What the model did.
    pub model: String,
}

/// What a verification found.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// Entries compared, by [`Action`].
    pub compared: [u64; Action::ALL.len()],
    /// Final segments compared.
    pub segments: u64,
    /// Final blocks compared.
    pub blocks: u64,
    /// How many differences there were.
    pub difference_count: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
    /// What the program did apart from requests and frees, as found on the way.
    pub labels: Labels,
    /// The state at the first entry.
    pub start: StartState,
    /// Segments that must have belonged to a private pool, although the recording does not say so.
    pub inferred_private: usize,
    /// Requests that a pool served to which they were not made (`use_on_oom`).
    pub served_elsewhere: usize,
    /// The memory limit (`set_per_process_memory_fraction`) that the model ran with.
    pub limit: Option<Bytes>,
    /// Memory of the device, as far as the driver's refusals tell: the most that was held where it refused more.
    pub capacity: Option<Bytes>,
    /// The least memory that would have been held if the driver had not refused a request.
    pub least_refused: Option<Bytes>,
    /// Peaks of the model, which are PyTorch's own where nothing differs.
    pub peak: Usage,
    /// The model's usage at the end.
    pub usage: Usage,
    /// Times that PyTorch gave everything back and tried again.
    pub retries: u64,
    /// Driver calls.
    pub device_calls: CallCounts,
    /// Memory over time, one point for each entry.
    pub timeline: Timeline,
    /// Time that the replay took, in nanoseconds.
    pub elapsed_ns: u64,
}
