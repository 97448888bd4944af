//! The wire: one request, answered in full or tried again.
//!
//! ```text
//!   request ──▶ answer ──▶ body, as long as announced?  ──▶ done
//!     ▲           │ 429, 5xx      │ shorter, silent, cut
//!     └── wait ◀──┴───────────────┘      0.2 s, 0.4 s, 0.8 s, ...; at most six tries and one minute
//! ```
//!
//! Every byte from the network comes through [`send`], so that there is one place which knows what a failure is.

use std::io::Read;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, Method, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::cause::{Cause, Failure};
use gmlake_core::units::Bytes;

/// No try begins after this much time.
const IN_ALL: Duration = Duration::from_secs(60);
/// The wait before the second try; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// A server that asks us to wait is listened to, this far.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// The longest explanation of an error that is read.
const EXPLANATION: u64 = 16 << 10;

/// How long nothing may come before a try is given up: `GMLAKE_REMOTE_TIMEOUT` in seconds.
static SILENCE: LazyLock<Duration> = LazyLock::new(|| {
    let asked = std::env::var("GMLAKE_REMOTE_TIMEOUT").ok().and_then(|text| text.parse().ok());
    asked.filter(|&seconds| seconds > 0).map_or(Duration::from_secs(20), Duration::from_secs)
});

/// What connects, and keeps connections for the next request: one that follows redirects, and one that reports them.
static AGENTS: LazyLock<[Agent; 2]> = LazyLock::new(|| {
    let tls = TlsConfig::builder().root_certs(authorities()).build();
    [10, 0].map(|redirects| {
        let config = Agent::config_builder()
            .tls_config(tls.clone())
            .user_agent(concat!("gmlake/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(redirects)
            .max_redirects_will_error(redirects > 0)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(*SILENCE))
            .timeout_recv_response(Some(*SILENCE))
            .timeout_per_read(Some(*SILENCE))
            .max_idle_connections_per_host(16);
        config.build().into()
    })
});

/// Those that this machine trusts (`SSL_CERT_FILE` included); where it has no list, as in an empty container,
/// Mozilla's.
fn authorities() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return RootCerts::WebPki;
    }
    let certificates = found.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
    RootCerts::Specific(Arc::new(certificates))
}

/// The answer to a request, if its status is one of success and its body is complete and has at most `limit` bytes.
pub(super) fn send(
    request: &Request<Vec<u8>>,
    limit: Bytes,
    follows: bool,
) -> Result<Response<Vec<u8>>, Failure> {
    let (start, mut tries) = (Instant::now(), 0);
    loop {
        let cause = match attempt(request, limit, follows) {
            Ok(answer) => return Ok(answer),
            Err(cause) => cause,
        };
        tries += 1;
        let wait = wait(&cause, tries);
        if tries >= cause.tries() || start.elapsed() + wait >= IN_ALL {
            let host = request.uri().authority().map(|host| host.as_str()).unwrap_or_default();
            let host = host.rsplit('@').next().unwrap_or_default().to_owned();
            return Err(Failure { cause, host, tries, elapsed: start.elapsed() });
        }
        std::thread::sleep(wait);
    }
}

/// The pause before the next try: twice the last, and up to half of it more, so that a thousand workers that were
/// refused together do not come back together.
fn wait(cause: &Cause, tries: u32) -> Duration {
    let pause = FIRST_WAIT * 2_u32.pow(tries.min(8) - 1);
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let pause = pause + pause * (clock.subsec_micros() % 500) / 1000;
    match cause {
        Cause::Status { wait: Some(asked), .. } => pause.max(*asked).min(LONGEST_WAIT),
        _ => pause,
    }
}

fn attempt(
    request: &Request<Vec<u8>>,
    limit: Bytes,
    follows: bool,
) -> Result<Response<Vec<u8>>, Cause> {
    let mut plain = Request::new(());
    *plain.method_mut() = request.method().clone();
    *plain.uri_mut() = request.uri().clone();
    *plain.headers_mut() = request.headers().clone();
    let agent = &AGENTS[usize::from(!follows)];
    let is_bare = request.body().is_empty() && request.method() != Method::POST;
    let answer = match is_bare {
        true => agent.run(plain),
        false => agent.run(plain.map(|()| request.body().as_slice())),
    };
    let (parts, body) = answer.map_err(|error| cause_of(error, 0, None))?.into_parts();
    let code = parts.status.as_u16();
    if !parts.status.is_success() {
        return Err(refusal(code, &parts.headers, body));
    }
    let bytes = read(body, limit)?;
    Ok(Response::from_parts(parts, bytes))
}

/// A body, if all of it comes.
fn read(body: Body, limit: Bytes) -> Result<Vec<u8>, Cause> {
    let of = body.content_length();
    let too_large = |size| Cause::TooLarge { size, limit };
    if let Some(size) = of.filter(|&size| size > limit) {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(of.unwrap_or(0) as usize);
    let read = body.into_reader().take(limit.saturating_add(1)).read_to_end(&mut bytes);
    let got = bytes.len() as u64;
    match read {
        Err(error) => Err(cause_of(error.into(), got, of)),
        Ok(_) if of.is_some_and(|of| of != got) => Err(Cause::Broken { got, of }),
        Ok(_) if got > limit => Err(too_large(got)),
        Ok(_) => Ok(bytes),
    }
}

/// What a server says with a status that is not one of success. Azure and Hugging Face name the reason in a header,
/// S3 and Google in a line of XML.
fn refusal(code: u16, headers: &HeaderMap, body: Body) -> Cause {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mut text = Vec::new();
    // What comes of it is enough.
    let _ = body.into_reader().take(EXPLANATION).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let inside = |tag: &str| {
        let rest = text.split_once(&format!("<{tag}>"))?.1;
        rest.split_once('<').map(|(word, _)| word)
    };
    let name = header("x-ms-error-code").or_else(|| header("x-error-code")).or(inside("Code"));
    let is_word = |word: &&str| word.len() < 60 && word.chars().all(|c| c.is_ascii_alphanumeric());
    let region = header("x-amz-bucket-region").or(inside("Region"));
    let region = region.filter(|word| word.len() < 60).map(str::to_owned);
    let wait = header("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let name = name.filter(is_word).unwrap_or_default().to_owned();
    Cause::Status { code, name, region, wait }
}

fn cause_of(error: ureq::Error, got: Bytes, of: Option<Bytes>) -> Cause {
    use std::io::ErrorKind as Kind;
    match error {
        ureq::Error::Timeout(_) => Cause::Silence(*SILENCE),
        ureq::Error::HostNotFound => Cause::NoHost,
        ureq::Error::Protocol(_) | ureq::Error::BodyStalled => Cause::Broken { got, of },
        ureq::Error::Rustls(why) => Cause::Unsafe(why.to_string()),
        ureq::Error::Tls(why) => Cause::Unsafe(why.to_owned()),
        ureq::Error::TooManyRedirects => {
            Cause::Other("it leads from address to address".to_owned())
        }
        ureq::Error::Io(error) => match error.kind() {
            Kind::ConnectionRefused => Cause::Refused,
            Kind::TimedOut | Kind::WouldBlock => Cause::Silence(*SILENCE),
            Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::UnexpectedEof => Cause::Broken { got, of },
            Kind::InvalidData => Cause::Unsafe(error.to_string()),
            // The standard library has no kind for it.
            _ if error.to_string().contains("lookup address") => Cause::NoHost,
            _ => Cause::Other(error.to_string()),
        },
        other => Cause::Other(other.to_string()),
    }
}
