//! History of what was asked for, in order, and where it went: a program that repeats itself is given the same places
//! again.
//!
//! A training step asks for what the step before asked for. If each request goes where its like went then, it finds
//! that place mapped and free, however long it took to stitch it once. So the last requests are kept, and while new
//! ones come in the same order, we *follow* the old ones. When they part, we look for another place in the history
//! where the last few requests were the same; of several, the one that agrees with what came before for longest:
//! layers of one step are alike, but only the same layer of the step before has the whole step before it.
//!
//! ```text
//!   history     a b c  x x x x x x  d e │ a b c  x x x x ?
//!               ╰─────────┬───────╯       ╰────┬─────╯
//!                         ╰─ followed ←────────╯   ?: the fifth x went there
//! ```
//!
//! How far two places of the history agree is found from hashes of all that came before each, in a few steps: if hashes
//! mislead us, a request is sent to a place that is not free or not the best, and nothing worse.

use crate::allocator::BlockId;
use crate::device::DevicePtr;
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

/// Requests that are remembered, in 11 MiB of the host's memory. A step has up to 20 thousand that are large enough to
/// come here; where lengths vary, a like one may be several steps back.
const KEPT: u64 = 1 << 17;

/// Requests that must be the same, the one at hand among them, to follow a place of the history.
const ALIKE: u64 = 16;

/// Places with the same last requests that are looked at.
const CANDIDATES: usize = 128;

/// Odd, and with its bits well mixed: hashes are polynomials in it.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

const POWER_COUNT: usize = KEPT.ilog2() as usize + 1;

/// `BASE` to the powers 1, 2, 4, ... up to `KEPT`.
const POWERS: [u64; POWER_COUNT] = {
    let mut powers = [BASE; POWER_COUNT];
    let mut place = 1;
    while place < powers.len() {
        powers[place] = powers[place - 1].wrapping_mul(powers[place - 1]);
        place += 1;
    }
    powers
};

/// What a program asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) stream: StreamId,
    pub(super) size: Bytes,
}

impl Asked {
    /// Not zero, so that what came before the first request is like nothing.
    fn code(self) -> u64 {
        self.size ^ (u64::from(self.stream.0) << 48)
    }
}

/// Where a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) at: DevicePtr,
    /// The view in which that is; none: the arena.
    pub(super) view: Option<BlockId>,
}

/// No place in the history.
const NOWHERE: u64 = u64::MAX;

#[derive(Debug, Clone)]
struct Entry {
    asked: Asked,
    spot: Spot,
    /// The request before this one in its row.
    before: u64,
}

/// The last requests, and where we are in them. Requests are numbered from the first one on.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// Request number `n` is at `n % KEPT`.
    entries: Vec<Entry>,
    /// Hashes of all that was asked for up to each of them.
    hashes: Vec<u64>,
    /// The number of the next request.
    next: u64,
    /// The last request of each row. Those with the same last few requests before them are in the same row.
    rows: Vec<u64>,
    /// The request that the next one is expected to be like.
    followed: Option<u64>,
}

impl History {
    /// Where the same request went when the program was last here.
    #[inline]
    pub(super) fn expect(&mut self, asked: Asked) -> Option<Spot> {
        let is_alike = |at| self.entry(at).is_some_and(|entry| entry.asked == asked);
        if !self.followed.is_some_and(is_alike) {
            self.followed = self.most_alike(asked);
        }
        self.followed.and_then(|at| self.entry(at)).map(|entry| entry.spot)
    }

    #[inline]
    pub(super) fn note(&mut self, asked: Asked, spot: Spot) {
        if self.rows.is_empty() {
            self.rows = vec![NOWHERE; KEPT as usize];
        }
        let hash = self.hash_with(asked);
        let row = self.row(hash);
        let before = std::mem::replace(&mut self.rows[row], self.next);
        let entry = Entry { asked, spot, before };
        let place = (self.next % KEPT) as usize;
        if place == self.entries.len() {
            self.entries.push(entry);
            self.hashes.push(hash);
        } else {
            self.entries[place] = entry;
            self.hashes[place] = hash;
        }
        self.next += 1;
        self.followed = self.followed.map(|at| at + 1);
    }

    /// Where the request with this number is, if it is remembered.
    #[inline]
    fn place(&self, at: u64) -> Option<usize> {
        let is_kept = at < self.next && self.next - at <= KEPT;
        is_kept.then_some((at % KEPT) as usize)
    }

    /// The request with this number, if it is remembered.
    #[inline]
    fn entry(&self, at: u64) -> Option<&Entry> {
        self.place(at).map(|place| &self.entries[place])
    }

    /// Hash of all requests before this one; 0 if they are forgotten.
    #[inline]
    fn hash_before(&self, at: u64) -> u64 {
        let last = at.checked_sub(1).and_then(|last| self.place(last));
        last.map_or(0, |place| self.hashes[place])
    }

