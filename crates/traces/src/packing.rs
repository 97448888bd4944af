//! Packing: how a file is compressed, by its first bytes, never by its name.

use std::io::{self, BufRead, Read};

use super::{Position, TraceError};
use gmlake_core::units::MIB;

/// The kinds of compression that are unpacked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Zstd,
    Xz,
}

/// An xz file may ask for this much memory to be decompressed with.
const XZ_MEMORY: u64 = 512 * MIB;

impl Packing {
    pub(super) fn detect(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            _ => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
        }
    }

    pub(super) fn decoder<'b>(self, packed: impl BufRead + 'b) -> io::Result<Box<dyn Read + 'b>> {
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

    #[cold]
    pub(super) fn damaged(self, error: &io::Error) -> TraceError {
        let problem = format!("{} data is damaged: {error}", self.name());
        TraceError::new(Position::File, problem, "copy the file again, or record it again")
    }
}
