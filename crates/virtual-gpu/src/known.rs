//! Known bytes: the parts of device memory whose contents are those that a real GPU would hold.
//!
//! Copies and memsets are done, and what they write is known. Kernels are not, so what they write is unknown, unless it
//! was computed on the host. A copy from device to device takes the state of its source along:
//!
//! ```text
//!   known   ██████░░░░████████░░░░        copy [a, b) to c
//!           a         b                   c: ██████░░░░
//! ```
//!
//! Memory is unknown at first. The set holds disjoint ranges that do not touch, so a question costs a search.

use gmlake_core::ranges::Ranges;

/// A set of bytes, as ranges of addresses.
#[derive(Debug, Default, Clone)]
pub struct Known {
    ranges: Ranges<()>,
}

impl Known {
    /// Adds the `bytes` bytes from `at` on.
    pub fn add(&mut self, at: u64, bytes: u64) {
        self.ranges.set(at..at + bytes, ());
    }

    /// Takes the `bytes` bytes from `at` on out of the set.
    pub fn remove(&mut self, at: u64, bytes: u64) {
        self.ranges.take(at..at + bytes);
    }

    /// Whether all of the `bytes` bytes from `at` on are in the set.
    pub fn holds(&self, at: u64, bytes: u64) -> bool {
        let first = self.ranges.within(at..at + bytes).next();
        bytes == 0 || first.is_some_and(|(part, ())| part == (at..at + bytes))
    }

    /// Makes the state of `bytes` bytes from `to` on that of the bytes from `from` on.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        let parts: Vec<_> = self.ranges.within(from..from + bytes).map(|(part, ())| part).collect();
        self.remove(to, bytes);
        for part in parts {
            self.add(to + (part.start - from), part.end - part.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same set as a flag for each byte.
    struct Flags([bool; 64]);

    impl Flags {
        fn set(&mut self, at: u64, bytes: u64, to: bool) {
            self.0[at as usize..(at + bytes) as usize].fill(to);
        }
    }

    proptest! {
        #[test]
        fn ranges_are_what_flags_are(
            script in prop::collection::vec((0..3, 0u64..48, 0u64..16, 0u64..48), 1..60)
        ) {
            let (mut known, mut flags) = (Known::default(), Flags([false; 64]));
            for (what, at, bytes, from) in script {
                match what {
                    0 => { known.add(at, bytes); flags.set(at, bytes, true); }
                    1 => { known.remove(at, bytes); flags.set(at, bytes, false); }
                    _ => {
                        known.copy(at, from, bytes);
                        let source = from as usize..(from + bytes) as usize;
                        flags.0.copy_within(source, at as usize);
                    }
                }
                for at in 0..64u64 {
                    prop_assert_eq!(known.holds(at, 1), flags.0[at as usize], "byte {}", at);
                }
            }
        }
    }

    #[test]
    fn nothing_is_always_known() {
        assert!(Known::default().holds(5, 0) && !Known::default().holds(5, 1));
    }
}
