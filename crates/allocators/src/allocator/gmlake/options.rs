//! The knobs of the paper's allocator.

use crate::allocator::spec::settings;
use gmlake_core::units::Bytes;

settings! {
    /// Settings of [`Gmlake`](super::Gmlake).
    GmlakeOptions {
        /// Free pBlocks below this size, in bytes, are neither split nor stitched.
        fragment_limit: Bytes = size("fragment_limit", "2MiB"),
            "free pBlocks below it are neither split nor stitched (paper: 128MiB)";
        /// Whether the limit is asked of the request instead: smaller ones are served without stitching, from any
        /// block.
        limit_requests: bool = switch("limit_requests", "off"),
            "apply fragment_limit to requests, as the released code does, and not to blocks";
        /// Whether free neighbours in one address range become one pBlock again.
        merge: bool = switch("merge", "on"),
            "free neighbours become one pBlock again; off: cut once is cut for good";
        /// Address space that sBlocks may take, in bytes, before the least recently used ones go.
        stitched_limit: Bytes = size("stitched_limit", "1TiB"),
            "address space of sBlocks beyond which the least recently used ones go";
        /// Whether the halves of a split pBlock, if they do not merge, are remembered as an sBlock.
        split_stitch: bool = switch("split_stitch", "on"),
            "with merge=off: remember a split pBlock as an sBlock of its old size";
        /// Size of a physical chunk: a multiple of 2 MiB.
        chunk: Bytes = chunk("chunk", "2MiB"),
            "size of a physical chunk, a multiple of 2 MiB";
    }
}
