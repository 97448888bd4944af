//! Input: the content of a file or of standard input, decompressed if it is compressed.
//!
//! A plain file is mapped, not read: the readers want a slice, and the kernel brings in what they touch. gzip, zstd and
//! xz are recognised by their first bytes, never by the name.
//!
//! A few bytes can decompress to any length, so every chunk is looked at before the next one is made: the first must
//! begin like one of our formats, none may be one byte a million times over, the ratio must stay within reason, and the
//! sum within [`LoadOptions::max_bytes`](super::LoadOptions).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::format::TraceFormat;
use super::{Position, TraceError};
use crate::remote;
use crate::units::{Bytes, MIB, Size};

/// The content of a trace file.
pub(super) enum Input<'a> {
    Borrowed(&'a [u8]),
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Input<'static> {
    /// Opens a file, local or remote, or standard input for `-`.
    pub(super) fn open(path: &Path, max_bytes: Bytes) -> Result<Self, TraceError> {
        if path.as_os_str() == "-" {
            return read_all(io::stdin().lock(), max_bytes)?.unpacked(max_bytes);
        }
        if remote::is_remote(path) {
            let bytes = remote::fetch(&path.to_string_lossy(), max_bytes)?;
            return match bytes.is_empty() {
                true => Err(empty()),
                false => Input::Owned(bytes).unpacked(max_bytes),
            };
        }
        let file = File::open(path).map_err(|error| cannot_read(&error))?;
        let about = file.metadata().map_err(|error| cannot_read(&error))?;
        if about.is_dir() {
            return Err(fail("is a directory", "name one of the files in it"));
        }
        if !about.is_file() {
            return read_all(file, max_bytes)?.unpacked(max_bytes);
        }
        if about.len() == 0 {
            return Err(empty());
        }
        check_size(about.len(), max_bytes)?;
        match map(&file) {
            Ok(mapped) => Input::Mapped(mapped).unpacked(max_bytes),
            // Some file systems cannot map.
            Err(_) => read_all(file, max_bytes)?.unpacked(max_bytes),
        }
    }

    fn unpacked(self, max_bytes: Bytes) -> Result<Self, TraceError> {
        let Some(packing) = Packing::detect(self.bytes()) else { return Ok(self) };
        packing.unpack(self.bytes(), max_bytes).map(Input::Owned)
    }
}

impl<'a> Input<'a> {
    /// The content of a file that is in memory already.
    pub(super) fn from_bytes(bytes: &'a [u8], max_bytes: Bytes) -> Result<Self, TraceError> {
        if bytes.is_empty() {
            return Err(empty());
        }
        check_size(bytes.len() as u64, max_bytes)?;
        match Packing::detect(bytes) {
            Some(packing) => packing.unpack(bytes, max_bytes).map(Input::Owned),
            None => Ok(Input::Borrowed(bytes)),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Mapped(mapped) => mapped,
            Self::Owned(bytes) => bytes,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstd,
    Xz,
}

/// Decompressed bytes between two looks at them.
const CHUNK: u64 = MIB;
/// An xz file may ask for this much memory to be decompressed with.
const XZ_MEMORY: u64 = 512 * MIB;
/// From this size on, [`MAX_RATIO`] holds.
const RATIO_MATTERS: u64 = 256 * MIB;
/// Our recordings shrink to a 30th; JSON, which repeats every stack, to a 1000th at best.
const MAX_RATIO: u64 = 4000;

impl Packing {
    fn detect(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }

    fn decoder<'b>(self, packed: &'b [u8]) -> io::Result<Box<dyn Read + 'b>> {
        Ok(match self {
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
            Self::Xz => {
                let concatenated = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, concatenated)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(packed, stream))
            }
        })
    }

    fn unpack(self, packed: &[u8], max_bytes: Bytes) -> Result<Vec<u8>, TraceError> {
        let damaged = |error: io::Error| {
            let problem = format!("{} data is damaged: {error}", self.name());
            fail(&problem, "copy the file again, or record it again")
        };
        let mut decoder = self.decoder(packed).map_err(damaged)?;
        let mut out = Vec::new();
        loop {
            let before = out.len();
            decoder.by_ref().take(CHUNK).read_to_end(&mut out).map_err(damaged)?;
            let chunk = &out[before..];
            match (chunk.is_empty(), before) {
                (true, 0) => return Err(empty()),
                (true, _) => return Ok(out),
                (false, 0) => TraceFormat::detect(chunk).map(drop)?,
                (false, _) => {}
            }
            check_size(out.len() as u64, max_bytes)?;
            self.check_bomb(&out, before, packed.len() as u64)?;
        }
    }

    fn check_bomb(self, out: &[u8], before: usize, packed: u64) -> Result<(), TraceError> {
        let (chunk, total) = (&out[before..], out.len() as u64);
        let is_run = chunk.len() as u64 == CHUNK && chunk[1..] == chunk[..chunk.len() - 1];
        let is_extreme = total > RATIO_MATTERS && total / MAX_RATIO > packed;
        if !is_run && !is_extreme {
            return Ok(());
        }
        let (name, size) = (self.name(), Size(packed));
        let what = if is_run { "of one repeated byte" } else { "and more" };
        let problem = format!("{size} of {name} data decompress to {} {what}", Size(total));
        Err(fail(&problem, "this is no recording but a decompression bomb"))
    }
}

/// Maps a file into memory.
#[allow(unsafe_code)]
fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is private and only read, and `Input` owns it, so that no reference to the bytes outlives it.
    // Rust asks that the bytes are not changed meanwhile, which no program can promise for a file: we rely on
    // recordings not being rewritten while they are read. Every byte is checked when it is used, none is trusted from
    // an earlier look; should the file be cut short, the kernel ends the program (SIGBUS).
    unsafe { memmap2::Mmap::map(file) }
}

fn read_all(reader: impl Read, max_bytes: Bytes) -> Result<Input<'static>, TraceError> {
    let mut bytes = Vec::new();
    let mut reader = BufReader::new(reader).take(max_bytes.saturating_add(1));
    reader.read_to_end(&mut bytes).map_err(|error| cannot_read(&error))?;
    if bytes.is_empty() {
        return Err(empty());
    }
    check_size(bytes.len() as u64, max_bytes)?;
    Ok(Input::Owned(bytes))
}

fn check_size(size: Bytes, max_bytes: Bytes) -> Result<(), TraceError> {
    if size <= max_bytes {
        return Ok(());
    }
    let problem = format!("content above the limit of {}", Size(max_bytes));
    Err(fail(&problem, "record fewer events (max_entries), or raise the limit"))
}

fn cannot_read(error: &io::Error) -> TraceError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check the permissions",
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
