//! The port to a place with remote files: read a part of one, list a folder.

use std::ops::Range;
use std::time::SystemTime;

use super::cause::Failure;
use gmlake_core::units::Bytes;

/// Part of a file.
#[derive(Debug)]
pub(super) struct Part {
    /// Where it begins: where it was asked for, or at 0 if the server knows no parts and sent all.
    pub(super) start: Bytes,
    pub(super) bytes: Vec<u8>,
    /// Size of the whole file.
    pub(super) size: Bytes,
    /// See [`RemoteFile`](super::RemoteFile).
    pub(super) version: String,
    pub(super) changed: Option<SystemTime>,
}

/// A file in a listing.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) size: Bytes,
    pub(super) version: String,
    pub(super) changed: Option<SystemTime>,
}

/// A bucket, a repository, or the web.
pub(super) trait Store: Send + Sync {
    /// Part of a file; if not of version `version`, a failure. `limit`: the largest answer, should all of it come.
    fn part(
        &self,
        key: &str,
        range: Range<Bytes>,
        version: &str,
        limit: Bytes,
    ) -> Result<Part, Failure>;

    /// The files in a folder (`""`, or a name that ends in `/`), and if it is `deep` in those below it.
    fn files(&self, folder: &str, is_deep: bool) -> Result<Vec<Entry>, Failure>;

    /// What to do if access is denied.
    fn access(&self) -> String;
}
