//! Causes: what the numbers of a message leave as the reason.
//!
//! ```text
//!   total of the device   ├─ tensors ─┼─ cached by PyTorch ─┼─ context, libraries ─┼─ others ─┼─ free ─┤
//!                              A                U                                                F       request R
//!   R ≤ F                  memory was there: a limit, a pool or the driver refused
//!   R ≤ F + U              enough, but in pieces: fragmentation is possible
//!   R > F + U              more than there was, whatever the allocator does
//! ```
//!
//! Figures are rounded in the text, so that what is called certain holds for every size that they may stand for.

use super::amount::Amount;
use super::numbers::Numbers;
use super::{Cause, Finding, MemorySummary};
use crate::units::{GIB, MIB, Size};

/// From this share of what PyTorch held on, free memory in pieces is worth a cure; or from this much on.
const WORTH: f64 = 0.05;
const WORTH_BYTES: u64 = GIB;
/// Memory of others below this is the context of CUDA and the like.
const OF_OTHERS: u64 = GIB;
/// Memory that is neither free nor PyTorch's and below this may be the context, libraries and a display.
const MAY_BE_OURS: u64 = 2 * GIB;
/// If a device has less free than this beyond a request, it is full: drivers do not hand out the last of it.
const LAST: u64 = 64 * MIB;
/// The causes that the numbers allow, the likeliest first.
pub(super) fn findings(numbers: &Numbers) -> Vec<Finding> {
    if numbers.is_absurd {
        return vec![wrong_size()];
    }
    let known = [piece(numbers), limit(numbers), larger_than_device(numbers)];
    let found: Vec<Finding> = known.into_iter().flatten().collect();
    if !found.is_empty() {
        return found;
    }
    if let Some(found) = free_yet_refused(numbers) {
        return vec![found];
    }
    let others = others(numbers);
    // What others hold is no need of this job, unless it may be the job's own.
    let is_known = numbers.others().is_some();
    let is_theirs = |one: &Finding| is_known || one.bytes.is_some_and(|all| all >= MAY_BE_OURS);
    let too_much = too_much(numbers).filter(|_| !others.as_ref().is_some_and(is_theirs));
    let found = [fragmentation(numbers), others, too_much];
    let mut found: Vec<Finding> = found.into_iter().flatten().collect();
    // What concerns more memory explains more; what is certain comes first. Of a GPU that only the request would fill,
    // the pieces explain more.
    let is_full = is_full(numbers);
    let is_weak = |one: &Finding| one.cause == Cause::TooMuch && !is_full;
    found.sort_by_key(|one| (!one.is_certain, is_weak(one), std::cmp::Reverse(one.bytes)));
    if found.is_empty() {
        found.push(hidden(numbers).unwrap_or_else(unknown));
    }
    found
}

/// Some drivers give nothing larger than 4 GB in one piece.
fn piece(numbers: &Numbers) -> Option<Finding> {
    let requested = numbers.requested.filter(|_| numbers.is_piece_limited)?;
    let explanation = format!(
        "The driver of this GPU gives at most 4 GB in one piece, and {requested} were requested in \
         one. That is a limit of the driver: neither fragmentation nor a full device."
    );
    Some(Finding::certain(Cause::Limit, None, explanation))
}

/// A request that no state of the device could have served.
fn larger_than_device(numbers: &Numbers) -> Option<Finding> {
    let (total, requested) = (numbers.total?, numbers.requested?);
    if total.may_cover(requested) {
        return None;
    }
    let explanation = format!(
        "More was needed than there is: {requested} were requested at once, and the whole GPU has \
         {total}. No setting of the allocator helps."
    );
    let bytes = numbers.allocated.map(|allocated| allocated.bytes);
    Some(Finding::certain(Cause::TooMuch, bytes, explanation))
}

/// Where a message does not say what was free, and PyTorch held so little that the device cannot have been full of it.
fn hidden(numbers: &Numbers) -> Option<Finding> {
    let (total, requested, held) = (numbers.total?, numbers.requested?, numbers.reserved()?);
    let rest = total.less(held);
    if numbers.free.is_some() || !rest.surely_covers(requested) {
        return None;
    }
    let explanation = format!(
        "Not fragmentation: PyTorch held {held} of the {total} of this GPU, and {requested} were \
         requested. The message does not say how much of the other {rest} was free. Either other \
         processes held it, or the driver refused."
    );
    Some(Finding::possible(Cause::FreeYetRefused, Some(rest.bytes), explanation))
}

