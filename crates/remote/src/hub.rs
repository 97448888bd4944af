//! Hugging Face: `hf://datasets/OWNER/NAME/PATH`, `hf://OWNER/NAME/PATH`, and `NAME@REVISION`.
//!
//! ```text
//!   hf://datasets/O/N/a/b.pickle   ENDPOINT/datasets/O/N/resolve/main/a/b.pickle        a file, by a redirect
//!   hf://datasets/O/N/a/           ENDPOINT/api/datasets/O/N/tree/main/a                a listing, page by page
//! ```

use std::env;
use std::ops::Range;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use ureq::http::HeaderMap;

use super::cause::{Cause, Failure};
use super::store::{Entry, Part, Store};
use super::{web, wire};
use gmlake_core::units::{Bytes, MIB};

/// Kinds of repositories that stand before their owner; without one it is a model.
const KINDS: [&str; 2] = ["datasets", "spaces"];
/// What stays as it is in an address.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/');
/// The longest page of a listing.
const PAGE: Bytes = 16 * MIB;

struct Repository {
    endpoint: String,
    /// `datasets/OWNER/NAME`, or `OWNER/NAME`.
    name: String,
    /// The same as the interface for programs has it.
    api_name: String,
    revision: String,
    token: Option<String>,
}

/// The repository, and the path in it.
pub(super) fn cut(rest: &str) -> Option<(&str, &str)> {
    let kind = KINDS.iter().any(|kind| rest.split('/').next() == Some(kind));
    let parts = if kind { 3 } else { 2 };
    let mut slashes = rest.match_indices('/').map(|(at, _)| at);
    let end = slashes.nth(parts - 1)?;
    let place = &rest[..end];
    (!place.split('/').any(str::is_empty)).then_some((place, &rest[end + 1..]))
}

pub(super) fn open(place: &str) -> Result<Arc<dyn Store>, Failure> {
    let said = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
    let (name, revision) = place.split_once('@').unwrap_or((place, "main"));
    let is_model = !KINDS.iter().any(|kind| name.split('/').next() == Some(kind));
    let endpoint = said("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
    let encoded = |text: &str, set| utf8_percent_encode(text, set).to_string();
    let name = encoded(name, PLAIN);
    Ok(Arc::new(Repository {
        endpoint: endpoint.trim_end_matches('/').to_owned(),
        api_name: if is_model { format!("models/{name}") } else { name.clone() },
        name,
        revision: encoded(revision, NON_ALPHANUMERIC),
        token: said("HF_TOKEN"),
    }))
}

impl Repository {
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let bearer = self.token.as_ref().and_then(|token| format!("Bearer {token}").parse().ok());
        if let Some(bearer) = bearer {
            headers.insert("authorization", bearer);
        }
        headers
    }

    /// A page of a listing, and the address of the next.
    fn page(&self, url: &str) -> Result<(Vec<Listed>, Option<String>), Failure> {
        // The token is for the hub, whatever address a page names as the next.
        let is_ours = url.starts_with(&format!("{}/", self.endpoint));
        let headers = if is_ours { self.headers() } else { HeaderMap::new() };
        let answer = wire::send(&web::request(url, headers)?, PAGE, true)?;
        let listed = serde_json::from_slice(answer.body())
            .map_err(|_| Cause::Other("the hub's listing cannot be understood".to_owned()))?;
        let link = answer.headers().get("link").and_then(|value| value.to_str().ok());
        Ok((listed, link.and_then(next_page)))
    }
}

impl Store for Repository {
    fn part(
        &self,
        key: &str,
        range: Range<Bytes>,
        version: &str,
        limit: Bytes,
    ) -> Result<Part, Failure> {
        let Self { endpoint, name, revision, .. } = self;
        let key = utf8_percent_encode(key, PLAIN);
        let url = format!("{endpoint}/{name}/resolve/{revision}/{key}");
        web::get(&url, self.headers(), range, version, limit)
    }

    fn files(&self, folder: &str, is_deep: bool) -> Result<Vec<Entry>, Failure> {
        let Self { endpoint, api_name, revision, .. } = self;
        let folder = utf8_percent_encode(folder.trim_end_matches('/'), PLAIN);
        let url = format!("{endpoint}/api/{api_name}/tree/{revision}/{folder}");
        let url = format!("{}?recursive={is_deep}", url.trim_end_matches('/'));
        let (mut next, mut entries) = (Some(url), Vec::new());
        while let Some(url) = next {
            let (listed, following) = self.page(&url)?;
            entries.extend(listed.into_iter().filter(|one| one.kind == "file").map(Entry::from));
            next = following;
        }
        Ok(entries)
    }

    fn access(&self) -> String {
        match &self.token {
            None => "it is private, gated or not there: set HF_TOKEN".to_owned(),
            Some(_) => "check that the token in HF_TOKEN may read it".to_owned(),
        }
    }
}

/// An item of a listing.
#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: Bytes,
    #[serde(default)]
    oid: String,
    lfs: Option<Large>,
}

/// Where the content is kept, if it is large.
#[derive(Deserialize)]
struct Large {
    oid: String,
}

impl From<Listed> for Entry {
    fn from(one: Listed) -> Self {
        let version = one.lfs.map_or(one.oid, |large| large.oid);
        Self { key: one.path, size: one.size, version, changed: None }
    }
}

/// `<https://...>; rel="next"`
fn next_page(link: &str) -> Option<String> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_owned())
}
