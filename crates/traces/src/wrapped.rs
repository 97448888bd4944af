//! Wrapped: recordings that come inside something else, and are taken out of it.
//!
//! ```text
//!   page of _memory_viz   {"name": "snapshot.pickle", "base64": "gASV..."}    the text between the quotation marks
//!   base64 alone          gASV...                                            the whole text
//!   zip, torch.save       PK..  archive/data.pkl                             the one file in it that is a recording
//! ```

use std::borrow::Cow;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::format::RECORD;
use super::{Position, Result, TraceError};

/// What may be taken out of an archive of a few bytes.
const MOST: u64 = 4 << 30;
/// Bytes for each byte of an archive.
const RATIO: u64 = 4000;

/// Whether a content that begins so may hold a recording.
pub(super) fn begins(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    bytes.starts_with(b"PK\x03\x04") || text.first() == Some(&b'<') || is_base64(text)
}

/// Pickles of protocols 2 to 5 begin so.
fn is_base64(text: &[u8]) -> bool {
    let heads = [&b"gAJ"[..], b"gAK", b"gAL", b"gAN", b"gAO", b"gAP", b"gAQ", b"gAR", b"gAS"];
    let others = [&b"gAT"[..], b"gAU", b"gAV", b"gAW", b"gAX"];
    heads.iter().chain(&others).any(|head| text.starts_with(head))
}

/// The recording inside a content; `None`: the content is what it is. Fails if there is none in it, or it is not clear
/// which is meant.
pub(super) fn unwrapped(bytes: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
    let text = bytes.trim_ascii_start();
    if bytes.starts_with(b"PK\x03\x04") {
        return zipped(bytes).map(Some);
    }
    if text.first() == Some(&b'<') {
        return page(text);
    }
    if is_base64(text) {
        return Ok(decoded(text).map(Cow::Owned));
    }
    Ok(None)
}

/// What is wrong with a content that holds something, which is no recording.
pub(super) fn without(bytes: &[u8]) -> TraceError {
    let what = match bytes.trim_ascii_start() {
        [b'P', b'K', ..] => "a zip archive",
        [b'<', ..] => "a web page",
        _ => "a text in base64",
    };
    let problem = format!("is no trace: {what} without a recording in it");
    TraceError::new(Position::File, problem, RECORD)
}

fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let dense: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(dense).ok()
}

/// The last snapshot that a page holds.
fn page(text: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
    let mut found = None;
    for at in places(text, b"\"base64\"") {
        let rest = &text[at + 8..];
        let quotes: Vec<usize> = places(&rest[..rest.len().min(16)], b"\"").take(1).collect();
        let Some(&begin) = quotes.first() else { continue };
        let value = &rest[begin + 1..];
        let end = value.iter().position(|&byte| byte == b'"').unwrap_or(value.len());
        found = decoded(&value[..end]).or(found);
    }
    Ok(found.map(Cow::Owned))
}

fn places<'t>(text: &'t [u8], words: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    text.windows(words.len()).enumerate().filter(move |(_, part)| *part == words).map(|(at, _)| at)
}

/// A file in an archive.
struct Member<'a> {
    name: String,
    method: u16,
    packed: &'a [u8],
    size: u64,
}

/// The recording in an archive: `data.pkl` of torch.save, else the only file that may be one.
fn zipped(bytes: &[u8]) -> Result<Cow<'_, [u8]>> {
    let fail =
        |problem: String, remedy: &str| Err(TraceError::new(Position::File, problem, remedy));
    let Some(members) = members(bytes) else {
        return fail("the zip archive is damaged".to_owned(), "copy it again");
    };
    let is_saved =
        |member: &&Member| member.name == "data.pkl" || member.name.ends_with("/data.pkl");
    let files: Vec<&Member> = members.iter().filter(|one| !one.name.ends_with('/')).collect();
    let member = match (files.iter().find(|one| is_saved(one)), &files[..]) {
        (Some(saved), _) => saved,
        (None, [only]) => only,
        (None, files) => {
            let problem = format!("a zip archive of {} files", files.len());
            return fail(problem, "unzip it into a folder, and give the folder");
        }
    };
    match member.method {
        0 => Ok(Cow::Borrowed(member.packed)),
        8 if member.size <= (member.packed.len() as u64).saturating_mul(RATIO).min(MOST) => {
            let mut out = Vec::new();
            let decoder = flate2::read::DeflateDecoder::new(member.packed).take(member.size);
            match { decoder }.read_to_end(&mut out) {
                Ok(_) => Ok(Cow::Owned(out)),
                Err(error) => fail(format!("the zip archive is damaged: {error}"), "copy it again"),
            }
        }
        _ => fail(
            "a zip archive of a kind that is not read".to_owned(),
            "unzip it, and give the file",
        ),
    }
}

/// The files in an archive, by its directory at the end.
fn members(bytes: &[u8]) -> Option<Vec<Member<'_>>> {
    let number = |at: usize, len: usize| -> Option<usize> {
        let digits = bytes.get(at..at.checked_add(len)?)?;
        Some(digits.iter().rev().fold(0, |value, &digit| value << 8 | usize::from(digit)))
    };
    let tail = bytes.len().saturating_sub(66_000);
    let end = tail + places(&bytes[tail..], b"PK\x05\x06").last()?;
    let (count, mut at) = (number(end + 10, 2)?, number(end + 16, 4)?);
    let mut found = Vec::new();
    for _ in 0..count {
        (bytes.get(at..at.checked_add(4)?)? == b"PK\x01\x02").then_some(())?;
        let (method, packed, size) =
            (number(at + 10, 2)?, number(at + 20, 4)?, number(at + 24, 4)?);
        let lens = [number(at + 28, 2)?, number(at + 30, 2)?, number(at + 32, 2)?];
        let (name, local) = (bytes.get(at + 46..at + 46 + lens[0])?, number(at + 42, 4)?);
        let begin = local + 30 + number(local + 26, 2)? + number(local + 28, 2)?;
        found.push(Member {
            name: String::from_utf8_lossy(name).into_owned(),
            method: method as u16,
            packed: bytes.get(begin..begin.checked_add(packed)?)?,
            size: size as u64,
        });
        at += 46 + lens.iter().sum::<usize>();
    }
    Some(found)
}
