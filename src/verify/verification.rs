//! Verification results: differences, and what the entries do not say in words.

use std::ops::Range;

use super::start::StartState;
use crate::allocator::Usage;
use crate::device::CallCounts;
use crate::run::Timeline;
use crate::trace::{Action, Labels};
use crate::units::{Bytes, Grouped};

/// After this many differences the model is not put right any more: it is another allocator.
pub(super) const HOPELESS: u64 = 100;

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

/// A request that ran out, and what the driver had then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Memory that was held.
    pub held: Bytes,
    /// How much of it lay in free blocks.
    pub free: Bytes,
    /// Memory that the driver had left, where the recording tells.
    pub device_free: Option<Bytes>,
    /// Memory that PyTorch asked the driver for.
    pub needed: Bytes,
}

impl Refused {
    /// Whether the driver had enough: then something else refused.
    pub fn was_there(&self) -> bool {
        self.device_free.is_some_and(|free| free >= self.needed)
    }
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
    /// How many differences there were; from 101 on, at least so many.
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
    /// Where the limit lies, or else the capacity, if the recording shows no more than that. It ends nowhere
    /// ([`Bytes::MAX`]) if no failed request shows it.
    pub memory_range: Option<Range<Bytes>>,
    /// The least memory that would have been held if the driver had not refused a request.
    pub least_refused: Option<Bytes>,
    /// Requests that ran out in a private pool, as the cache that was kept tells.
    pub diverted: usize,
    /// The first request that ran out.
    pub refused: Option<Refused>,
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

impl Verification {
    /// Whether something was held when the recording began, from where the model does not get to the recorded end.
    pub fn doubts_start(&self) -> bool {
        self.difference_count > 0 && !self.start.layout.segments.is_empty()
    }

    /// Forgets what refusals tell of a limit or of the device, where it is not known what was held.
    pub fn forget_memory(&mut self) {
        (self.limit, self.capacity, self.memory_range) = (None, None, None);
        (self.refused, self.least_refused, self.diverted) = (None, None, 0);
    }
}

/// How many differences there are, in words.
pub(crate) fn counted(differences: u64) -> String {
    let at_least = if differences > HOPELESS { "at least " } else { "" };
    format!("{at_least}{}", Grouped(differences))
}
