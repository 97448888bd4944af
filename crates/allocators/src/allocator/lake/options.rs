//! The options of `lake`: one that matters, and four for special cases and experiments.

use crate::allocator::spec::settings;
use gmlake_core::units::Bytes;

settings! {
    /// Settings of [`Lake`](super::Lake).
    LakeOptions {
        /// The smallest handle while there is plenty of memory, in bytes: a multiple of 2 MiB.
        handle: Bytes = chunk("handle", "8MiB"),
            "smallest physical handle: larger ones take fewer driver calls and waste more";
        /// Share of the most bytes ever live by which reserved memory may exceed them before memory is stitched.
        slack: f64 = number("slack", "0.003"),
            "share by which reserved may exceed peak live memory before it is stitched";
        /// Stitched ranges that are kept.
        views: usize = whole("views", "4096"),
            "stitched ranges that are kept";
        /// Whether a stream may be made to wait for another one.
        waits: bool = switch("waits", "on"),
            "a stream may wait for another one's memory, rather than grow";
        /// Whether a request goes where its like went when the program was last here.
        repeat: bool = switch("repeat", "on"),
            "what is asked for again goes where it went before";
    }
}
