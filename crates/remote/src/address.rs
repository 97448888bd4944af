//! Addresses: which arguments are remote, which stand for many files, and how they are shown.

use std::path::Path;

/// Whether a path is a URL: it begins with a scheme, as in `s3://`.
pub fn is_remote(path: &Path) -> bool {
    split(&path.to_string_lossy()).is_some()
}

/// Whether a URL stands for many files: it ends as a folder does, or is a pattern.
pub fn is_many(path: &Path) -> bool {
    let text = path.to_string_lossy();
    split(&text).is_some_and(|(scheme, rest)| {
        let rest = without_query(scheme, rest);
        rest.ends_with('/') || has_wildcard(scheme, rest)
    })
}

/// A path as it may be shown: of a URL neither a password nor a query, which may hold a signature.
pub fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    match split(&text) {
        Some((scheme, rest)) => format!("{scheme}://{}", public(scheme, rest)),
        None => path.display().to_string(),
    }
}

/// The scheme, and what follows `://`.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some((scheme, rest))
}

/// Whether part of a key is a pattern. In addresses of the web, `?` begins a query and brackets are as any other sign.
pub(super) fn has_wildcard(scheme: &str, text: &str) -> bool {
    if is_web(scheme) { text.contains('*') } else { text.contains(['*', '?', '[']) }
}

fn is_web(scheme: &str) -> bool {
    ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str())
}

/// In buckets, `?` and `#` may be part of a name.
fn without_query<'t>(scheme: &str, rest: &'t str) -> &'t str {
    let end = if is_web(scheme) { rest.find(['?', '#']) } else { None };
    &rest[..end.unwrap_or(rest.len())]
}

fn public(scheme: &str, rest: &str) -> String {
    let text = without_query(scheme, rest);
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let host = host.rsplit('@').next().filter(|_| is_web(scheme)).unwrap_or(host);
    format!("{host}{path}").chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_scheme_is_remote() {
        for text in ["s3://b/k", "hf://datasets/o/n/f", "https://host/x", "what://ever"] {
            assert!(is_remote(Path::new(text)), "{text}");
        }
        for text in ["-", "a.pickle", "./s3/b", "a b://c", "://x", "C:/x", "1x://y"] {
            assert!(!is_remote(Path::new(text)), "{text}");
        }
    }

    #[test]
    fn folders_and_patterns_stand_for_many_files() {
        for text in
            ["s3://b/run/", "s3://b/", "gs://b/*.pickle", "hf://o/n/r?.json", "https://h/x/"]
        {
            assert!(is_many(Path::new(text)), "{text}");
        }
        for text in ["s3://b/run", "https://h/x.pickle?list=a/", "https://h/x?y=*", "runs/"] {
            assert!(!is_many(Path::new(text)), "{text}");
        }
    }

    #[test]
    fn passwords_and_signatures_are_not_shown() {
        let said = |text: &str| shown(Path::new(text));
        assert_eq!(
            said("https://me:secret@host/a/b.pickle?X-Sig=secret#x"),
            "https://host/a/b.pickle"
        );
        assert_eq!(said("s3://b/what?.pickle"), "s3://b/what?.pickle");
        assert_eq!(said("hf://o/n@main/a@b"), "hf://o/n@main/a@b");
        assert_eq!(said("a b/c?d"), "a b/c?d");
    }
}
