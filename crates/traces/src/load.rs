//! Load: from a file or standard input to the records of each device. What is compressed is decompressed.
//!
//! A plain file is read as long as it was when it was opened: should somebody cut it short meanwhile, that is an error
//! of this file. One that is larger than half of the machine's memory is copied to a temporary file, and the copy is
//! mapped, so that the kernel brings in what the readers touch. The file itself is never mapped, since to cut a mapped
//! file short ends the program. gzip, zstd and xz are recognised by their first bytes, never by the name.
//!
//! A few bytes can decompress to any length, and a stream need not end. So whatever must be held in memory is looked at
//! chunk by chunk: the first must begin like one of our formats, none may be one byte a million times over, the ratio
//! must stay within reason, and the sum within [`LoadOptions::max_bytes`](super::LoadOptions) and half of the machine's
//! memory.
//!
//! ```text
//!   plain file ────────────────────────────────────────▶ held, or copied and mapped: any length up to max_bytes
//!   packed file, pipe, device ──first block──▶ format? ──▶ held      at once refused, or read to its end
//! ```

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::num::NonZeroUsize;
use std::path::Path;

use super::actions::{gives_back, ran_out};
use super::both::halves;
use super::format::TraceFormat;
use super::options::LoadOptions;
use super::packing::Packing;
use super::room::{self, MAX_RATIO};
use super::{Position, Records, Result, TraceError, empty, several, text, wrapped};
use gmlake_core::units::{Bytes, Count, Grouped, MIB, Size};

/// Reads a file in any of our formats, plain or compressed: one [`Records`] for each device that has entries or
/// segments, in order of device. `-` is standard input.
///
/// # Errors
/// If the file cannot be read, is in none of our formats, or is damaged.
pub fn load(path: &Path, options: &LoadOptions) -> Result<Vec<Records>> {
    let records = Input::open(path, options).and_then(|input| input.records(options));
    records.map_err(|error| error.in_file(path))
}

/// Like [`load`], from the content of a file, plain or compressed.
///
/// # Errors
/// As [`load`], with `-` for the path.
pub fn load_bytes(bytes: &[u8], options: &LoadOptions) -> Result<Vec<Records>> {
    Input::from_bytes(bytes, options)?.records(options)
}

/// The content of a file, decompressed if it is compressed.
///
/// # Errors
/// If it is damaged, or larger than the limit of `options`.
pub fn unpack(bytes: &[u8], options: &LoadOptions) -> Result<Vec<u8>> {
    Ok(Input::from_bytes(bytes, options)?.bytes().to_vec())
}

/// The records of `device`, or of the only device with entries, without requests that hold nothing. If no device has
/// entries, but some have segments, it is one of those: a state without a history.
///
/// # Errors
/// If there are no entries and no segments at all, none of that device, or several devices have some and none was
/// chosen.
pub fn choose_device(records: Vec<Records>, device: Option<u32>, path: &Path) -> Result<Records> {
    let fail = |problem: String, remedy: &str| {
        Err(TraceError::new(Position::File, problem, remedy).in_file(path))
    };
    let (mut recorded, mut states): (Vec<Records>, Vec<Records>) =
        records.into_iter().partition(|device| !device.entries.is_empty());
    states.retain(|device| !device.segments.is_empty());
    if recorded.is_empty() {
        recorded = states;
    }
    if recorded.is_empty() {
        return fail(
            "no events: recording was never enabled, or was stopped before the snapshot".to_owned(),
            "call torch.cuda.memory._record_memory_history(max_entries=sys.maxsize) before the job",
        );
    }
    let found = match device {
        Some(wanted) => recorded.iter().position(|device| device.device == wanted),
        None => (recorded.len() == 1).then_some(0),
    };
    match (found, device) {
        (Some(place), _) => Ok(empty::without(recorded.swap_remove(place))),
        (None, Some(wanted)) => {
            let problem =
                format!("no {} of device {wanted}, only of {}", what(&recorded), list(&recorded));
            fail(problem, "choose one of these with --device")
        }
        (None, None) => {
            let problem = format!("{} of several devices: {}", what(&recorded), list(&recorded));
            fail(problem, "choose one of them with --device")
        }
    }
}