fn limit(numbers: &Numbers) -> Option<Finding> {
    let allowed = numbers.allowed?;
    let held = numbers.reserved().or(numbers.allocated)?;
    let Some(requested) = numbers.requested else { return nearly_reached(allowed, held) };
    if !(held + requested).may_cover(allowed) {
        return None;
    }
    let is_certain = numbers.free.is_some_and(|free| free.surely_covers(requested));
    let free = match numbers.free {
        Some(free) => format!(" The device itself had {free} free."),
        None => String::new(),
    };
    let explanation = format!(
        "This process has a memory limit of {allowed}. PyTorch had {held} when {requested} more was \
         requested.{free}"
    );
    Some(Finding { cause: Cause::Limit, is_certain, bytes: Some(allowed.bytes), explanation })
}

/// The limit of a message whose request was not copied.
fn nearly_reached(allowed: Amount, held: Amount) -> Option<Finding> {
    let explanation = format!(
        "This process has a memory limit of {allowed}. PyTorch had {held}. The text does not say how \
         much more was requested."
    );
    let is_reached = held.bytes as f64 >= (1.0 - WORTH) * allowed.bytes as f64;
    let found = Finding::possible(Cause::Limit, Some(allowed.bytes), explanation);
    is_reached.then_some(found)
}

fn free_yet_refused(numbers: &Numbers) -> Option<Finding> {
    let (free, requested) = (numbers.free?, numbers.requested?);
    if !free.surely_covers(requested + Amount::exact(LAST)) {
        return None;
    }
    let mut explanation = format!(
        "Not fragmentation, and not a full device: {free} was free for a request of {requested}. \
         Something else refused it: a MemPool or a CUDA graph capture, the driver (a container or \
         MIG limit, too many mappings), or another process that freed its memory a moment later."
    );
    // The message is whole, as its last figure is there.
    explanation += match (numbers.unallocated, numbers.allowed) {
        (Some(_), None) => " No memory fraction was set: the message would name it.",
        _ => " A memory fraction is possible, too.",
    };
    Some(Finding::certain(Cause::FreeYetRefused, Some(free.bytes), explanation))
}

fn fragmentation(numbers: &Numbers) -> Option<Finding> {
    let (unallocated, requested) = (numbers.unallocated?, numbers.requested?);
    let (held, free) = (numbers.reserved()?, numbers.free.unwrap_or(Amount::exact(0)));
    let is_enough = (unallocated + free).may_cover(requested);
    let share = unallocated.bytes as f64 / held.bytes.max(1) as f64;
    if !is_enough || (share < WORTH && unallocated.bytes < WORTH_BYTES) {
        return None;
    }
    let explanation = format!(
        "Fragmentation is possible: {unallocated} of the {held} that PyTorch reserved was free \
         ({:.0} %), but not in one block large enough for {requested}. The message does not say \
         how large the free blocks were.",
        100.0 * share
    );
    Some(Finding::possible(Cause::Fragmentation, Some(unallocated.bytes), explanation))
}

fn others(numbers: &Numbers) -> Option<Finding> {
    let missing = match numbers.requested {
        Some(requested) => requested.less(numbers.free.unwrap_or(Amount::exact(0))),
        // Of a message that begins late the request is not known: then the device must be full.
        None => numbers.free.filter(|free| free.bytes < LAST).map(|_| Amount::exact(0))?,
    };
    let is_enough = |amount: Amount| amount.bytes >= OF_OTHERS && amount.may_cover(missing);
    let (amount, explanation) = match numbers.others() {
        Some(others) => (others, of_named(numbers, others)),
        // The message does not say what this process held: the rest is its context, or others.
        None => numbers.rest().map(|rest| (rest, of_rest(numbers, rest)))?,
    };
    let found = Finding::possible(Cause::OtherProcesses, Some(amount.bytes), explanation);
    is_enough(amount).then_some(found)
}

fn of_named(numbers: &Numbers, others: Amount) -> String {
    let named = numbers.named.iter();
    let named: Vec<String> =
        named.map(|(number, amount)| format!("process {number} holds {amount}")).collect();
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    let mut text = match numbers.this_at_most {
        None => format!("Other processes held {others} of this GPU{named}."),
        Some(_) => {
            format!(
                "Other processes held at least {others} of this GPU: one is this process{named}."
            )
        }
    };
    if numbers.requested.is_some() {
        text += " Without them the request would have succeeded.";
    }
    text
}

/// The words about memory that is neither free nor PyTorch's.
fn of_rest(numbers: &Numbers, rest: Amount) -> String {
    let mut text = format!(
        "{rest} of this GPU was neither free nor PyTorch's. It belongs to other processes, or to \
         libraries and the CUDA context of this one (usually below 1 GiB). nvidia-smi tells which."
    );
    if numbers.unallocated.is_none() {
        text += " It includes PyTorch's free cache; the message does not say how much that is.";
    }
    text
}

