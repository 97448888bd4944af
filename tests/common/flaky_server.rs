//! A server that fails on demand: the files that it is given, as a bucket, as Hugging Face and as the web; before the
//! n-th answer a fault, as listed.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// What happens in place of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Another status, with a word of explanation as S3 gives it.
    Status(u16, &'static str),
    /// Nothing, for this many seconds.
    Silence(u64),
    /// Only the first bytes of the body that was announced, this many.
    Cut(usize),
    /// The connection is reset.
    Reset,
    /// A redirect to this address.
    Redirect(&'static str),
    /// All of the file, whatever part was asked for, and no entity tag.
    NoParts,
}

#[derive(Default)]
struct State {
    files: Vec<(String, Vec<u8>)>,
    faults: VecDeque<Fault>,
    asked: Vec<String>,
}

/// It lives as long as the test.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// Keys on one page of a listing.
const PAGE: usize = 2;

impl Server {
    /// Serves these files, by path.
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let mut files: Vec<_> =
            files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
        files.sort();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let server = Self { address, state };
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = accepting.clone();
                // A client that has enough hangs up.
                thread::spawn(move || while server.serve(&stream).unwrap_or(false) {});
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next answers.
    pub(crate) fn fail(&self, faults: &[Fault]) {
        self.state().faults.extend(faults);
    }

    /// Faults that are left.
    pub(crate) fn faults_left(&self) -> usize {
        self.state().faults.len()
    }

    /// The heads of the requests since the last call.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has panicked in it")
    }

    /// One request; whether another may follow.
    fn serve(&self, stream: &TcpStream) -> std::io::Result<bool> {
        // Unread bytes make a closed connection a reset one, so that nothing is read before it is known what to do.
        let mut first = [0];
        if stream.peek(&mut first)? == 0 {
            return Ok(false);
        }
        let fault = self.state().faults.pop_front();
        if let Some(Fault::Reset) = fault {
            return Ok(false);
        }
        let mut head = String::new();
        let mut reader = BufReader::new(stream);
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(false);
            }
        }
        self.state().asked.push(head.to_ascii_lowercase());
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (status, headers, body) = match fault {
            Some(Fault::Silence(seconds)) => {
                thread::sleep(Duration::from_secs(seconds));
                return Ok(false);
            }
            Some(Fault::Status(code, word)) => refusal(code, word),
            Some(Fault::Redirect(to)) => (302, format!("location: {to}\r\n"), Vec::new()),
            _ => self.answer(&target, &head.to_ascii_lowercase(), fault),
        };
        let length = body.len();
        let shown = match fault {
            Some(Fault::Cut(most)) => most.min(length),
            _ => length,
        };
        let mut out = stream;
        write!(out, "HTTP/1.1 {status} -\r\n{headers}content-length: {length}\r\n\r\n")?;
        out.write_all(&body[..shown])?;
        Ok(shown == length)
    }

    fn answer(&self, target: &str, head: &str, fault: Option<Fault>) -> Answer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if query.contains("list-type=2") {
            return self.bucket_page(path, query);
        }
        if path.starts_with("/api/") {
            return self.hub_page(path, query);
        }
        let path = path.replace("%20", " ");
        let state = self.state();
        let Some((_, bytes)) = state.files.iter().find(|(name, _)| *name == path) else {
            return refusal(404, "NoSuchKey");
        };
        let tag = format!("\"{}-{}\"", bytes.len(), bytes.first().copied().unwrap_or(0));
        let date = "last-modified: Mon, 23 Nov 2026 10:00:00 GMT\r\n";
        let range = head.split("range: bytes=").nth(1).and_then(|rest| rest.lines().next());
        let (None | Some(Fault::Cut(_)), Some(range)) = (fault, range) else {
            return (200, date.to_owned(), bytes.clone());
        };
        if head.contains("if-match: ") && !head.contains(&tag) {
            return refusal(412, "PreconditionFailed");
        }
        let (from, to) = range.trim().split_once('-').unwrap_or(("0", "0"));
        let (from, to): (usize, usize) = (from.parse().unwrap_or(0), to.parse().unwrap_or(0));
        if from >= bytes.len() {
            return refusal(416, "InvalidRange");
        }
        let end = bytes.len().min(to + 1);
        let all = bytes.len();
        let headers =
            format!("etag: {tag}\r\n{date}content-range: bytes {from}-{}/{all}\r\n", end - 1);
        (206, headers, bytes[from..end].to_vec())
    }

    /// A page of a bucket, as S3 lists it.
    fn bucket_page(&self, bucket: &str, query: &str) -> Answer {
        let value = |name: &str| {
            let found = query.split('&').find_map(|pair| pair.strip_prefix(name));
            found.unwrap_or_default().replace("%2F", "/")
        };
        let (prefix, after) = (value("prefix="), value("continuation-token="));
        let state = self.state();
        let keys = state.files.iter().filter_map(|(path, bytes)| {
            let key = path.strip_prefix(bucket.trim_end_matches('/'))?.strip_prefix('/')?;
            let is_asked = key.starts_with(&prefix) && key > after.as_str();
            let is_near = value("delimiter=").is_empty() || !key[prefix.len()..].contains('/');
            (is_asked && is_near).then_some((key, bytes.len()))
        });
        let keys: Vec<_> = keys.collect();
        let mut text = format!("<ListBucketResult><KeyCount>{}</KeyCount>", keys.len());
        for (key, size) in keys.iter().take(PAGE) {
            let _ = write!(
                text,
                "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"{size}\"</ETag>\
                 <LastModified>2026-11-23T10:00:00.000Z</LastModified></Contents>"
            );
        }
        if keys.len() > PAGE {
            let _ =
                write!(text, "<NextContinuationToken>{}</NextContinuationToken>", keys[PAGE - 1].0);
        }
        (200, String::new(), (text + "</ListBucketResult>").into_bytes())
    }

    /// A page of `/api/datasets/O/N/tree/main/FOLDER`, from the files of `/datasets/O/N/resolve/main`.
    fn hub_page(&self, path: &str, query: &str) -> Answer {
        let place = path.trim_start_matches("/api").replace("/tree/", "/resolve/");
        let from = query.split("from=").nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        let root = place.split("/main").next().unwrap_or_default().to_owned() + "/main/";
        let state = self.state();
        let found: Vec<String> = state
            .files
            .iter()
            .filter(|(name, _)| name.starts_with(&format!("{place}/")))
            .filter(|(name, _)| {
                query.contains("recursive=true") || !name[place.len() + 1..].contains('/')
            })
            .map(|(name, bytes)| {
                let (name, size) = (&name[root.len()..], bytes.len());
                format!(r#"{{"type":"file","path":"{name}","size":{size},"oid":"o{size}"}}"#)
            })
            .collect();
        let next = format!(
            "link: <http://{}{path}?{}&from={}>; rel=\"next\"\r\n",
            self.address,
            query.split("&from").next().unwrap_or_default(),
            from + PAGE
        );
        let headers = if found.len() > from + PAGE { next } else { String::new() };
        let page: Vec<_> = found.into_iter().skip(from).take(PAGE).collect();
        (200, headers, format!("[{}]", page.join(",")).into_bytes())
    }
}

/// Status, headers, body.
type Answer = (u16, String, Vec<u8>);

fn refusal(code: u16, word: &str) -> Answer {
    (code, String::new(), format!("<Error><Code>{word}</Code></Error>").into_bytes())
}
