//! The options of `lake`: one that matters, and four for special cases and experiments.

use crate::allocator::{OptionError, OptionSpec, Options};
use gmlake_core::units::{Bytes, MIB};

/// Settings of [`Lake`](super::Lake); see [`LakeOptions::SPECS`] for what they do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LakeOptions {
    /// The smallest handle while there is plenty of memory, in bytes: a multiple of 2 MiB.
    pub handle: Bytes,
    /// Share of the most bytes ever live by which reserved memory may exceed them before memory is stitched.
    pub slack: f64,
    /// Stitched ranges that are kept.
    pub views: usize,
    /// Whether a stream may be made to wait for another one.
    pub waits: bool,
    /// Whether a request goes where its like went when the program was last here.
    pub repeat: bool,
}

impl Default for LakeOptions {
    fn default() -> Self {
        Self { handle: 8 * MIB, slack: 0.003, views: 4096, waits: true, repeat: true }
    }
}

impl LakeOptions {
    /// The options as a user sees them.
    pub const SPECS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "handle",
            default: "8MiB",
            help: "smallest physical handle: larger ones take fewer driver calls and waste more",
        },
        OptionSpec {
            name: "slack",
            default: "0.003",
            help: "share by which reserved may exceed peak live memory before it is stitched",
        },
        OptionSpec { name: "views", default: "4096", help: "stitched ranges that are kept" },
        OptionSpec {
            name: "waits",
            default: "on",
            help: "a stream may wait for another one's memory, rather than grow",
        },
        OptionSpec {
            name: "repeat",
            default: "on",
            help: "what is asked for again goes where it went before",
        },
    ];

    /// Reads the options that were given, and leaves the others alone.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn take(options: &mut Options) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            handle: options.chunk("handle", default.handle)?,
            slack: options.number("slack", default.slack)?,
            views: options.whole("views", default.views as u64)? as usize,
            waits: options.switch("waits", default.waits)?,
            repeat: options.switch("repeat", default.repeat)?,
        })
    }
}
