//! Formats: every kind of file that we read, recognised by its content.

use super::error::excerpt;
use super::options::LoadOptions;
use super::{
    Position, Records, Result, TraceError, chrome, csv, json, minimalloc, pickle, rmm, text,
};
use gmlake_core::units::Bytes;

/// A kind of trace file.
#[derive(Debug, Clone, Copy)]
pub struct TraceFormat {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    detect: fn(&[u8]) -> bool,
    pub(super) read: Read,
}

/// Reads a content; the last is the memory that what it says may take, in bytes.
type Read = fn(&[u8], &LoadOptions, Bytes) -> Result<Vec<Records>>;

impl TraceFormat {
    /// Every format. To add one, write its file and its line here.
    pub const ALL: &'static [Self] = &[
        Self {
            name: "pickle",
            help: "PyTorch's memory snapshot (torch.cuda.memory._dump_snapshot)",
            detect: is_pickle,
            read: pickle::read,
        },
        Self {
            name: "json",
            help: "the same snapshot as JSON, or its entries or segments, in a list or one a line",
            detect: |bytes| json_kind(bytes) == Some(JsonKind::Snapshot),
            read: json::read,
        },
        Self {
            name: "chrome",
            help: "the PyTorch profiler's Chrome trace, with profile_memory=True",
            detect: |bytes| json_kind(bytes) == Some(JsonKind::Chrome),
            read: chrome::read,
        },
        // Its header has a column that is one of ours, too.
        Self {
            name: "rmm",
            help: "RAPIDS' logging_resource_adaptor: Thread,Time,Action,Pointer,Size,Stream",
            detect: rmm::is_log,
            read: rmm::read,
        },
        Self {
            name: "minimalloc",
            help: "lifetimes, one a row: id,lower,upper,size",
            detect: minimalloc::is_csv,
            read: minimalloc::read,
        },
        Self {
            name: "csv",
            help: "one event a row: action,addr,size,stream,time_us, or event,id,size by hand",
            detect: csv::is_csv,
            read: csv::read,
        },
    ];

    /// The format of a content, by its first bytes.
    ///
    /// # Errors
    /// If it is none of ours.
    pub fn detect(bytes: &[u8]) -> Result<&'static Self> {
        let format = || Self::ALL.iter().find(|format| (format.detect)(bytes));
        // A page or an answer speaks of segments and of memory that ran out, too.
        if is_ours(bytes) { None } else { format() }.ok_or_else(|| unknown(bytes))
    }

    /// Whether it is PyTorch's snapshot: a file may have several, and the beginning of one can be read.
    pub(super) fn is_snapshot(&self) -> bool {
        ["pickle", "json"].contains(&self.name)
    }

    /// Whether it is a table, with an event or a lifetime in each row.
    pub(super) fn is_table(&self) -> bool {
        ["rmm", "minimalloc", "csv"].contains(&self.name)
    }

    /// Looks at the beginning of a content that goes on. Fails if no content of this format begins so.
    pub(super) fn check_beginning(&self, bytes: &[u8], options: &LoadOptions) -> Result<()> {
        match self.name {
            "pickle" => pickle::check_beginning(bytes, options),
            _ => Ok(()),
        }
    }
}

