//! Numbers: what the message of an exception says, in all the forms that PyTorch has given it.
//!
//! ```text
//!   1.3    CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 76.18 GiB already
//!          allocated; 12.25 MiB free; 1.42 GiB cached)
//!   2.0    CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 76.18 GiB already
//!          allocated; 12.25 MiB free; 39.58 GiB allowed; 77.60 GiB reserved in total by PyTorch) ...
//!   2.1    CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 12.25 MiB
//!          is free. Process 7 has 1.46 GiB memory in use. Including non-PyTorch memory, this process has 77.70 GiB
//!          memory in use. 39.58 GiB allowed; Of the allocated memory 76.18 GiB is allocated by PyTorch, with 1.00 GiB
//!          of that allocated in private pools (e.g., CUDA Graphs), and 1.42 GiB is reserved by PyTorch but
//!          unallocated. ...
//!   async  Allocation on device 0 would exceed allowed memory. (out of memory) Currently allocated : 4.86 GiB
//!          Requested : 10.12 GiB Device limit : 24.00 GiB Free (according to CUDA): 0 bytes PyTorch limit (...) : ...
//!   MPS    MPS backend out of memory (MPS allocated: 5.05 GiB, other allocations: 2.29 GiB, max allowed: 6.77 GiB).
//! ```
//!
//! In the last but one, "of that" is ours: the first figure holds the second. HIP's and XPU's are the second form,
//! partly without some of its parts. Each number is found by the words next to it, so
//! that a part that is missing, or a form that is not known, costs no more than that part.

use super::MessageNumbers;
use super::amount::{Amount, digits};
use crate::units::MIB;

/// The numbers of one message.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    pub(super) backend: Option<String>,
    pub(super) device: Option<u32>,
    pub(super) requested: Option<Amount>,
    /// The request was for more than an exabyte.
    pub(super) is_absurd: bool,
    /// The driver gives no more than 4 GB in one piece.
    pub(super) is_piece_limited: bool,
    pub(super) total: Option<Amount>,
    pub(super) free: Option<Amount>,
    pub(super) allowed: Option<Amount>,
    pub(super) allocated: Option<Amount>,
    pub(super) private: Option<Amount>,
    pub(super) unallocated: Option<Amount>,
    pub(super) process: Option<Amount>,
    /// Memory of others that the driver named.
    pub(super) named: Vec<(u64, Amount)>,
    /// The most that this process may hold, where several of those named may be this one.
    pub(super) this_at_most: Option<Amount>,
}

/// A segment may be this much larger than what was requested.
const ROUNDING: u64 = 2 * MIB;
/// The segment for requests between 1 and 10 MiB.
const COMMON: u64 = 20 * MIB;
/// Characters of a message.
const LONGEST: usize = 2000;
/// What every message of PyTorch's own allocator says once.
const REQUEST: &str = "Tried to allocate ";
/// How the message of a driver begins that gives no more in one piece.
pub(super) const PIECE: &str = "size larger than 4GB! Tried to allocate";

impl Numbers {
    /// The numbers of the first message of a text with single blanks.
    pub(super) fn read(text: &str) -> Self {
        let message = &text[..text.floor_char_boundary(LONGEST.min(text.len()))];
        let mut starts = message.match_indices(REQUEST).map(|(at, _)| at).skip(1);
        let message = &message[..starts.next().unwrap_or(message.len())];
        let mut numbers = Self::of_message(message);
        numbers.process = numbers.process.filter(|&process| numbers.may_hold(process));
        numbers.find_processes(message);
        numbers
    }

    fn of_message(message: &str) -> Self {
        let behind = |words: &[&str]| words.iter().find_map(|words| behind(message, words));
        let before = |words: &[&str]| words.iter().find_map(|words| before(message, words));
        let allocated = before(&[" is allocated by PyTorch", " already allocated"]).or_else(|| {
            behind(&["Currently allocated : ", "Currently allocated: ", "MPS allocated: "])
        });
        let private = before(&[" allocated in private pools"]);
        let reserved = before(&[" reserved in total by PyTorch"]);
        // Of a message that begins late, the total is all that is known.
        let cached = reserved.map(|all| all.less(allocated.unwrap_or(Amount::exact(0))));
        Self {
            backend: backend(message),
            device: behind_number(message, &["GPU ", "NPU ", "on device "]),
            requested: behind(&["Tried to allocate ", "Requested : ", "Requested: "]),
            is_absurd: message.contains("Tried to allocate more than 1EB memory"),
            is_piece_limited: message.contains(PIECE),
            total: before(&[" total capacity"])
                .or_else(|| behind(&["total capacity of ", "total capacty of "]))
                .or_else(|| behind(&["Device limit : ", "Device limit: "])),
            free: before(&[" is free", " free;"])
                .or_else(|| behind(&["Free (according to CUDA): "])),
            allowed: before(&[" allowed;"])
                .or_else(|| behind(&["memory fraction) : ", "max allowed: "])),
            allocated,
            private,
            unallocated: before(&[" is reserved by PyTorch but unallocated", " cached)"])
                .or(cached),
            process: behind(&["this process has "]),
            ..Self::default()
        }
    }

