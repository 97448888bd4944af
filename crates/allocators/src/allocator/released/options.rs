//! The released code's environment variables, under their own names.

use crate::allocator::{OptionError, OptionSpec, Options};
use gmlake_core::units::{Bytes, GIB, MIB};

/// Settings of the released GMLake; see [`ReleasedOptions::SPECS`] for names and defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReleasedOptions {
    /// `fragLimit`: the smallest request that is stitched, in bytes.
    pub frag_limit: Bytes,
    /// `reuseLimit`: an sBlock may be this many times as large as the request that it serves.
    pub reuse_limit: f64,
    /// `defragLevel`: stitching attempts before this one are skipped.
    pub defrag_level: u64,
    /// `autoGC`, in bytes: beyond this total of stitched bytes all idle sBlocks are destroyed.
    pub auto_gc: Bytes,
    /// `reAlloc`: new memory only for what the fragments lack.
    pub re_alloc: bool,
    /// `vmmDefragment`: chunks and stitching at all.
    pub is_on: bool,
}

impl Default for ReleasedOptions {
    fn default() -> Self {
        Self {
            frag_limit: 512 * MIB,
            reuse_limit: 10.0,
            defrag_level: 0,
            auto_gc: 1000 * GIB,
            re_alloc: false,
            is_on: true,
        }
    }
}

impl ReleasedOptions {
    /// The options as a user sees them.
    pub const SPECS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "fragLimit",
            default: "512MiB",
            help: "smallest request for which free pBlocks are stitched (a size)",
        },
        OptionSpec {
            name: "reuseLimit",
            default: "10",
            help: "an idle sBlock serves requests down to its size divided by this",
        },
        OptionSpec {
            name: "defragLevel",
            default: "0",
            help: "0: stitch before new memory, 1: when there is none, 2: after a flush",
        },
        OptionSpec {
            name: "autoGC",
            default: "1000",
            help: "GiB of stitched bytes beyond which all idle sBlocks are destroyed",
        },
        OptionSpec {
            name: "reAlloc",
            default: "0",
            help: "1: new memory only for what free pBlocks lack, then stitch (paper: S4)",
        },
        OptionSpec {
            name: "vmmDefragment",
            default: "1",
            help: "0: no chunks and no stitching; large segments come from cuMemAlloc",
        },
    ];

    /// Takes the options out of the bag.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn take(options: &mut Options) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            frag_limit: options.size("fragLimit", default.frag_limit)?,
            reuse_limit: options.number("reuseLimit", default.reuse_limit)?,
            defrag_level: options.whole("defragLevel", default.defrag_level)?,
            auto_gc: options.whole("autoGC", default.auto_gc / GIB)?.saturating_mul(GIB),
            re_alloc: options.whole("reAlloc", 0)? > 0,
            is_on: options.whole("vmmDefragment", 1)? > 0,
        })
    }
}
