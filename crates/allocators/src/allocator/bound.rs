//! `bound-2mib`: what no allocator that maps memory page by page can do without, as an ordinary row of every table.
//!
//! Its sibling `bound` is [`Native`] without rounding: it holds exactly the bytes that are live, and offline placement
//! of real traces comes within a fraction of a percent of that. This one is the bound for expandable segments, GMLake
//! and their like: requests above 1 MiB take whole pages of 2 MiB, each as if stitched together perfectly, and smaller
//! ones go through PyTorch's small pool, which all of them leave as it is.

use super::beside::{Beside, Share};
use super::{Environment, Native};
use crate::device::GRANULE;
use gmlake_core::alloc_conf::AllocConf;

/// The bound for allocators that hold memory in pages of 2 MiB, on a device as `environment` says, with PyTorch's
/// default settings for the small pool.
pub(super) fn paged_bound(environment: &Environment) -> Beside<Native> {
    let stock = Environment { conf: AllocConf::default(), ..environment.clone() };
    Beside::new(&stock, Box::new(Native::with_rounding(GRANULE)), Share::Small)
}