    /// The processes that the driver named, of which one may be this one.
    fn find_processes(&mut self, message: &str) {
        for part in message.split("Process ").skip(1) {
            let Some((number, rest)) = part.split_once(" has ") else { continue };
            let Ok(number) = number.parse() else { continue };
            let amount = Amount::read(rest).and_then(|(amount, _)| amount.sane());
            self.named.extend(amount.map(|amount| (number, amount)));
        }
        if self.process.is_some() || self.reserved().is_none() {
            return;
        }
        let may_be_this = |place: &usize| self.may_hold(self.named[*place].1);
        let fits: Vec<usize> = (0..self.named.len()).filter(may_be_this).collect();
        match fits[..] {
            [] => {}
            // In a container the driver names it by a number that the process does not know.
            [only] => self.process = Some(self.named.remove(only).1),
            _ => self.this_at_most = fits.iter().map(|&p| self.named[p].1).max_by_key(|a| a.bytes),
        }
    }

    /// Whether a process that holds so much may be this one: in a container a driver may count none of its memory.
    fn may_hold(&self, amount: Amount) -> bool {
        self.reserved().is_none_or(|held| amount.may_cover(held))
    }

    /// What PyTorch held.
    pub(super) fn reserved(&self) -> Option<Amount> {
        Some(self.allocated.unwrap_or(Amount::exact(0)) + self.unallocated?)
    }

    /// What of the process's memory was not PyTorch's.
    pub(super) fn outside(&self) -> Option<Amount> {
        Some(self.process?.less(self.reserved()?))
    }

    /// What other processes held: all that is neither free nor this process's; else what the driver named.
    pub(super) fn others(&self) -> Option<Amount> {
        let this = self.this_at_most.unwrap_or(Amount::exact(0));
        let named = self.named.iter().map(|&(_, amount)| amount).reduce(|a, b| a + b);
        let rest = || Some(self.total?.less(self.free?).less(self.process?));
        named.map(|all| all.less(this)).or_else(rest).map(Amount::above_doubt)
    }

    /// What was neither free nor PyTorch's: the context of CUDA, libraries, other processes.
    pub(super) fn rest(&self) -> Option<Amount> {
        Some(self.total?.less(self.free?).less(self.reserved().or(self.allocated)?))
    }

    /// What would be free after the request, if expandable segments joined PyTorch's free pieces. `None` where they
    /// cannot: they take memory, and give it back, in whole parts of 20 MiB.
    pub(super) fn over_if_joined(&self) -> Option<Amount> {
        let requested = self.requested.filter(|requested| requested.bytes > COMMON)?;
        let over = (self.unallocated? + self.free?).less(requested);
        Some(over).filter(|over| over.bytes > COMMON)
    }

    /// The least that the job needs: what was live, and the part of the request that is no rounding.
    fn need(&self) -> Option<Amount> {
        let (allocated, requested) = (self.allocated?, self.requested?);
        let sure = if requested.bytes > COMMON { requested.bytes - ROUNDING } else { 0 };
        Some(allocated + Amount { bytes: sure, doubt: requested.doubt })
    }

    /// The same as plain numbers.
    pub(super) fn plain(&self) -> MessageNumbers {
        let bytes = |amount: Option<Amount>| amount.map(|amount| amount.bytes);
        MessageNumbers {
            requested_bytes: bytes(self.requested),
            total_bytes: bytes(self.total),
            free_bytes: bytes(self.free),
            allowed_bytes: bytes(self.allowed),
            allocated_bytes: bytes(self.allocated),
            private_pool_bytes: bytes(self.private),
            unallocated_bytes: bytes(self.unallocated),
            process_bytes: bytes(self.process),
            outside_pytorch_bytes: bytes(self.outside()),
            others_bytes: bytes(self.others()),
            needs_at_least_bytes: bytes(self.need()),
        }
    }
}

/// The amount that stands right behind some words.
fn behind(message: &str, words: &str) -> Option<Amount> {
    let at = message.find(words)? + words.len();
    Amount::read(&message[at..]).and_then(|(amount, _)| amount.sane())
}

/// The amount that stands right before some words.
fn before(message: &str, words: &str) -> Option<Amount> {
    let until = &message[..message.find(words)?];
    let begins = until.rmatch_indices(' ').map(|(at, _)| at + 1).chain([0]);
    let mut found = begins.take(3).filter_map(|at| {
        let text = until[at..].trim_start_matches(['(', '"', '\'', '`', '*']);
        Amount::read(text).filter(|&(_, length)| length == text.len())
    });
    found.next().and_then(|(amount, _)| amount.sane())
}

fn behind_number(message: &str, words: &[&str]) -> Option<u32> {
    let number = |words: &&str| digits(message.split_once(words)?.1)?.0.try_into().ok();
    words.iter().find_map(number)
}

/// The word before "out of memory", which names the backend.
fn backend(message: &str) -> Option<String> {
    if message.starts_with("Allocation on device") {
        return Some("CUDA".to_owned());
    }
    let (until, _) = message.split_once(" out of memory")?;
    let word = until.trim_end_matches(" backend").rsplit([' ', ':']).next()?;
    let is_name = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    is_name.then(|| word.to_owned())
}