/// What a file has of its devices.
fn what(records: &[Records]) -> &'static str {
    let has_entries = records.iter().any(|device| !device.entries.is_empty());
    if has_entries { "events" } else { "segments, and no events," }
}

/// `device 0 (12 entries), device 3 (5 entries)`.
fn list(records: &[Records]) -> String {
    let one = |device: &Records| {
        let count = match device.entries.len() as u64 {
            0 => Count(device.segments.len() as u64, "segment").to_string(),
            1 => "1 entry".to_owned(),
            entries => format!("{} entries", Grouped(entries)),
        };
        format!("device {} ({count})", device.device)
    };
    records.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The content of a trace file.
struct Input<'a> {
    content: Content<'a>,
    /// Bytes in the file or stream, as they were before they were decompressed.
    packed: Bytes,
}

enum Content<'a> {
    Borrowed(&'a [u8]),
    Mapped(memmap2::Mmap),
    Held(Vec<u8>),
}

impl Input<'static> {
    /// Opens a file, local or remote, or standard input for `-`.
    fn open(path: &Path, options: &LoadOptions) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Self::stream(io::stdin().lock(), options);
        }
        if gmlake_remote::is_remote(path) {
            let most = options.max_bytes.min(room::to_hold());
            return Self::fetched(gmlake_remote::fetch(&path.to_string_lossy(), most)?, options);
        }
        let file = File::open(path).map_err(|error| cannot_read(&error))?;
        let about = file.metadata().map_err(|error| cannot_read(&error))?;
        if about.is_dir() {
            return Err(fail("is a directory", "name one of the files in it"));
        }
        if !about.is_file() {
            return Self::stream(file, options);
        }
        if about.len() == 0 {
            return Err(empty());
        }
        check_size(about.len(), options.max_bytes)?;
        Self::file(file, about.len(), room::to_hold(), options)
    }

    /// Takes a regular file that was this long when it was opened. Up to `most` bytes are held.
    fn file(mut file: File, len: Bytes, most: Bytes, options: &LoadOptions) -> Result<Self> {
        let mut reader = BufReader::new(Promised { reader: &file, left: len });
        let packing = Packing::detect(reader.fill_buf().map_err(|error| cannot_read(&error))?);
        if packing.is_some() {
            return Self::held(reader, packing, options);
        }
        file.rewind().map_err(|error| cannot_read(&error))?;
        if len > most {
            return Ok(Self { content: Content::Mapped(copied(file, len)?), packed: len });
        }
        let mut bytes = vec![0; len as usize];
        let read = halves(&mut bytes, |begin, part| read_part(&file, part, begin));
        let read: io::Result<()> = read.into_iter().collect();
        read.map_err(|error| cannot_read(&error))?;
        Ok(Self { content: Content::Held(bytes), packed: len })
    }

    /// Takes a whole object that was fetched.
    fn fetched(bytes: Vec<u8>, options: &LoadOptions) -> Result<Self> {
        match Packing::detect(&bytes) {
            _ if bytes.is_empty() => Err(empty()),
            Some(packing) => Self::held(&bytes[..], Some(packing), options),
            None => Ok(Self { packed: bytes.len() as Bytes, content: Content::Held(bytes) }),
        }
    }

    /// Reads what comes from a pipe or a device to its end, if it begins like a trace.
    fn stream(reader: impl Read, options: &LoadOptions) -> Result<Self> {
        let mut reader = BufReader::new(reader);
        let mut first = Vec::new();
        let block = reader.by_ref().take(BLOCK).read_to_end(&mut first);
        block.map_err(|error| cannot_read(&error))?;
        let packing = Packing::detect(&first);
        Self::held(first.chain(reader), packing, options)
    }

    /// Holds a content in memory, decompressed.
    fn held(reader: impl BufRead, packing: Option<Packing>, options: &LoadOptions) -> Result<Self> {
        let packed = Cell::new(0);
        let reader = Counted { reader, read: &packed };
        let holding = Holding { packing, packed: &packed, options, most: room::to_hold() };
        let held = match packing {
            None => holding.read(reader)?,
            Some(kind) => {
                let decoder = kind.decoder(reader).map_err(|error| kind.damaged(&error))?;
                holding.read(decoder)?
            }
        };
        Ok(Self { content: Content::Held(held), packed: packed.get() })
    }
}

