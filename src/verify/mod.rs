//! Recordings of PyTorch's own allocator: verifying our model against them, and learning from them.
//!
//! A snapshot holds every decision that PyTorch took: where each block was placed, when memory came and went, when it
//! ran out. [`verify`] does it all again and compares; on the way it finds what the entries do not say in words: what
//! was live when the recording began, when the program emptied its cache, which pool a request was served from.

mod device;
mod ending;
mod entries;
mod flush;
mod flusher;
mod infer;
mod ledger;
mod lifetimes;
mod limits;
mod pool_options;
mod replay;
pub mod show;
mod start;
mod summary;
mod unseen;
mod verification;

pub use ending::leads_elsewhere;
pub use infer::{begins_with_program, verify};
pub use ledger::{contradictions, given_back_unseen, missing_kinds};
pub(crate) use limits::{most_in, range_in_words};
pub use start::{StartState, state_at};
pub use summary::{Compared, VerificationSummary};
pub use unseen::unseen_start;
pub(crate) use verification::counted;
pub use verification::{Difference, Refused, Verification};
