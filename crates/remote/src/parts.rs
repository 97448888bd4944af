//! Parts: a file in pieces that are asked for one after the other, and the files that a folder or a pattern stands for.
//!
//! A piece that does not come in full is asked for again, alone. All pieces must be of one version.

use super::address::has_wildcard;
use super::cause::{Cause, Failure};
use super::schemes::{Located, locate};
use super::store::{Entry, Part, Store};
use super::{RemoteError, RemoteFile};
use gmlake_core::units::{Bytes, MIB};

/// Large enough that asking costs little, small enough that asking again does.
const PART: Bytes = 32 * MIB;

pub(super) fn fetch(url: &str, max_bytes: Bytes) -> Result<Vec<u8>, RemoteError> {
    let at = locate(url)?;
    if at.is_folder() {
        let remedy = "name one of the files in it, or compare them as a job";
        return Err(RemoteError::new(url, "is a folder", remedy));
    }
    let read = read(&*at.store, at.key, PART, max_bytes);
    read.map_err(|failure| failure.of(url, &at.store.access()))
}

fn read(store: &dyn Store, key: &str, step: Bytes, limit: Bytes) -> Result<Vec<u8>, Failure> {
    let first = start(store, key, step, limit)?;
    let (size, version) = (first.size, first.version);
    if size > limit {
        return Err(Cause::TooLarge { size, limit }.into());
    }
    let mut bytes = first.bytes;
    bytes.reserve_exact(size as usize - bytes.len().min(size as usize));
    while (bytes.len() as Bytes) < size {
        let from = bytes.len() as Bytes;
        let part = store.part(key, from..size.min(from + step), &version, limit)?;
        if part.version != version || part.size != size || part.start > from {
            return Err(Cause::Changed.into());
        }
        if part.bytes.is_empty() {
            return Err(Cause::Broken { got: from, of: Some(size) }.into());
        }
        bytes.truncate(part.start as usize);
        bytes.extend_from_slice(&part.bytes);
    }
    Ok(bytes)
}

/// The first part. Of an empty file there is none, which servers say as a refusal.
fn start(store: &dyn Store, key: &str, step: Bytes, limit: Bytes) -> Result<Part, Failure> {
    match store.part(key, 0..step, "", limit) {
        Err(Failure { cause: Cause::Status { code: 416, .. }, .. }) => {
            Ok(Part { start: 0, bytes: Vec::new(), size: 0, version: String::new(), changed: None })
        }
        other => other,
    }
}

/// The files of a folder, with those below it if `is_deep`, or of a pattern, or the one file.
pub(super) fn list(url: &str, is_deep: bool) -> Result<Vec<RemoteFile>, RemoteError> {
    let at = locate(url)?;
    let in_words = |failure: Failure| failure.of(url, &at.store.access());
    let file = |entry: Entry| RemoteFile {
        url: format!("{}{}", at.before, entry.key),
        size: entry.size,
        version: entry.version,
        changed: entry.changed,
    };
    if !at.is_folder() && !has_wildcard(at.scheme, at.key) {
        let Part { size, version, changed, .. } =
            start(&*at.store, at.key, 1, Bytes::MAX).map_err(in_words)?;
        return Ok(vec![file(Entry { key: at.key.to_owned(), size, version, changed })]);
    }
    let (folder, pattern) = search(at.scheme, at.key);
    let fits = match pattern {
        "" => None,
        _ => Some(glob::Pattern::new(at.key).map_err(|error| {
            RemoteError::new(url, format!("not a pattern: {}", error.msg), "check its brackets")
        })?),
    };
    let is_deep = pattern.contains('/') || pattern.contains("**") || is_deep && pattern.is_empty();
    let mut entries = at.store.files(folder, is_deep).map_err(in_words)?;
    let options =
        glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    entries.retain(|entry| {
        let fits = fits.as_ref().is_none_or(|fits| fits.matches_with(&entry.key, options));
        fits && !entry.key.ends_with('/')
    });
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(entries.into_iter().map(file).collect())
}

/// The folder to list, and what is to be sought in it: `a/b/` and `*.pickle` of `a/b/*.pickle`.
fn search<'k>(scheme: &str, key: &'k str) -> (&'k str, &'k str) {
    let mut folder = 0;
    for name in key.split_inclusive('/') {
        if !name.ends_with('/') || has_wildcard(scheme, name) {
            break;
        }
        folder += name.len();
    }
    key.split_at(folder)
}

impl Located<'_> {
    fn is_folder(&self) -> bool {
        self.key.is_empty() && self.scheme != "http" && self.scheme != "https"
            || self.key.ends_with('/')
    }
}