impl<'a> Input<'a> {
    /// The content of a file that is in memory already.
    fn from_bytes(bytes: &'a [u8], options: &LoadOptions) -> Result<Self> {
        if bytes.is_empty() {
            return Err(empty());
        }
        check_size(bytes.len() as Bytes, options.max_bytes)?;
        match Packing::detect(bytes) {
            Some(packing) => Input::held(bytes, Some(packing), options),
            None => Ok(Self { content: Content::Borrowed(bytes), packed: bytes.len() as Bytes }),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Borrowed(bytes) => bytes,
            Content::Mapped(mapped) => mapped,
            Content::Held(bytes) => bytes,
        }
    }

    /// What the content says.
    fn records(&self, options: &LoadOptions) -> Result<Vec<Records>> {
        let content = wrapped::unwrapped(self.bytes())?;
        let bytes = content.as_deref().unwrap_or(self.bytes());
        if let Some(packing) = Packing::detect(bytes).filter(|_| content.is_some()) {
            let inner = Input::held(bytes, Some(packing), options)?;
            return inner.records(options);
        }
        let room = room::to_read(bytes.len() as Bytes, self.packed);
        // Where memory ran out, the stacks say by which line; where it was given back, by whom.
        let of_flushes = options.stacks_of_flushes && gives_back(bytes);
        let stacks = options.stacks || of_flushes || ran_out(bytes);
        let options = LoadOptions { stacks, ..options.clone() };
        let format = TraceFormat::detect(bytes).map_err(|error| match (&content, &error.text) {
            (Some(_), None) => wrapped::without(self.bytes()),
            _ => error,
        })?;
        match options.snapshot.map_or(1, NonZeroUsize::get) {
            number if number > 1 && !format.is_snapshot() => Err(several::beyond(number, 1)),
            _ => (format.read)(bytes, &options, room),
        }
    }
}

/// A file of which a length is promised; no more of it is read.
struct Promised<R> {
    reader: R,
    left: Bytes,
}

/// Reads a part of a file, from `begin` on.
fn read_part(file: &File, part: &mut [u8], begin: usize) -> io::Result<()> {
    let mut done = 0;
    while done < part.len() {
        match read_at(file, &mut part[done..], (begin + done) as u64) {
            Ok(0) => return Err(io::Error::other(SHRANK)),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn read_at(file: &File, part: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, part, at)
}

#[cfg(windows)]
fn read_at(file: &File, part: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, part, at)
}

/// What is said of a file that does not keep its promise.
const SHRANK: &str = "it became shorter while it was read";

impl<R: Read> Read for Promised<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.reader.read(&mut out[..most])?;
        if count == 0 && most > 0 {
            return Err(io::Error::other(SHRANK));
        }
        self.left -= count as Bytes;
        Ok(count)
    }
}

/// Counts the bytes that are read.
struct Counted<'c, R> {
    reader: R,
    read: &'c Cell<Bytes>,
}

impl<R: BufRead> Read for Counted<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(out)?;
        self.read.set(self.read.get() + count as Bytes);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.reader.consume(count);
        self.read.set(self.read.get() + count as Bytes);
    }
}

/// Whether a file holds what a recorder wrote, plain or compressed, by its beginning. Nobody can make it again, so one
/// whose content cannot be told, since it does not decompress, counts. CSV is written by hand, and does not.
pub fn is_recording(path: &Path) -> bool {
    let Ok(mut reader) = File::open(path).map(BufReader::new) else { return false };
    let Ok(packing) = reader.fill_buf().map(Packing::detect) else { return false };
    let mut head = Vec::new();
    let read = match packing {
        Some(kind) => kind.decoder(reader).and_then(|it| it.take(BLOCK).read_to_end(&mut head)),
        None => reader.take(BLOCK).read_to_end(&mut head),
    };
    let is_lost = packing.is_some() && read.is_err() && head.is_empty();
    is_lost || TraceFormat::detect(&head).is_ok_and(|format| !format.is_table())
}

