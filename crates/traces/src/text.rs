//! Texts in place of recordings: what people have of an out-of-memory if they have no snapshot.
//!
//! It is the message of the exception, alone or in a log, or what `torch.cuda.memory_summary()` prints. Such a text has
//! no events, so that it is no trace; but it says much, and `sim::blame::explain` reads it. Here it is only found.

/// How a message about memory that ran out may begin, or go on.
const MARKS: [&str; 30] = [
    "out of memory. Tried to allocate",
    "Out of memory. Tried to allocate",
    "out of memory (MPS allocated",
    "size larger than 4GB! Tried to allocate",
    "Allocation on device",
    "total capacity",
    "total capacty",
    "is allocated by PyTorch",
    "reserved by PyTorch but unallocated",
    "reserved in total by PyTorch",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "Failed to CUDA calloc",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    "RESOURCE_EXHAUSTED: Out of memory",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUFFT_ALLOC_FAILED",
    "Cuda failure 'out of memory'",
    "Cuda failure 2 'out of memory'",
    "Out of memory: Killed process",
    "oom_kill event",
    "ArrayMemoryError: Unable to allocate",
    "No available memory for the cache blocks",
    "is less than desired GPU memory utilization",
    "than the available KV cache memory",
    SUMMARY,
];

/// Words without any figure. They count where none of the others is: a log may have them in any line.
const BARE_MARKS: [&str; 4] =
    ["out of memory", "Out of memory", "OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY"];

/// What every table of `memory_summary()` says in its head.
const SUMMARY: &str = "memory summary, device ID";
/// More of a text is not looked at; its end counts.
pub(super) const MOST: usize = 16 << 20;
/// What is kept before the first mark, where the call stack is.
const BEFORE: usize = 128 << 10;
/// What is kept from there on.
const BEHIND: usize = 64 << 10;

/// The part of a text that tells of memory that ran out, if there is one.
pub fn find(bytes: &[u8]) -> Option<Box<str>> {
    if !is_text(&bytes[..bytes.len().min(4096)]) {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MOST)..]);
    let first = |marks: &[&str]| marks.iter().filter_map(|of| places_of(&text, of).next()).min();
    let first = first(&MARKS).or_else(|| first(&BARE_MARKS))?;
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

/// A text without the colours of a terminal. Those that were pasted have lost the character before the bracket.
pub fn without_colors(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('[') {
        let (before, code) = (&rest[..at], &rest[at + 1..]);
        let digits = code.find(|c: char| !(c.is_ascii_digit() || c == ';')).unwrap_or(code.len());
        let escaped = before.strip_suffix('\x1b');
        let kind = code[digits..].chars().next().filter(char::is_ascii_alphabetic);
        let is_code = kind.is_some_and(|kind| escaped.is_some() || (kind == 'm' && digits > 0));
        out += escaped.filter(|_| is_code).unwrap_or(before);
        if !is_code {
            out.push('[');
        }
        rest = &code[if is_code { digits + 1 } else { 0 }..];
    }
    out + rest
}

/// A line without what mail and logs write before it: `> `, `[rank0]: `, `(Worker pid=7) ERROR 14:39:06 [a.py:3] `.
pub fn without_prefix(line: &str) -> &str {
    prefix(line).1
}

/// The process that a log names before a line, such as `[rank0]` or `(Worker pid=7)`.
pub fn process_of(line: &str) -> Option<&str> {
    prefix(line).0
}

fn prefix(line: &str) -> (Option<&str>, &str) {
    let bare = |text| str::trim_start(text).trim_start_matches(['>', ' ']);
    let (mut process, mut rest) = (None, bare(line));
    while let Some(length) = prefix_part(rest) {
        let part = rest[..length].trim_end_matches(':');
        let is_process = part.starts_with('(') || part.starts_with("[rank");
        process = process.or(is_process.then_some(part));
        rest = bare(&rest[length..]);
    }
    (process, rest)
}

/// The length of what a log wrote at the beginning of a line: a process, a place, a level or a time.
fn prefix_part(line: &str) -> Option<usize> {
    const LEVELS: [&str; 7] = ["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"];
    if line.starts_with('[') {
        let end = line.find(']').filter(|&end| end < 60)? + 1;
        let behind = &line[end..];
        let is_one = behind.starts_with([':', ' ']);
        return is_one.then(|| end + usize::from(behind.starts_with(':')));
    }
    if line.starts_with('(') {
        let end = line.find(')').filter(|&end| end < 80 && line[..end].contains("pid="))?;
        return Some(end + 1);
    }
    let word = &line[..line.find(char::is_whitespace)?];
    let is_of_time = |c: char| c.is_ascii_digit() || "-:./,TZ+".contains(c);
    let is_time = word.starts_with(|c: char| c.is_ascii_digit())
        && word.contains(['-', ':'])
        && word.chars().all(is_of_time);
    (is_time || LEVELS.contains(&word.trim_end_matches(':'))).then_some(word.len())
}

/// The text with single blanks in place of its line breaks, and without what a log writes before each line.
pub fn joined(text: &str) -> String {
    let lines = text.lines().map(without_prefix);
    lines.flat_map(str::split_whitespace).take(4000).collect::<Vec<_>>().join(" ")
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
    fn colours_go_whether_they_were_pasted_or_not() {
        for (text, plain) in [
            ("\x1b[1;36m(EngineCore pid=7)\x1b[0;0m ERROR", "(EngineCore pid=7) ERROR"),
            ("[1;36m(EngineCore pid=7)[0;0m ERROR", "(EngineCore pid=7) ERROR"),
            ("\x1b[0;31mError\x1b[0m \x1b[K[rank0]: a[0] [m] [3]", "Error [rank0]: a[0] [m] [3]"),
            ("ü[", "ü["),
        ] {
            assert_eq!(without_colors(text), plain);
        }
    }

    #[test]
    fn what_a_log_writes_before_a_line_is_left_out_and_names_the_process() {
        let vllm = "(EngineCore pid=112) ERROR 05-01 14:39:06 [core.py:1131] 2.00 GiB";
        for (line, process, rest) in [
            (vllm, Some("(EngineCore pid=112)"), "2.00 GiB"),
            (
                "(Ray pid=7, ip=10.0.0.1)   File \"a\"",
                Some("(Ray pid=7, ip=10.0.0.1)"),
                "File \"a\"",
            ),
            ("> [rank3]:     main()", Some("[rank3]"), "main()"),
            ("2025-11-14T09:33:56.23Z [rank0]: [rank0]: x", Some("[rank0]"), "x"),
            ("2026-05-08 11:47:02.257 [Error] x", None, "x"),
            ("(GPU 0; 8.00 GiB total capacity)", None, "(GPU 0; 8.00 GiB total capacity)"),
            ("12.25 MiB free", None, "12.25 MiB free"),
            ("[rank0]:", Some("[rank0]"), ""),
            ("[1, 2][0] = 3", None, "[1, 2][0] = 3"),
            ("", None, ""),
        ] {
            assert_eq!(prefix(line), (process, rest), "{line}");
        }
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
