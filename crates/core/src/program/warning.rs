//! Warnings: what had to be assumed about a trace, in words.

/// What was assumed about a trace, how often, and where first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// How many entries it concerns.
    pub count: u64,
    /// The first of them, in words: position and values.
    pub first: String,
}

/// The kinds of assumption that ingest makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WarningKind {
    /// A free of an address at which nothing is live.
    UnknownFree,
    /// An `alloc` at an address that is still live: its free is missing.
    DoubleAlloc,
    /// A `free_requested` of a block that was freed already.
    DoubleFree,
    /// An entry of a block that other entries contradict.
    BlockEntries,
    /// An entry of memory from the driver, or of a block in it, that other entries contradict.
    DriverEntries,
    /// Blocks were live before the recording began.
    LiveBefore,
    /// An entry of a kind that we do not know.
    UnknownAction,
    /// A key of a snapshot, or of its settings, that no version of PyTorch up to 2.15 writes.
    UnknownKey,
    /// A size of zero or above 2^47 bytes; the entry was left out.
    AbsurdSize,
    /// An out-of-memory without the size of its request.
    UnsizedFailure,
    /// The configuration text of the recorded allocator is not understood.
    Settings,
    /// A column of a table that we do not know.
    UnknownColumn,
    /// The file was cut off.
    CutOff,
    /// The file has several snapshots, one behind the other.
    SeveralSnapshots,
    /// The file has more in it than the recording.
    Trailing,
}

impl WarningKind {
    /// What was assumed, and what to do about it.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::UnknownFree => {
                "free of an address at which nothing is live: ignored (the recording began late?)"
            }
            Self::DoubleAlloc => {
                "alloc at an address that is still live: the older block was freed first (its free is missing)"
            }
            Self::DoubleFree => "block freed twice: the second free was ignored",
            Self::BlockEntries => {
                "entry that contradicts what was live before it: entries of blocks are missing"
            }
            Self::DriverEntries => {
                "entry that contradicts what was held before it: entries of segments are missing"
            }
            Self::LiveBefore => {
                "block was live before the recording began: it is requested before the first event"
            }
            Self::UnknownAction => "entry of an unknown kind: ignored",
            Self::UnknownKey => "key that we do not know: ignored",
            Self::AbsurdSize => "size beyond any GPU: entry ignored",
            Self::UnsizedFailure => "out-of-memory without a size: what was requested is unknown",
            Self::Settings => {
                "recorded allocator settings not understood: options that only they name are defaults"
            }
            Self::UnknownColumn => "column that we do not know: left out",
            Self::CutOff => "the file is cut off: what can be read of it is used",
            Self::SeveralSnapshots => {
                "snapshots one behind the other: the last is used (--snapshot N chooses another)"
            }
            Self::Trailing => "something else behind the recording: ignored",
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}; first: {}", self.count, self.kind.explanation(), self.first)
    }
}
