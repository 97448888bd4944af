//! Remote files: `s3://bucket/key` and its like, wherever a command takes a file.
//!
//! ```text
//!   s3://bucket/run-1/*.pickle
//!   ─┬   ──┬─── ──────┬───────
//!  scheme place      key          one line of SCHEMES says how a text is cut, and who opens the place
//!
//!   list(url) ──▶ names, sizes, versions ┐
//!   fetch(url) ─▶ bytes, part by part    ┴──▶ Store: bucket (s3, gs, az), hub (hf), web (http, https)
//!                                                └──▶ wire: one request, tried again if the network failed
//! ```
//!
//! Both functions block, and may be called from many threads at once: each transfer runs in the thread that asked for
//! it.

mod address;
#[cfg(feature = "remote")]
mod bucket;
#[cfg(feature = "remote")]
mod cause;
mod error;
#[cfg(feature = "remote")]
mod hub;
#[cfg(feature = "remote")]
mod parts;
#[cfg(not(feature = "remote"))]
mod parts {
    //! Refuses: built without remote files.

    use super::{Bytes, RemoteError, RemoteFile};

    pub(super) fn fetch(url: &str, _: Bytes) -> Result<Vec<u8>, RemoteError> {
        Err(RemoteError::not_built(url))
    }

    pub(super) fn list(url: &str, _: bool) -> Result<Vec<RemoteFile>, RemoteError> {
        Err(RemoteError::not_built(url))
    }
}
#[cfg(feature = "remote")]
mod schemes;
#[cfg(feature = "remote")]
mod store;
#[cfg(feature = "remote")]
mod web;
#[cfg(feature = "remote")]
mod wire;

pub use address::{is_many, is_remote, shown};
pub use error::RemoteError;

use std::time::SystemTime;

use gmlake_core::units::Bytes;

/// A remote file, as a listing tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// Where it is: what [`fetch`] takes.
    pub url: String,
    /// Its size in bytes, as it is stored.
    pub size: Bytes,
    /// What changes when the content does: the entity tag, or the time of the last change. Empty if the server says
    /// neither.
    pub version: String,
    /// When it was last changed, if a bucket says so.
    pub changed: Option<SystemTime>,
}

/// The content of a remote file, of at most `max_bytes`. A larger one is refused before it is read.
///
/// # Errors
/// If it is not there, may not be read, is too large, or the network fails again and again; in a build without remote
/// files always.
pub fn fetch(url: &str, max_bytes: Bytes) -> Result<Vec<u8>, RemoteError> {
    parts::fetch(url, max_bytes)
}

/// The files that a URL stands for, in order of their names: those in a folder (`s3://bucket/folder/`), those that a
/// pattern fits (`*` and `?` within one name, `**` over folders), or the one file of that name.
///
/// # Errors
/// As [`fetch`], and for folders and patterns of a web server, which has no listings.
pub fn list(url: &str) -> Result<Vec<RemoteFile>, RemoteError> {
    parts::list(url, false)
}

/// The same, and of a folder also the files in all folders below it.
///
/// # Errors
/// As [`list`].
pub fn list_below(url: &str) -> Result<Vec<RemoteFile>, RemoteError> {
    parts::list(url, true)
}
