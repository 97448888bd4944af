//! The knobs of the paper's allocator.

use crate::allocator::{OptionError, OptionSpec, Options};
use crate::device::GRANULE;
use gmlake_core::units::{Bytes, TIB};

/// Settings of [`Gmlake`](super::Gmlake); see [`GmlakeOptions::SPECS`] for what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GmlakeOptions {
    /// Free pBlocks below this size, in bytes, are neither split nor stitched.
    pub fragment_limit: Bytes,
    /// Whether the limit is asked of the request instead: smaller ones are served without stitching, from any block.
    pub limit_requests: bool,
    /// Whether free neighbours in one address range become one pBlock again.
    pub merge: bool,
    /// Address space that sBlocks may take, in bytes, before the least recently used ones go.
    pub stitched_limit: Bytes,
    /// Whether the halves of a split pBlock, if they do not merge, are remembered as an sBlock.
    pub split_stitch: bool,
    /// Size of a physical chunk: a multiple of 2 MiB.
    pub chunk: Bytes,
}

impl Default for GmlakeOptions {
    fn default() -> Self {
        Self {
            fragment_limit: GRANULE,
            limit_requests: false,
            merge: true,
            stitched_limit: TIB,
            split_stitch: true,
            chunk: GRANULE,
        }
    }
}

impl GmlakeOptions {
    /// The options as a user sees them.
    pub const SPECS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "fragment_limit",
            default: "2MiB",
            help: "free pBlocks below it are neither split nor stitched (paper: 128MiB)",
        },
        OptionSpec {
            name: "limit_requests",
            default: "off",
            help: "apply fragment_limit to requests, as the released code does, and not to blocks",
        },
        OptionSpec {
            name: "merge",
            default: "on",
            help: "free neighbours become one pBlock again; off: cut once is cut for good",
        },
        OptionSpec {
            name: "stitched_limit",
            default: "1TiB",
            help: "address space of sBlocks beyond which the least recently used ones go",
        },
        OptionSpec {
            name: "split_stitch",
            default: "on",
            help: "with merge=off: remember a split pBlock as an sBlock of its old size",
        },
        OptionSpec {
            name: "chunk",
            default: "2MiB",
            help: "size of a physical chunk, a multiple of 2 MiB",
        },
    ];

    /// Takes the options out of the bag.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn take(options: &mut Options) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            fragment_limit: options.size("fragment_limit", default.fragment_limit)?,
            limit_requests: options.switch("limit_requests", default.limit_requests)?,
            merge: options.switch("merge", default.merge)?,
            stitched_limit: options.size("stitched_limit", default.stitched_limit)?,
            split_stitch: options.switch("split_stitch", default.split_stitch)?,
            chunk: options.chunk("chunk", default.chunk)?,
        })
    }
}
