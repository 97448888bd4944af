//! Pages of the host's memory: which hold zeros, and how to make zeros without a page.
//!
//! The system adds a page of private memory when something is written to it; until then it reads as zeros. So a range
//! in which nothing was written can be known to be zeros without a look at it, and a range can be made zeros by giving
//! its pages back. Neither is true of files that are mapped.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// Pages that are looked up at a time.
const BATCH: u64 = 1 << 16;
/// A page is there, or lies in swap: bits of its entry in `/proc/self/pagemap`.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;

/// The whole pages in a range of memory.
fn whole_pages(at: u64, bytes: u64) -> Range<u64> {
    let first = at.next_multiple_of(PAGE);
    first..((at + bytes) & !(PAGE - 1)).max(first)
}

/// Whether a range lies in private memory of this process with no file behind it.
pub fn is_anonymous(at: u64, bytes: u64) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    let mut next = at;
    for line in maps.lines() {
        let Some((range, is_private)) = mapping(line) else { return false };
        if range.contains(&next) {
            if !is_private {
                return false;
            }
            next = range.end;
        }
        if next >= at + bytes {
            return true;
        }
    }
    false
}

/// A line of `/proc/self/maps`: addresses, and whether it is private memory without a file.
fn mapping(line: &str) -> Option<(Range<u64>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (first, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let is_private = words.next()?.ends_with('p');
    let inode = words.nth(2)?;
    Some((number(first)?..number(end)?, is_private && inode == "0"))
}

/// Whether a range of private memory holds zeros only. Where nothing was written, it is not looked at.
///
/// # Safety
/// The range can be read, and is anonymous.
pub unsafe fn is_zero(at: u64, bytes: u64) -> bool {
    let pages = whole_pages(at, bytes);
    let edges = [at..pages.start.min(at + bytes), pages.end.max(pages.start)..at + bytes];
    // SAFETY: the caller promises that the whole range can be read.
    let zero = |range: Range<u64>| unsafe { reads_as_zero(range) };
    edges.into_iter().all(zero) && written(&pages, zero).unwrap_or(false)
}

/// Whether `zero` is true of every page among these that was ever written.
fn written(pages: &Range<u64>, zero: impl Fn(Range<u64>) -> bool) -> io::Result<bool> {
    let entries = File::open("/proc/self/pagemap")?;
    let mut buffer = vec![0; BATCH as usize * 8];
    let mut at = pages.start;
    while at < pages.end {
        let count = ((pages.end - at) / PAGE).min(BATCH);
        let buffer = &mut buffer[..count as usize * 8];
        entries.read_exact_at(buffer, at / PAGE * 8)?;
        for (page, entry) in buffer.as_chunks::<8>().0.iter().enumerate() {
            let first = at + page as u64 * PAGE;
            let is_there = u64::from_ne_bytes(*entry) & PRESENT_OR_SWAPPED != 0;
            if is_there && !zero(first..first + PAGE) {
                return Ok(false);
            }
        }
        at += count * PAGE;
    }
    Ok(true)
}

/// Whether memory holds zeros, by a look at it.
///
/// # Safety
/// The range can be read.
unsafe fn reads_as_zero(range: Range<u64>) -> bool {
    if range.is_empty() {
        return true;
    }
    let length = (range.end - range.start) as usize;
    // SAFETY: the caller promises it.
    let bytes = unsafe { std::slice::from_raw_parts(range.start as *const u8, length) };
    bytes.iter().all(|&byte| byte == 0)
}

/// Makes a range of private memory read as zeros, and gives its pages back.
///
/// # Safety
/// The range is private memory without a file, and can be written.
pub unsafe fn discard(at: u64, bytes: u64) {
    let pages = whole_pages(at, bytes);
    if pages.is_empty() {
        // SAFETY: the caller promises that it can be written.
        return unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes as usize) };
    }
    let length = (pages.end - pages.start) as usize;
    // SAFETY: the pages lie in the range, of which the caller promises that it is private and can be written.
    unsafe {
        libc::madvise(pages.start as *mut libc::c_void, length, libc::MADV_DONTNEED);
        std::ptr::write_bytes(at as *mut u8, 0, (pages.start - at) as usize);
        std::ptr::write_bytes(pages.end as *mut u8, 0, (at + bytes - pages.end) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 40 * PAGE as usize;

    fn of(bytes: &[u8]) -> (u64, u64) {
        (bytes.as_ptr() as u64, bytes.len() as u64)
    }

    fn all_zero(bytes: &[u8]) -> bool {
        let (at, length) = of(bytes);
        // SAFETY: it is a slice of a vector.
        unsafe { is_zero(at, length) }
    }

    #[test]
    fn one_byte_anywhere_is_noticed_and_zeros_are_not() {
        let mut memory = vec![0_u8; LENGTH];
        assert!(all_zero(&memory));
        for at in [1, 4095, 4096, 70_000, LENGTH - 1] {
            memory[at] = 1;
            assert!(!all_zero(&memory), "{at}");
            memory[at] = 0;
            assert!(all_zero(&memory), "{at}: written and zero");
        }
        memory[5] = 1;
        assert!(all_zero(&memory[6..]) && all_zero(&memory[..5]));
    }

    #[test]
    fn discarded_memory_reads_as_zeros_and_its_neighbours_stay() {
        let mut memory = vec![7_u8; LENGTH];
        for (first, end) in [(0, 3), (9, 20_000), (4096, 8192), (30_000, LENGTH)] {
            memory.fill(7);
            let (at, length) = of(&memory[first..end]);
            // SAFETY: it is a part of a vector of our own.
            unsafe { discard(at, length) };
            assert!(memory[first..end].iter().all(|&byte| byte == 0), "{first} to {end}");
            let around = memory[..first].iter().chain(&memory[end..]);
            assert!(around.into_iter().all(|&byte| byte == 7), "{first} to {end}");
        }
    }

    #[test]
    fn a_mapped_file_is_not_private_memory() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let file =
            maps.lines().find(|line| line.ends_with(".so") || line.contains("libc")).unwrap();
        let (range, is_private) = mapping(file).unwrap();
        assert!(!is_private && !is_anonymous(range.start, 1) && !is_anonymous(8, 8), "{file}");
        let memory = vec![1_u8; LENGTH];
        assert!(is_anonymous(memory.as_ptr() as u64, LENGTH as u64));
    }
}
