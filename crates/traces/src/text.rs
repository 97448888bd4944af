//! Texts in place of recordings: what people have of an out-of-memory if they have no snapshot.
//!
//! It is the message of the exception, alone or in a log, or what `torch.cuda.memory_summary()` prints. Such a text has
//! no events, so that it is no trace; but it says much, and `sim::blame::explain` reads it. Here it is only found.

/// How a message about memory that ran out may begin, or go on.
const MARKS: [&str; 16] = [
    "out of memory. Tried to allocate",
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
pub(super) fn find(bytes: &[u8]) -> Option<Box<str>> {
    if !is_text(&bytes[..bytes.len().min(4096)]) {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MOST)..]);
    let first = MARKS.iter().filter_map(|mark| text.find(mark)).min()?;
    let begin = text.floor_char_boundary(first.saturating_sub(BEFORE));
    let end = text.floor_char_boundary(first.saturating_add(BEHIND).min(text.len()));
    Some(text[begin..end].into())
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
