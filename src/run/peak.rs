//! The peak: what an allocator held at the moment at which it held most.

use super::causes::{Causes, Growth};
use super::moment::Moment;
use crate::allocator::{BlockView, Usage};

/// A block at the peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeakBlock {
    /// The block.
    pub view: BlockView,
    /// When it was asked for, if it is in use.
    pub since: Option<Moment>,
}

/// All that was held when a request had just made an allocator hold more than ever before.
#[derive(Debug, Clone, Default)]
pub struct Peak {
    /// The event; `None`: it was so at the beginning.
    pub moment: Option<Moment>,
    /// The usage then.
    pub usage: Usage,
    /// The request that forced the growth.
    pub growth: Option<Growth>,
    /// Where the memory went that was not asked for: reserved minus requested, to the byte.
    pub causes: Causes,
    /// Every block, in address order.
    pub blocks: Vec<PeakBlock>,
}
