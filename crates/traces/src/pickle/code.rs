//! The code: the bytes of a pickle, read from front to back.

use super::super::{Position, TraceError};

/// A result that is one word long where it is good: the machine makes millions of them.
pub(super) type Fallible<T> = Result<T, Box<TraceError>>;

/// What is said of a pickle without its end.
pub(super) const ENDS: &str = "the pickle ends in the middle";

/// A pickle's bytes, and how far they are read.
pub(super) struct Code<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Code<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Fallible<u8> {
        let Some(&byte) = self.bytes.get(self.at) else { return Err(self.truncated()) };
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Fallible<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else { return Err(self.truncated()) };
        self.at += len;
        Ok(taken)
    }

    /// A little-endian number of `N` bytes, at most 8.
    #[inline]
    pub(super) fn number<const N: usize>(&mut self) -> Fallible<u64> {
        let mut wide = [0; 8];
        wide[..N].copy_from_slice(self.take(N)?);
        Ok(u64::from_le_bytes(wide))
    }

    #[cold]
    pub(super) fn truncated(&self) -> Box<TraceError> {
        let remedy = "copy the file again, or record it again";
        self.fail(self.bytes.len(), ENDS, remedy)
    }

    #[cold]
    pub(super) fn damaged(&self, problem: impl Into<String>) -> Box<TraceError> {
        self.fail(self.at.saturating_sub(1), problem, "the pickle is damaged: record it again")
    }

    #[cold]
    pub(super) fn fail(
        &self,
        at: usize,
        problem: impl Into<String>,
        remedy: &str,
    ) -> Box<TraceError> {
        Box::new(TraceError::new(Position::Byte(at as u64), problem, remedy))
    }
}
