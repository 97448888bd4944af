//! Causes: what went wrong with a request, whether another try may help, and the words for it.

use std::time::Duration;

use super::RemoteError;
use gmlake_core::units::{Bytes, Size};

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The server refuses, in a number and perhaps a word of its own; it may say where the bucket is, and when to come
    /// again.
    Status { code: u16, name: String, region: Option<String>, wait: Option<Duration> },
    /// Nothing came for this long.
    Silence(Duration),
    /// The connection ended early; how many bytes had come, and of how many, as far as that is known.
    Broken { got: Bytes, of: Option<Bytes> },
    /// Nothing listens at the address.
    Refused,
    /// The name of the host means nothing.
    NoHost,
    /// The connection is not safe.
    Unsafe(String),
    /// More than may be read.
    TooLarge { size: Bytes, limit: Bytes },
    /// It is another file now than when the first part was read.
    Changed,
    /// What was set in the environment is not enough; and what to set.
    Settings { problem: String, remedy: String },
    /// Neither of these.
    Other(String),
}

impl Cause {
    /// How often a request with this end is tried. A wrong name is known at once, and so is a server that is not there.
    pub(super) const fn tries(&self) -> u32 {
        match self {
            Self::Status { code: 408 | 429 | 500 | 502..=504 | 507..=599, .. }
            | Self::Silence(_)
            | Self::Broken { .. } => 6,
            Self::Refused => 5,
            Self::NoHost => 3,
            _ => 1,
        }
    }

    /// What happened, and what to do about it where that is the same for all stores.
    fn words(&self, host: &str) -> (String, Option<String>) {
        let text = |remedy: &str| Some(remedy.to_owned());
        match self {
            Self::Status { code, name, region, .. } => status(*code, name, region.as_deref()),
            Self::Silence(wait) => {
                let problem = format!("{host} did not answer within {} s", wait.as_secs());
                (problem, text("check the network, or raise GMLAKE_REMOTE_TIMEOUT"))
            }
            Self::Broken { got, of: Some(of) } => (
                format!("the connection to {host} broke off after {got} of {of} bytes"),
                text("check the network"),
            ),
            Self::Broken { of: None, .. } => {
                (format!("the connection to {host} broke off"), text("check the network"))
            }
            Self::Refused => {
                (format!("nothing answers at {host}"), text("check the address and the network"))
            }
            Self::NoHost => {
                (format!("there is no host {host}"), text("check the address and the network"))
            }
            Self::Unsafe(why) => (
                format!("the connection to {host} is not safe: {why}"),
                text("name your authority's certificates in SSL_CERT_FILE"),
            ),
            Self::TooLarge { size, limit } => (
                format!("{} of content, above the limit of {}", Size(*size), Size(*limit)),
                text("raise it with --max-input, or record fewer events (max_entries)"),
            ),
            Self::Changed => {
                ("it changed while it was read".to_owned(), text("read it when it is complete"))
            }
            Self::Settings { problem, remedy } => (problem.clone(), text(remedy)),
            Self::Other(what) => (what.clone(), None),
        }
    }
}

/// What a refusal means.
fn status(code: u16, name: &str, region: Option<&str>) -> (String, Option<String>) {
    let answer = format!("{code} {name}");
    let answer = answer.trim();
    let said = |problem: &str, remedy: &str| (problem.to_owned(), Some(remedy.to_owned()));
    match (code, name, region) {
        (301 | 307 | 400, _, Some(region)) => {
            (format!("the bucket is in region {region}"), Some(format!("set AWS_REGION={region}")))
        }
        (_, "NoSuchBucket" | "ContainerNotFound", _) => {
            said("there is no such bucket", "check its name")
        }
        (404, "RepoNotFound" | "RevisionNotFound", _) => {
            said("there is no such repository or revision", "check its name")
        }
        (404, ..) => said("there is no such file", "check its name; a folder's ends in /"),
        (412, ..) => Cause::Changed.words(""),
        (403, "RequestTimeTooSkewed", _) => {
            said("the server has another time", "set this machine's clock")
        }
        (_, "ExpiredToken", _) => said("the credentials have expired", "get new ones"),
        (401 | 403, ..) => (format!("access is denied ({answer})"), None),
        (429 | 503, ..) => (format!("the server is busy ({answer})"), None),
        _ => (format!("the server answered {answer}"), None),
    }
}

/// How a request ended, after all tries.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{cause:?}")]
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) host: String,
    pub(super) tries: u32,
    pub(super) elapsed: Duration,
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self { cause, host: String::new(), tries: 1, elapsed: Duration::ZERO }
    }
}

impl Failure {
    /// In words. `access` is what to do if access is denied.
    pub(super) fn of(&self, url: &str, access: &str) -> RemoteError {
        let (mut problem, remedy) = self.cause.words(&self.host);
        let is_transient = self.cause.tries() > 1;
        if self.tries > 1 {
            problem += &format!(" ({} tries in {} s)", self.tries, self.elapsed.as_secs());
        }
        let remedy = match (remedy, &self.cause) {
            (Some(remedy), _) => remedy,
            (None, Cause::Status { code: 401 | 403, .. }) => access.to_owned(),
            (None, _) if is_transient => "try again later".to_owned(),
            (None, _) => "check the address".to_owned(),
        };
        RemoteError { is_transient, ..RemoteError::new(url, problem, remedy) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, name: &str, region: Option<&str>) -> String {
        let (name, region) = (name.to_owned(), region.map(str::to_owned));
        let failure = Failure::from(Cause::Status { code, name, region, wait: None });
        failure.of("s3://b/k", "set a key").to_string()
    }

    #[test]
    fn refusals_are_one_line() {
        for (code, name, region, words) in [
            (404, "NoSuchKey", None, "there is no such file; check its name; a folder's ends in /"),
            (404, "NoSuchBucket", None, "there is no such bucket; check its name"),
            (
                301,
                "",
                Some("eu-west-1"),
                "the bucket is in region eu-west-1; set AWS_REGION=eu-west-1",
            ),
            (403, "AccessDenied", None, "access is denied (403 AccessDenied); set a key"),
            (403, "", None, "access is denied (403); set a key"),
            (503, "SlowDown", None, "the server is busy (503 SlowDown); try again later"),
            (418, "", None, "the server answered 418; check the address"),
        ] {
            assert_eq!(refused(code, name, region), format!("s3://b/k: {words}"));
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let status =
            |code| Cause::Status { code, name: String::new(), region: None, wait: None }.tries();
        assert!([408, 429, 500, 502, 503, 504].iter().all(|&code| status(code) > 1));
        assert!([301, 400, 401, 403, 404, 412, 416, 501].iter().all(|&code| status(code) == 1));
        assert_eq!(Cause::TooLarge { size: 2, limit: 1 }.tries(), 1);
    }
}