/// What is looked at before more is read.
const BLOCK: Bytes = 64 << 10;
/// Bytes between two later looks at them.
const CHUNK: Bytes = MIB;
/// From this size on, [`MAX_RATIO`] holds.
const RATIO_MATTERS: Bytes = 256 * MIB;

/// A content on its way into memory.
struct Holding<'h> {
    packing: Option<Packing>,
    /// Bytes that were read of the file or stream so far.
    packed: &'h Cell<Bytes>,
    options: &'h LoadOptions,
    /// The most that is held, whatever the options say.
    most: Bytes,
}

impl Holding<'_> {
    fn read(&self, mut reader: impl Read) -> Result<Vec<u8>> {
        let mut is_log = false;
        let failed = |error: io::Error| match self.packing {
            Some(packing) => packing.damaged(&error),
            None => cannot_read(&error),
        };
        let mut out = Vec::new();
        loop {
            let before = out.len();
            let wanted = if before == 0 { BLOCK } else { CHUNK };
            let read = reader.by_ref().take(wanted).read_to_end(&mut out);
            let count = match read {
                // What was decompressed so far is read as the beginning of a file.
                Err(error) if self.is_cut(&error, &out) => return Ok(out),
                read => read.map_err(failed)?,
            };
            match (count, before) {
                (0, 0) => return Err(empty()),
                (0, _) => return Ok(out),
                (_, 0) => is_log = self.check_beginning(&out)?,
                _ => {}
            }
            if is_log && out.len() >= text::MOST && !wrapped::begins(&out) {
                // Its format is asked for again, and none is found.
                return Ok(out);
            }
            self.check_size(out.len() as Bytes)?;
            self.check_bomb(&out, before)?;
        }
    }

    /// A content of none of our formats ends here, however long it is; unless it may be a log, which says in its last
    /// lines that memory ran out. Returns whether it may be one.
    fn check_beginning(&self, first: &[u8]) -> Result<bool> {
        let goes_on = first.len() as Bytes == BLOCK;
        match TraceFormat::detect(first) {
            Ok(format) if goes_on => format.check_beginning(first, self.options).map(|()| false),
            Ok(_) => Ok(false),
            Err(_) if goes_on && text::is_text(first) || wrapped::begins(first) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether compressed data end too early, in a format of which a part can be read.
    fn is_cut(&self, error: &io::Error, out: &[u8]) -> bool {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof && self.packing.is_some();
        is_end && TraceFormat::detect(out).is_ok_and(TraceFormat::is_snapshot)
    }

    fn check_size(&self, size: Bytes) -> Result<()> {
        check_size(size, self.options.max_bytes)?;
        if size <= self.most {
            return Ok(());
        }
        let problem = format!("is more than half of this machine's memory, {}", Size(self.most));
        Err(fail(&problem, "give it as a plain file, which need not be held in memory"))
    }

    fn check_bomb(&self, out: &[u8], before: usize) -> Result<()> {
        let Some(packing) = self.packing else { return Ok(()) };
        let (chunk, total, packed) = (&out[before..], out.len() as Bytes, self.packed.get());
        let is_run = chunk.len() as Bytes == CHUNK && chunk[1..] == chunk[..chunk.len() - 1];
        let is_extreme = total > RATIO_MATTERS && total / MAX_RATIO > packed;
        if !is_run && !is_extreme {
            return Ok(());
        }
        let (name, size) = (packing.name(), Size(packed));
        let what = if is_run { "of one repeated byte" } else { "and more" };
        let problem = format!("{size} of {name} data decompress to {} {what}", Size(total));
        Err(fail(&problem, "this is no recording but a decompression bomb"))
    }
}

/// A copy of a file of this length on a disk, mapped. It has no name, and goes with the program.
#[allow(unsafe_code)]
fn copied(file: File, len: Bytes) -> Result<memmap2::Mmap> {
    let folder = std::env::temp_dir();
    let failed = |error: io::Error| {
        let problem = format!(
            "is more than half of this machine's memory, {}, and cannot be copied to {}: {error}",
            Size(len),
            folder.display()
        );
        fail(&problem, "name a folder with that much space in TMPDIR")
    };
    let mut copy = tempfile::tempfile_in(&folder).map_err(failed)?;
    if io::copy(&mut file.take(len), &mut copy).map_err(failed)? < len {
        return Err(cannot_read(&io::Error::other(SHRANK)));
    }
    // SAFETY: the mapping is private and only read, and `Input` owns it, so that no reference to the bytes outlives it.
    // Nobody changes the bytes or cuts the file short: it has no name, and `copy` is closed here.
    unsafe { memmap2::Mmap::map(&copy) }.map_err(failed)
}

fn check_size(size: Bytes, max_bytes: Bytes) -> Result<()> {
    if size <= max_bytes {
        return Ok(());
    }
    let problem = format!("content above the limit of {}", Size(max_bytes));
    Err(fail(&problem, "raise it with --max-input, or record fewer events (max_entries)"))
}

fn cannot_read(error: &io::Error) -> TraceError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check the permissions",
        _ if error.to_string() == SHRANK => "wait until it is complete, and try again",
        _ => "check the file",
    };
    fail(&format!("cannot be read: {error}"), remedy)
}

