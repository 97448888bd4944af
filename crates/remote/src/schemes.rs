//! Schemes: which kinds of URL are understood, and who opens the place that one names.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::address::split;
use super::cause::Failure;
use super::store::Store;
use super::{RemoteError, bucket, hub, web};

/// A kind of URL.
struct Scheme {
    name: &'static str,
    /// How such a URL looks.
    shape: &'static str,
    /// The place and the key in what follows `://`.
    cut: fn(&str) -> Option<(&str, &str)>,
    /// Opens a place; nothing is asked of the network yet.
    open: fn(&str) -> Result<Arc<dyn Store>, Failure>,
}

/// All of them; one more is one more line.
const SCHEMES: &[Scheme] = &[
    Scheme { name: "s3", shape: "s3://BUCKET/KEY", cut: bucket::cut, open: bucket::s3 },
    Scheme { name: "gs", shape: "gs://BUCKET/KEY", cut: bucket::cut, open: bucket::gs },
    Scheme { name: "az", shape: "az://CONTAINER/KEY", cut: bucket::cut, open: bucket::az },
    Scheme { name: "hf", shape: "hf://datasets/OWNER/NAME/PATH", cut: hub::cut, open: hub::open },
    Scheme { name: "http", shape: "http://HOST/PATH", cut: web::cut, open: web::plain },
    Scheme { name: "https", shape: "https://HOST/PATH", cut: web::cut, open: web::safe },
];

/// Places that were opened, for the life of the process: their credentials are asked for once.
static OPENED: LazyLock<Mutex<FxHashMap<String, Arc<dyn Store>>>> = LazyLock::new(Mutex::default);

/// A URL, taken apart.
pub(super) struct Located<'u> {
    pub(super) scheme: &'static str,
    /// What comes before the key.
    pub(super) before: &'u str,
    pub(super) key: &'u str,
    pub(super) store: Arc<dyn Store>,
}

/// Takes a URL apart and opens its place.
pub(super) fn locate(url: &str) -> Result<Located<'_>, RemoteError> {
    let wrong = |problem: &str, remedy: String| Err(RemoteError::new(url, problem, remedy));
    let known = split(url).and_then(|(name, rest)| {
        SCHEMES.iter().find(|scheme| scheme.name == name).map(|scheme| (scheme, rest))
    });
    let Some((scheme, rest)) = known else {
        let names: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.name).collect();
        return wrong("not a scheme that is known here", format!("take {}", names.join(", ")));
    };
    let Some((place, key)) = (scheme.cut)(rest) else {
        return wrong("not a whole address", format!("write {}", scheme.shape));
    };
    let before = &url[..url.len() - key.len()];
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("{}://{place}", scheme.name);
    if let Some(store) = opened.get(&name) {
        return Ok(Located { scheme: scheme.name, before, key, store: Arc::clone(store) });
    }
    let store = (scheme.open)(place).map_err(|failure| failure.of(url, ""))?;
    opened.insert(name, Arc::clone(&store));
    Ok(Located { scheme: scheme.name, before, key, store })
}
