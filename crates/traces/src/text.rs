//! Texts in place of recordings: what people have of an out-of-memory if they have no snapshot.
//!
//! It is the message of the exception, alone or in a log, or what `torch.cuda.memory_summary()` prints. Such a text has
//! no events, so that it is no trace; but it says much, and `sim::blame::explain` reads it. Here it is only found.

/// How a message about memory that ran out may begin, or go on.
const MARKS: [&str; 17] = [
    "out of memory. Tried to allocate",
    "Out of memory. Tried to allocate",
    "out of memory (MPS allocated",
    "would exceed allowed memory",
    "total capacity of",
    "total capacty of",
    "total capacity;",
    "reserved by PyTorch but unallocated",
    "reserved in total by PyTorch",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "Failed to CUDA calloc",
    "DefaultCPUAllocator: can't allocate memory",
    "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    "RESOURCE_EXHAUSTED: Out of memory",
    SUMMARY,
];

/// What every table of `memory_summary()` says in its head.
const SUMMARY: &str = "memory summary, device ID";
/// More of a text is not looked at; its end counts.
pub(super) const MOST: usize = 16 << 20;
/// What is kept before the first mark, where the call stack is.
const BEFORE: usize = 128 << 10;
/// What is kept from there on.
const BEHIND: usize = 64 << 10;

/// The part of a text that tells of memory that ran out, if there is one.
#[must_use]
pub fn find(bytes: &[u8]) -> Option<Box<str>> {
    if !is_text(&bytes[..bytes.len().min(4096)]) {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MOST)..]);
    let first = MARKS.iter().filter_map(|mark| places_of(&text, mark).next()).min()?;
    let begin = text.floor_char_boundary(first.saturating_sub(BEFORE));
    let end = text.floor_char_boundary(first.saturating_add(BEHIND).min(text.len()));
    Some(text[begin..end].into())
}

/// Where some words stand in a text. Between two of them there may be the end of a line, and a prefix of the next.
pub fn places_of<'a>(text: &'a str, words: &'a str) -> impl Iterator<Item = usize> + 'a {
    let first = words.split(' ').next().unwrap_or_default();
    text.match_indices(first).map(|(at, _)| at).filter(move |&at| {
        let mut rest = &text[at + first.len()..];
        words.split(' ').skip(1).all(|word| {
            let behind = behind_gap(rest).and_then(|gap| gap.strip_prefix(word));
            rest = behind.unwrap_or(rest);
            behind.is_some()
        })
    })
}

/// What follows the blanks at the beginning of a text, of which there must be some.
fn behind_gap(text: &str) -> Option<&str> {
    let bare = text.trim_start();
    let gap = &text[..text.len() - bare.len()];
    (!gap.is_empty()).then(|| if gap.contains('\n') { without_prefix(bare) } else { bare })
}

/// A line without what mail and logs write before it: `> `, `[rank0]: `.
#[must_use]
pub fn without_prefix(line: &str) -> &str {
    let bare = line.trim_start().trim_start_matches(['>', ' ']);
    let end = bare.strip_prefix('[').and_then(|rest| rest.find("]:")).filter(|&end| end < 40);
    end.map_or(bare, |end| without_prefix(&bare[end + 3..]))
}

/// Whether it may be a text of which this is the beginning: without the bytes that texts do not have.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| *byte < b' ' && !b"\t\n\r\x0c\x1b\x08".contains(byte);
    let is_utf8 = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        // A character may be cut.
        Err(error) => error.valid_up_to() + 4 > bytes.len(),
    };
    !bytes.is_empty() && is_utf8 && !bytes.iter().any(is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_where_lines_were_wrapped() {
        let found = |text: &str| places_of(text, "out of memory. Tried").collect::<Vec<_>>();
        assert_eq!(found("out of memory. Tried, out of  memory. Tried"), [0, 22]);
        assert_eq!(found("CUDA out of\nmemory. Tried"), [5]);
        assert_eq!(found("> out of\r\n> > memory.\n[rank12]: Tried"), [2]);
        assert!(
            found("out of > memory. Tried").is_empty() && found("outof memory. Tried").is_empty()
        );
        assert!(found("out of").is_empty() && found("").is_empty());
    }

    #[test]
    fn a_message_is_found_in_a_long_log_with_what_stands_before_it() {
        let noise = "step 1, loss 2.5 ü\n".repeat(50_000);
        let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.\n";
        let log = format!("{noise}  File \"train.py\", line 3, in <module>\n{message}{noise}");
        let found = find(log.as_bytes()).unwrap();
        assert!(found.contains("line 3, in <module>") && found.contains("2.00 MiB"));
        assert!(found.len() <= BEFORE + BEHIND);
        assert_eq!(find(noise.as_bytes()), None);
        assert_eq!(find(&[b"\x80\x04", message.as_bytes()].concat()), None);
        assert_eq!(find(b""), None);
    }
}
