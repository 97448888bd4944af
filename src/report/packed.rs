//! Packed: a writer that compresses, if the name of its file says so.
//!
//! Readers tell gzip, zstd and xz by their content; for a file that is to be written, the name is all there is.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;

/// The presets that the tools `gzip`, `xz` and `zstd` take themselves.
const GZIP_LEVEL: u32 = 6;
const XZ_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;

/// A writer in front of another one.
pub(crate) enum Packed<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Xz(Box<XzEncoder<W>>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

impl<W: Write> Packed<W> {
    /// Compresses what goes to `out`, if `name` ends in `.gz`, `.xz` or `.zst`.
    pub(crate) fn new(name: &Path, out: W) -> io::Result<Self> {
        Ok(match name.extension().and_then(OsStr::to_str) {
            Some("gz") => Self::Gzip(GzEncoder::new(out, flate2::Compression::new(GZIP_LEVEL))),
            Some("xz") => Self::Xz(Box::new(XzEncoder::new(out, XZ_LEVEL))),
            Some("zst") => Self::Zstd(zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?),
            _ => Self::Plain(out),
        })
    }

    /// Writes what is still kept back.
    pub(crate) fn finish(self) -> io::Result<()> {
        let mut out = match self {
            Self::Plain(out) => out,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Xz(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        };
        out.flush()
    }

    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Gzip(encoder) => encoder,
            Self::Xz(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
        }
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}