fn too_much(numbers: &Numbers) -> Option<Finding> {
    let (allocated, requested) = (numbers.allocated?, numbers.requested?);
    let room = room(numbers, allocated)?;
    let bytes = Some(allocated.bytes);
    if !room.less(allocated).may_cover(requested) {
        let missing = requested.less(room.less(allocated));
        let explanation = format!(
            "The job needs more than the GPU has: live tensors took {allocated} of the {room} that \
             PyTorch could use, leaving {} for a request of {requested}. Even without \
             fragmentation {missing} is missing, so no allocator setting helps.",
            room.less(allocated)
        );
        return Some(Finding::certain(Cause::TooMuch, bytes, explanation));
    }
    let share = (allocated + requested).bytes as f64 / room.bytes.max(1) as f64;
    let spare = room.less(allocated + requested).above_doubt();
    let gain = match spare.bytes {
        0 => "No setting of the allocator helps.".to_owned(),
        _ => format!("No setting of the allocator gains more than the other {spare}."),
    };
    let explanation = format!(
        "The GPU is nearly full: with the {requested} requested, {:.1} % of the {room} that PyTorch \
         could use would be in live tensors. {gain}",
        100.0 * share.min(1.0)
    );
    let found = Finding::possible(Cause::TooMuch, bytes, explanation);
    (share >= 1.0 - WORTH).then_some(found)
}

/// Whether tensors filled what PyTorch could have, without the request.
fn is_full(numbers: &Numbers) -> bool {
    let of_room = |allocated: Amount| {
        Some(allocated.bytes as f64 / room(numbers, allocated)?.bytes.max(1) as f64)
    };
    numbers.allocated.and_then(of_room).is_some_and(|share| share >= 1.0 - 2.0 * WORTH)
}

/// All that PyTorch could have of the device. Where a part of it is not known, the whole device bounds it.
fn room(numbers: &Numbers, allocated: Amount) -> Option<Amount> {
    if let (Some(unallocated), Some(free)) = (numbers.unallocated, numbers.free) {
        return Some(allocated + unallocated + free);
    }
    // What is neither free nor in tensors is no more than a context takes.
    let is_context = numbers.rest().is_some_and(|rest| rest.bytes < OF_OTHERS);
    let held = numbers.free.filter(|_| is_context).map(|free| allocated + free);
    held.or(numbers.total).or(numbers.allowed)
}

fn wrong_size() -> Finding {
    let explanation = "The size is wrong: more than an exabyte was requested, as happens when a \
                       shape overflows or is negative. No device has that much.";
    Finding::certain(Cause::WrongSize, None, explanation)
}

pub(super) fn unknown() -> Finding {
    let explanation = "The text does not say what held the memory, so the cause cannot be known. \
                       Paste the whole message, from \"out of memory\" to its end.";
    Finding::possible(Cause::Unknown, None, explanation)
}

/// What the table of `memory_summary()` leaves as a cause.
pub(super) fn of_summary(summary: &MemorySummary) -> Finding {
    const NONE: &str = "No request had failed by then.";
    let rows = (summary.row("Allocated memory"), summary.row("GPU reserved memory"));
    let (Some(allocated), Some(reserved)) = rows else {
        let known = |row: [u64; 4]| format!(" At the peak {} were in tensors.", Size(row[1]));
        let known = rows.0.map_or(String::new(), known);
        let words = match summary.ooms {
            Some(0) => format!("{NONE} The table ends before it says what PyTorch held."),
            _ => "The table ends before it says what PyTorch held, so the cause cannot be known."
                .to_owned(),
        };
        let explanation = format!("{words}{known} Paste all of torch.cuda.memory_summary().");
        return Finding::possible(Cause::Unknown, None, explanation);
    };
    let cached = reserved[0].saturating_sub(allocated[0]);
    let pieces = summary.row("Non-releasable memory").map_or(0, |row| row[0]);
    let peaks = format!(
        "At the peak PyTorch reserved {} for {} of tensors. When the table was printed {} was free, \
         {} of it in segments that are partly in use.",
        Size(reserved[1]),
        Size(allocated[1]),
        Size(cached),
        Size(pieces)
    );
    let share = reserved[1].saturating_sub(allocated[1]) as f64 / reserved[1].max(1) as f64;
    let (cause, words) = match summary.ooms {
        Some(0) => (Cause::Unknown, NONE),
        _ if share >= 2.0 * WORTH => (
            Cause::Fragmentation,
            "Fragmentation is possible. The table does not say which request failed, nor how large \
             the free blocks were.",
        ),
        _ => (
            Cause::TooMuch,
            "Nearly all of it was live tensors at the peak, so this is not fragmentation.",
        ),
    };
    Finding::possible(cause, Some(pieces), format!("{words} {peaks}"))
}
