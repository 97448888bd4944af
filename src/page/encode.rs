//! Numbers as they are written in a page: bytes in base64, seven bits of a number in each byte, small ones in one.
//!
//! A timeline that does not change costs nothing, and one that does costs what it changes by. `js/decode.js` is the
//! other end of this.

use base64::prelude::{BASE64_STANDARD, Engine};

use crate::simulation::Range;
use crate::units::Bytes;

/// A row of numbers, written one after the other.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    bytes: Vec<u8>,
}

impl Numbers {
    /// A whole number: seven bits in each byte, the lowest first; the eighth bit says that there are more.
    pub(super) fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// The difference of two numbers: its lowest bit says whether it is negative.
    pub(super) fn push_change(&mut self, from: u64, to: u64) {
        match to.checked_sub(from) {
            Some(rise) => self.push(rise << 1),
            None => self.push((from - to) << 1 | 1),
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// As text.
    pub(super) fn finish(self) -> String {
        BASE64_STANDARD.encode(self.bytes)
    }
}

/// One number out of each bucket of a timeline: how many buckets repeat the one before, then the change of the lowest
/// value, and how far the highest one is above it; and so on.
pub(super) fn ranges(buckets: &[Range], value: impl Fn(&Range) -> (Bytes, Bytes)) -> String {
    let mut numbers = Numbers::default();
    let (mut last, mut repeats) = ((0, 0), 0);
    for bucket in buckets {
        let (low, high) = value(bucket);
        if (low, high) == last {
            repeats += 1;
            continue;
        }
        numbers.push(repeats);
        numbers.push_change(last.0, low);
        numbers.push(high - low);
        (last, repeats) = ((low, high), 0);
    }
    numbers.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Held;

    #[test]
    fn numbers_are_written_as_the_page_reads_them() {
        let mut numbers = Numbers::default();
        for value in [0, 127, 128, 300, u64::MAX] {
            numbers.push(value);
        }
        let all = [
            &[0, 127, 0x80, 1, 0xac, 2][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ];
        assert_eq!(numbers.bytes, all.concat());
    }

    #[test]
    fn what_stays_the_same_costs_nothing() {
        let range = |low, high| {
            let held = |reserved| Held { reserved, ..Held::default() };
            Range { low: held(low), high: held(high) }
        };
        let reserved = |range: &Range| (range.low.reserved, range.high.reserved);
        let buckets = [range(5, 7), range(5, 7), range(5, 7), range(2, 2)];
        let expected = BASE64_STANDARD.encode([0, 10, 2, 2, 7, 0]);
        assert_eq!(ranges(&buckets, reserved), expected);
        assert_eq!(ranges(&[range(0, 0); 9], reserved), "");
    }
}