    /// Hash of all requests so far, this one at their end.
    fn hash_with(&self, asked: Asked) -> u64 {
        self.hash_before(self.next).wrapping_mul(BASE).wrapping_add(asked.code())
    }

    /// The row of the request at hand, out of the hash of all requests so far with it: by the last few of them.
    fn row(&self, hash: u64) -> usize {
        let begin = (self.next + 1).saturating_sub(ALIKE);
        let last = hash.wrapping_sub(self.hash_before(begin).wrapping_mul(power(ALIKE)));
        (last >> (u64::BITS - KEPT.ilog2())) as usize
    }

    /// Among the places with the same last few requests, the one that agrees with us for longest; the latest of equals.
    #[cold]
    fn most_alike(&self, asked: Asked) -> Option<u64> {
        let row = self.row(self.hash_with(asked));
        let (mut candidate, mut best) = (*self.rows.get(row)?, None);
        let mut longer = ALIKE - 1;
        for _ in 0..CANDIDATES {
            let Some(entry) = self.entry(candidate) else { break };
            if entry.asked == asked && self.agrees(candidate, longer) {
                longer = self.agreement(candidate, longer) + 1;
                best = Some(candidate);
            }
            candidate = entry.before;
        }
        best
    }

    /// Whether that many requests before number `at` are the same as the last ones.
    fn agrees(&self, at: u64, length: u64) -> bool {
        let power = power(length);
        let hash = |end: u64| {
            let begin = self.hash_before(end - length);
            self.hash_before(end).wrapping_sub(begin.wrapping_mul(power))
        };
        length <= at && self.place(at - length).is_some() && hash(at) == hash(self.next)
    }

    /// How many requests before number `at` are the same as the last ones; at least this many are.
    fn agreement(&self, at: u64, least: u64) -> u64 {
        let steps = (0..POWERS.len()).rev().map(|place| 1 << place);
        steps.fold(
            least,
            |length, more| {
                if self.agrees(at, length + more) { length + more } else { length }
            },
        )
    }
}

/// `BASE` to that power.
fn power(exponent: u64) -> u64 {
    let is_set = |&place: &usize| exponent >> place & 1 == 1;
    (0..POWERS.len()).filter(is_set).fold(1, |product, place| product.wrapping_mul(POWERS[place]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(size: Bytes) -> Asked {
        Asked { stream: StreamId(0), size }
    }

    /// The spot of request number `n`.
    fn spot(n: usize) -> Spot {
        Spot { at: DevicePtr(n as u64), view: None }
    }

    /// Each request's number, and that of the one that it is expected to be like.
    fn expectations(requests: &[Asked]) -> Vec<Option<usize>> {
        let mut history = History::default();
        let expect = |(n, &asked): (usize, &Asked)| {
            let expected = history.expect(asked);
            history.note(asked, spot(n));
            expected.map(|spot| spot.at.0 as usize)
        };
        requests.iter().enumerate().map(expect).collect()
    }

    /// The obvious twin: compares request by request.
    fn plain_expectations(requests: &[Asked]) -> Vec<Option<usize>> {
        let alike = |a: usize, b: usize| {
            (0..=a.min(b)).take_while(|&back| requests[a - back] == requests[b - back]).count()
        };
        let mut followed: Option<usize> = None;
        let expect = |n: usize| {
            followed = followed.map(|at| at + 1).filter(|&at| requests[at] == requests[n]);
            if followed.is_none() {
                let places = (0..n).rev().filter(|&at| at >= 15 && alike(at, n) >= 16);
                followed = places.take(CANDIDATES).max_by_key(|&at| (alike(at, n), at));
            }
            followed
        };
        (0..requests.len()).map(expect).collect()
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut history = History::default();
        for n in 0..3 * KEPT {
            assert_eq!(history.expect(asked(n)), None);
            history.note(asked(n), spot(n as usize));
        }
        assert_eq!(history.entries.len(), KEPT as usize);
        for n in 0..40 {
            assert_eq!(history.expect(asked(n)), None, "request {n} was long ago");
            history.note(asked(n), spot(0));
        }
    }

    proptest! {
        #[test]
        fn the_same_is_expected_as_by_the_obvious_twin(
            parts in prop::collection::vec((1..4_u64, 1..40_usize), 1..30),
            noise in prop::collection::vec((0..1000_usize, 1..4_u64), 0..8),
        ) {
            let part = |(kind, length): (u64, usize)| {
                (0..length as u64).map(move |n| asked(kind * 8 + n % 8))
            };
            let mut requests: Vec<_> = parts.into_iter().flat_map(part).collect();
            requests.extend_from_within(..);
            requests.extend_from_within(..);
            for (place, size) in noise {
                let place = place % requests.len();
                requests[place] = asked(size);
            }
            prop_assert_eq!(expectations(&requests), plain_expectations(&requests));
        }
    }
}
