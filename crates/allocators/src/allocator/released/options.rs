//! The released code's environment variables, under their own names.

use crate::allocator::spec::settings;
use gmlake_core::units::Bytes;

settings! {
    /// Settings of the released GMLake.
    ReleasedOptions {
        /// `fragLimit`: the smallest request that is stitched, in bytes.
        frag_limit: Bytes = size("fragLimit", "512MiB"),
            "smallest request for which free pBlocks are stitched (a size)";
        /// `reuseLimit`: an sBlock may be this many times as large as the request that it serves.
        reuse_limit: f64 = number("reuseLimit", "10"),
            "an idle sBlock serves requests down to its size divided by this";
        /// `defragLevel`: stitching attempts before this one are skipped.
        defrag_level: u64 = whole("defragLevel", "0"),
            "0: stitch before new memory, 1: when there is none, 2: after a flush";
        /// `autoGC`, in bytes: beyond this total of stitched bytes all idle sBlocks are destroyed.
        auto_gc: Bytes = whole_gib("autoGC", "1000"),
            "GiB of stitched bytes beyond which all idle sBlocks are destroyed";
        /// `reAlloc`: new memory only for what the fragments lack.
        re_alloc: bool = flag("reAlloc", "0"),
            "1: new memory only for what free pBlocks lack, then stitch (paper: S4)";
        /// `vmmDefragment`: chunks and stitching at all.
        is_on: bool = flag("vmmDefragment", "1"),
            "0: no chunks and no stitching; large segments come from cuMemAlloc";
    }
}
