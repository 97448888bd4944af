//! The knobs of `lake`: one that matters, those that it sets, and switches to leave parts of it out.

use crate::allocator::{OptionError, OptionSpec, Options};
use crate::units::{Bytes, MIB};

/// Settings of [`Lake`](super::Lake); see [`LakeOptions::SPECS`] for what they do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LakeOptions {
    /// Share of the most bytes ever live by which reserved memory may exceed them before memory is stitched.
    pub slack: f64,
    /// Bytes that may be held before anything is stitched, whatever is live.
    pub headstart: Bytes,
    /// Share of the largest handle that may be taken to save one mapping, while live memory is at its record.
    pub price: f64,
    /// The largest handle on a device of 96 GiB or more, in bytes: a multiple of 2 MiB.
    pub handle: Bytes,
    /// How many handles a large request should be made of, at least.
    pub grain: u64,
    /// Mappings for each request, from which on handles are made larger; 0: never.
    pub rate: f64,
    /// Views that are kept.
    pub views: usize,
    /// Views that are looked into for one that fits.
    pub view_scan: usize,
    /// Whether requests of up to 32 KiB share slabs.
    pub slabs: bool,
    /// Whether two partial pieces side by side are used before whole handles.
    pub pairs: bool,
    /// Whether large requests go to the other end of a run than small ones.
    pub sides: bool,
    /// Whether a stream goes on from what is left of its own into idle handles of others.
    pub beside: bool,
    /// Whether a stream may be made to wait for another one.
    pub waits: bool,
    /// Whether memory lent to other streams is recalled where a request is to go again.
    pub recall: bool,
    /// Whether a request goes where its like went when the program was last here.
    pub repeat: bool,
}

impl Default for LakeOptions {
    fn default() -> Self {
        Self::of_budget("balanced").expect("it is one of the three")
    }
}

const fn switch(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, default: "on", help }
}

impl LakeOptions {
    /// The options as a user sees them.
    pub const SPECS: &'static [OptionSpec] = &[
        OptionSpec {
            name: "budget",
            default: "balanced",
            help: "fast: fewest driver calls; tight: least memory; balanced: between them",
        },
        OptionSpec {
            name: "slack",
            default: "by budget",
            help: "share by which reserved may exceed peak live memory before it is stitched",
        },
        OptionSpec {
            name: "headstart",
            default: "0 B",
            help: "memory held before anything is stitched: saves calls if a job needs more anyway",
        },
        OptionSpec {
            name: "price",
            default: "by budget",
            help: "share of a handle to grow by, at a record, for each mapping saved; 0: never",
        },
        OptionSpec {
            name: "handle",
            default: "by budget",
            help: "largest handle, on 96 GiB and more; smaller ones waste less and cost more",
        },
        OptionSpec {
            name: "grain",
            default: "by budget",
            help: "handles that a large request is made of, down to a quarter of the largest size",
        },
        OptionSpec {
            name: "rate",
            default: "by budget",
            help: "mappings per request from which on handles are larger, in proportion; 0: never",
        },
        OptionSpec { name: "views", default: "4096", help: "stitched ranges that are kept" },
        OptionSpec {
            name: "view_scan",
            default: "256",
            help: "stitched ranges that are looked into for one that fits",
        },
        switch("slabs", "tiny requests (up to 32 KiB) share slabs of 2 MiB"),
        switch("pairs", "use two partial pieces side by side before whole handles"),
        switch("sides", "large requests go to the other end of free memory than small ones"),
        switch("beside", "a stream goes on from what is left of its own into others' idle memory"),
        switch("waits", "a stream may wait for another one's memory, rather than grow"),
        switch("recall", "what is lent to other streams is taken back where repeating needs it"),
        switch("repeat", "what is asked for again goes where it went before"),
    ];

    /// What a budget stands for.
    fn of_budget(name: &str) -> Option<Self> {
        let (slack, price, handle, grain, rate) = match name {
            "fast" => (0.005, 0.0, 256 * MIB, 1, 0.0),
            "balanced" => (0.003, 0.45, 68 * MIB, 8, 0.077),
            "tight" => (0.003, 0.0, 32 * MIB, 16, 0.0),
            _ => return None,
        };
        let all = Self {
            slack,
            headstart: 0,
            price,
            handle,
            grain,
            rate,
            views: 4096,
            view_scan: 256,
            slabs: true,
            pairs: true,
            sides: true,
            beside: true,
            waits: true,
            recall: true,
            repeat: true,
        };
        Some(all)
    }

    /// Reads the options that were given, and leaves the others alone.
    ///
    /// # Errors
    /// If a value is wrong.
    pub fn take(options: &mut Options) -> Result<Self, OptionError> {
        let expected = "fast, balanced or tight";
        let default = options.name("budget", Self::default(), expected, Self::of_budget)?;
        Ok(Self {
            slack: options.number("slack", default.slack)?,
            headstart: options.size("headstart", default.headstart)?,
            price: options.number("price", default.price)?,
            handle: options.chunk("handle", default.handle)?,
            grain: options.whole("grain", default.grain)?,
            rate: options.number("rate", default.rate)?,
            views: options.whole("views", default.views as u64)? as usize,
            view_scan: options.whole("view_scan", default.view_scan as u64)? as usize,
            slabs: options.switch("slabs", default.slabs)?,
            pairs: options.switch("pairs", default.pairs)?,
            sides: options.switch("sides", default.sides)?,
            beside: options.switch("beside", default.beside)?,
            waits: options.switch("waits", default.waits)?,
            recall: options.switch("recall", default.recall)?,
            repeat: options.switch("repeat", default.repeat)?,
        })
    }
}