/// Protocol 2 and later begin with 0x80; the others are recognised only to be refused by name.
fn is_pickle(bytes: &[u8]) -> bool {
    const PROTOCOL_0_OR_1: [&[u8]; 4] = [b"(d", b"(l", b"}q", b"]q"];
    bytes.first() == Some(&0x80) || PROTOCOL_0_OR_1.iter().any(|head| bytes.starts_with(head))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonKind {
    Snapshot,
    Chrome,
}

/// Keys that only one kind of document has. Whichever occurs first decides: both write theirs at the very start.
const JSON_KEYS: [(&[u8], JsonKind); 11] = [
    (b"segments\"", JsonKind::Snapshot),
    (b"device_traces\"", JsonKind::Snapshot),
    (b"allocator_settings\"", JsonKind::Snapshot),
    (b"external_annotations\"", JsonKind::Snapshot),
    (b"segment_type\"", JsonKind::Snapshot),
    (b"total_size\"", JsonKind::Snapshot),
    // Entries alone, in a list or one a line.
    (b"action\":", JsonKind::Snapshot),
    (b"traceEvents\"", JsonKind::Chrome),
    (b"schemaVersion\"", JsonKind::Chrome),
    (b"deviceProperties\"", JsonKind::Chrome),
    (b"ph\"", JsonKind::Chrome),
];

fn json_kind(bytes: &[u8]) -> Option<JsonKind> {
    let text = bytes.strip_prefix(json::BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii_start();
    match text.first() {
        // `memory_snapshot()` when nothing is held.
        Some(b'[') if text[1..].trim_ascii() == b"]" => return Some(JsonKind::Snapshot),
        Some(b'{' | b'[') => {}
        _ => return None,
    }
    let quotes = text.iter().enumerate().filter(|&(_, &byte)| byte == b'"');
    let mut tails = quotes.map(|(at, _)| &text[at + 1..]);
    let known = |tail: &[u8]| JSON_KEYS.iter().find(|(key, _)| tail.starts_with(key));
    tails.find_map(|tail| known(tail).map(|&(_, kind)| kind))
}

/// Whether gmlake wrote it, of a recording.
fn is_ours(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(512)];
    let has = |words: &[u8]| head.windows(words.len()).any(|part| part == words);
    has(b"name=\"generator\" content=\"gmlake")
        || (has(b"\"schema_version\"") && has(b"\"tool_version\""))
}

/// Files that people have in place of recordings, by how they begin: what they are, and what to do.
const OTHERS: [(&[u8], &str, &str); 25] = [
    (b"BZh", "bzip2, which is not read", "bunzip2 it first, or compress with gzip, xz or zstd"),
    (
        b"\x04\x22M\x18",
        "lz4, which is not read",
        "unlz4 it first, or compress with gzip, xz or zstd",
    ),
    (
        b"version https://git-lfs.github.com/spec",
        "a pointer of Git LFS, not the file itself",
        "git lfs pull fetches it",
    ),
    (
        b"SQLite format 3\0",
        "an SQLite database, such as Nsight Systems exports",
        "Nsight does not record PyTorch's allocator: record a memory snapshot",
    ),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it, and give the files"),
    (b"Rar!", "a RAR archive", "unpack it, and give the files"),
    (b"\x89PNG", PICTURE, RECORD),
    (b"\xff\xd8\xff", PICTURE, RECORD),
    (b"GIF8", PICTURE, RECORD),
    (b"RIFF", "a picture, a sound or a film", RECORD),
    (b"<svg", PICTURE, RECORD),
    (b"%PDF", "a PDF document", RECORD),
    (b"<?xml", "XML", RECORD),
    (b"\x89HDF", "an HDF5 file, such as a checkpoint", RECORD),
    (b"GGUF", "a checkpoint (GGUF)", RECORD),
    (b"\x93NUMPY", "an array of NumPy", RECORD),
    (b"PAR1", "a Parquet table", RECORD),
    (b"ARROW1", "an Arrow table", RECORD),
    (b"\x7fELF", PROGRAM, RECORD),
    (b"MZ", PROGRAM, RECORD),
    (b"\xcf\xfa\xed\xfe", PROGRAM, RECORD),
    (b"\xca\xfe\xba\xbe", PROGRAM, RECORD),
    (b"\0asm", PROGRAM, RECORD),
    (b"#!", "a script", RECORD),
    (b"import ", "a script", RECORD),
];
const PICTURE: &str = "a picture";
const PROGRAM: &str = "a program";
/// What to do with a file that is none of a recorder.
pub(super) const RECORD: &str = "record a memory snapshot with torch.cuda.memory._dump_snapshot";

/// What a file is that is no recording, if we know it.
fn other(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let text = bytes.trim_ascii_start();
    let is_tar = bytes.get(257..262) == Some(b"ustar");
    // Times and sizes, or events, of the profiler's timeline.
    let dense: Vec<u8> =
        text.iter().take(64).copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let is_timeline = dense.starts_with(b"[[") && dense.get(2).is_some_and(u8::is_ascii_digit);
    let is_page = text.starts_with(b"<");
    let head = &text[..text.len().min(64 << 10)];
    let has = |words: &[u8]| head.windows(words.len()).any(|part| part == words);
    if is_ours(bytes) {
        return Some(("what gmlake wrote about a recording", "give the recording itself"));
    }
    if is_tar {
        return Some(("a tar archive", "unpack it into a folder, and give the folder"));
    }
    if is_timeline || (is_page && has(b"data:image/png;base64")) {
        let what = "the output of export_memory_timeline, which has sums and no allocations";
        return Some((what, RECORD));
    }
    // Tensors of safetensors: a length, and a JSON object of names.
    let is_safe = bytes.get(8) == Some(&b'{') && has(b"\"data_offsets\"");
    if is_safe {
        return Some(("a checkpoint (safetensors)", RECORD));
    }
    if head.starts_with(b"{'") {
        let remedy = "write it with json.dump(snapshot, file) or pickle.dump(snapshot, file)";
        return Some(("Python's repr of a dict", remedy));
    }
    if text.starts_with(b"{") && has(b"allocated_bytes.all.") {
        let remedy = "it has sums and no allocations: record a memory snapshot";
        return Some(("torch.cuda.memory_stats()", remedy));
    }
    let known = OTHERS.iter().find(|(beginning, ..)| bytes.starts_with(beginning));
    known.map(|&(_, what, remedy)| (what, remedy))
}

/// How a file begins of which nothing else is known: as text, or as bytes.
fn beginning(head: &[u8]) -> String {
    let is_text = head.utf8_chunks().next().is_some_and(|chunk| {
        let is_cut = chunk.valid().len() + 3 >= head.len();
        is_cut && !chunk.valid().contains(|c: char| c.is_control() && !c.is_whitespace())
    });
    match is_text {
        true => format!("it begins with \"{}\"", excerpt(head)),
        false => {
            let bytes: Vec<String> = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("binary data that begin with the bytes {}", bytes.join(" "))
        }
    }
}

fn unknown(bytes: &[u8]) -> TraceError {
    let is_output = is_ours(bytes) || bytes.starts_with(b"<svg");
    if !is_output && let Some(text) = text::find(bytes) {
        return TraceError::of_text(text);
    }
    if let Some((what, remedy)) = other(bytes) {
        return TraceError::new(Position::File, format!("is no trace: {what}"), remedy);
    }
    let what = match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "a text in UTF-16: save it in UTF-8".to_owned(),
        [b'<', ..] => "a web page without a snapshot in it".to_owned(),
        [b'{' | b'[', ..] => "JSON, but neither a snapshot nor a profiler's trace".to_owned(),
        bytes if bytes.iter().take(64).all(|&byte| byte == 0) => "zeros".to_owned(),
        bytes => beginning(&bytes[..bytes.len().min(16)]),
    };
    let names: Vec<&str> = TraceFormat::ALL.iter().map(|format| format.name).collect();
    let remedy = format!("formats are: {}", names.join(", "));
    TraceError::new(Position::File, format!("is no trace: {what}"), &remedy)
}