fn empty() -> TraceError {
    fail("is empty", "was the recording interrupted?")
}

fn fail(problem: &str, remedy: &str) -> TraceError {
    TraceError::new(Position::File, problem, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are fewer than the file had when it was opened.
    fn open(bytes: &[u8], promised: Bytes) -> Result<Vec<u8>> {
        open_holding(bytes, promised, Bytes::MAX)
    }

    /// The same, where no more than this is held.
    fn open_holding(bytes: &[u8], promised: Bytes, most: Bytes) -> Result<Vec<u8>> {
        let input = Input::file(file(bytes), promised, most, &LoadOptions::default())?;
        assert_eq!(matches!(input.content, Content::Mapped(_)), most < promised);
        Ok(input.bytes().to_vec())
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_and_one_that_grew_is_what_it_was() {
        let bytes = vec![b'x'; 100_000];
        for most in [Bytes::MAX, 1000] {
            assert_eq!(open_holding(&bytes, 100_000, most), Ok(bytes.clone()));
            assert_eq!(open_holding(&bytes, 70_000, most), Ok(bytes[..70_000].to_vec()));
            let error = open_holding(&bytes, 100_001, most).unwrap_err();
            assert!(error.problem.contains(SHRANK) && error.remedy.contains("wait"), "{error}");
        }
        let csv = b"event,id,size\nalloc,a,5\n".repeat(1000);
        let mut packed = Vec::new();
        let encoder = flate2::bufread::GzEncoder::new(&csv[..], flate2::Compression::fast());
        { encoder }.read_to_end(&mut packed).unwrap();
        assert_eq!(open(&packed, packed.len() as Bytes), Ok(csv));
        let error = open(&packed[..packed.len() / 2], packed.len() as Bytes).unwrap_err();
        assert!(error.problem.contains(SHRANK), "{error}");
    }

    #[test]
    fn a_file_that_is_cut_short_while_it_is_looked_at_stays_what_it_was() {
        let bytes = vec![b'x'; 100_000];
        for most in [Bytes::MAX, 1000] {
            let file = file(&bytes);
            let twin = file.try_clone().unwrap();
            let input = Input::file(file, 100_000, most, &LoadOptions::default()).unwrap();
            twin.set_len(0).unwrap();
            assert_eq!(input.bytes(), bytes);
        }
    }

    #[test]
    fn memory_ran_out_where_oom_is_a_whole_text() {
        for (bytes, has) in [
            (&b"\x8c\x06action\x8c\x03oom"[..], true),
            (b"X\x03\0\0\0oomq\x05", true),
            (br#"{"action": "oom"}"#, true),
            (b"\x8c\x08zoom_out\x8c\x05bloom", false),
            (b"oom", false),
            (b"", false),
        ] {
            assert_eq!(ran_out(bytes), has, "{bytes:?}");
        }
    }
}
