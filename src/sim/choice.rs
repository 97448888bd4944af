//! Which allocator runs, and with which options.

use crate::allocator::{Options, Spec};

/// An allocator, and the options to run it with.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The allocator.
    pub spec: &'static Spec,
    /// Its options.
    pub options: Options,
}
