//! The web: a file behind an address, with whatever query belongs to it. There are no listings.

use std::ops::Range;
use std::sync::Arc;

use ureq::http::{HeaderMap, Request, Uri};

use super::cause::{Cause, Failure};
use super::store::{Entry, Part, Store};
use super::wire;
use gmlake_core::units::Bytes;

struct Web(&'static str);

/// All is key, since every request may go to another host.
pub(super) fn cut(rest: &str) -> Option<(&str, &str)> {
    (!rest.is_empty() && !rest.starts_with('/')).then_some(("", rest))
}

pub(super) fn plain(_: &str) -> Result<Arc<dyn Store>, Failure> {
    Ok(Arc::new(Web("http")))
}

pub(super) fn safe(_: &str) -> Result<Arc<dyn Store>, Failure> {
    Ok(Arc::new(Web("https")))
}

impl Store for Web {
    fn part(
        &self,
        key: &str,
        range: Range<Bytes>,
        version: &str,
        limit: Bytes,
    ) -> Result<Part, Failure> {
        get(&format!("{}://{key}", self.0), HeaderMap::new(), range, version, limit)
    }

    fn files(&self, _: &str, _: bool) -> Result<Vec<Entry>, Failure> {
        Err(Cause::Other("a web server does not say which files it has".to_owned()).into())
    }

    fn access(&self) -> String {
        "log in where it comes from, and take the address that you get".to_owned()
    }
}

/// A request for an address as it stands. A fragment is for browsers alone.
pub(super) fn request(url: &str, headers: HeaderMap) -> Result<Request<Vec<u8>>, Failure> {
    let uri = url.split('#').next().unwrap_or_default().parse::<Uri>();
    let wrong = |_| Cause::Other("not an address: write %20 for a blank".to_owned());
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = uri.map_err(wrong)?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Part of what is at an address.
pub(super) fn get(
    url: &str,
    headers: HeaderMap,
    range: Range<Bytes>,
    version: &str,
    limit: Bytes,
) -> Result<Part, Failure> {
    let mut request = request(url, headers)?;
    let mut set = |name, value: &str| {
        if let Ok(value) = value.parse() {
            request.headers_mut().insert(name, value);
        }
    };
    set("range", &format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
    // An entity tag stands for the same bytes; a weak one (`W/"..."`) does not.
    if version.starts_with('"') {
        set("if-match", version);
    }
    let (parts, bytes) = wire::send(&request, limit, true)?.into_parts();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let version = header("etag").or_else(|| header("last-modified")).unwrap_or_default().to_owned();
    let length = bytes.len() as Bytes;
    let (start, size) = match parts.status.as_u16() {
        206 => content_range(header("content-range").unwrap_or_default())
            .filter(|&(_, end, _)| end > 0)
            .map(|(start, _, size)| (start, size))
            .ok_or_else(|| Cause::Other("the server does not say which part it sent".to_owned()))?,
        _ => (0, length),
    };
    Ok(Part { start, bytes, size, version, changed: None })
}

/// `bytes 0-99/4711`: the first byte, the one behind the last, and the size of the whole.
fn content_range(text: &str) -> Option<(Bytes, Bytes, Bytes)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse::<Bytes>().ok()?.checked_add(1)?, size.parse().ok()?))
}
