//! The book of what a device has given out and what is mapped where: it tells how many handles and bytes a call is
//! about.
//!
//! Allocators that work in chunks map them by the million, side by side and all of one size. Such a row is remembered
//! as one run, which is cut where a part of it is unmapped:
//!
//! ```text
//!   map(at, 6 chunks)        ├──┼──┼──┼──┼──┼──┤     one run of 6
//!   unmap(the third)         ├──┼──┤  ├──┼──┼──┤     a run of 2, and one of 3
//! ```

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::call::{Amount, Call, DriverCall};
use super::{DevicePtr, HandleId};
use gmlake_core::units::Bytes;

/// Handles of one size, mapped side by side.
#[derive(Debug, Clone, Copy)]
struct Run {
    each: Bytes,
    count: u64,
}

/// What a device has given out, and what is mapped where.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    /// Bytes of memory that were given out and not given back.
    pub(super) held: Bytes,
    mallocs: FxHashMap<DevicePtr, Bytes>,
    handles: Vec<Bytes>,
    /// Where each run of mappings begins.
    mapped: BTreeMap<DevicePtr, Run>,
}

impl Run {
    /// How many of the mappings of a run at `at` begin before `border`.
    fn before(self, at: DevicePtr, border: DevicePtr) -> u64 {
        let distance = border.0.saturating_sub(at.0);
        if self.each == 0 { 0 } else { distance.div_ceil(self.each).min(self.count) }
    }
}

fn size_in(sizes: &[Bytes], handle: HandleId) -> Bytes {
    sizes.get(handle.0 as usize).copied().unwrap_or(0)
}

impl Book {
    /// A call comes next: says what it is about, and strikes out what it gives back.
    pub(super) fn before(&mut self, mut call: DriverCall<'_>) -> Amount {
        match call.call {
            Call::MemFree => {
                call.amount.size = self.mallocs.remove(&call.at).unwrap_or(0);
                self.held -= call.amount.size;
            }
            Call::Release => {
                call.amount.size = call.handles.first().map_or(0, |&handle| self.size(handle));
                self.held -= call.amount.size * call.handles.len() as u64;
            }
            Call::Map => call.amount = self.of(call.handles),
            Call::SetAccess if call.row.is_none() => {
                call.amount = self.within(call.at, call.amount.size);
            }
            Call::Unmap => call.amount = self.unmap(call.at, call.amount.size),
            _ => {}
        }
        call.amount
    }

    /// A call was made: notes what it gave.
    pub(super) fn after(&mut self, call: DriverCall<'_>) {
        let size = call.amount.size;
        match call.call {
            Call::MemAlloc if call.is_done() => {
                self.mallocs.insert(call.at, size);
                self.held += size;
            }
            Call::Create => {
                call.handles.iter().for_each(|&handle| self.create(handle, size));
                self.held += size * call.handles.len() as u64;
            }
            Call::Map if call.is_done() => self.map(call.at, call.handles),
            _ => {}
        }
    }

    fn create(&mut self, handle: HandleId, size: Bytes) {
        let place = handle.0 as usize;
        if place >= self.handles.len() {
            self.handles.resize(place + 1, 0);
        }
        self.handles[place] = size;
    }

    /// Size of a handle; nothing, if that is unknown.
    fn size(&self, handle: HandleId) -> Bytes {
        size_in(&self.handles, handle)
    }

    fn of(&self, handles: &[HandleId]) -> Amount {
        let size = handles.iter().map(|&handle| self.size(handle)).sum();
        Amount { handles: handles.len() as u64, size }
    }

    /// How many handles of one size come next, and then of the next size.
    pub(super) fn rows(&self, handles: &[HandleId]) -> Vec<usize> {
        handles.chunk_by(|&a, &b| self.size(a) == self.size(b)).map(<[_]>::len).collect()
    }

    fn map(&mut self, at: DevicePtr, handles: &[HandleId]) {
        let Self { handles: sizes, mapped, .. } = self;
        let mut place = at;
        for row in handles.chunk_by(|&a, &b| size_in(sizes, a) == size_in(sizes, b)) {
            let (each, count) = (size_in(sizes, row[0]), row.len() as u64);
            if each > 0 {
                mapped.insert(place, Run { each, count });
            }
            place = place.offset(each * count);
        }
    }

    /// Handles mapped between `at` and `at + size`.
    fn within(&self, at: DevicePtr, size: Bytes) -> Amount {
        let end = at.offset(size);
        let first = self.mapped.range(..at).next_back();
        let runs = first.into_iter().chain(self.mapped.range(at..end));
        let handles = runs.map(|(&place, run)| run.before(place, end) - run.before(place, at));
        Amount { handles: handles.sum(), size }
    }

    /// Whether `count` handles of `size` bytes each are mapped side by side from `at`.
    pub(super) fn are_side_by_side(&self, at: DevicePtr, size: Bytes, count: usize) -> bool {
        let run = self.mapped.range(..=at).next_back();
        run.is_some_and(|(&place, run)| {
            let skipped = at.0 - place.0;
            run.each == size
                && skipped.is_multiple_of(size)
                && skipped / size + count as u64 <= run.count
        })
    }

    fn unmap(&mut self, at: DevicePtr, size: Bytes) -> Amount {
        let end = at.offset(size);
        let mut handles = 0;
        let first = self.mapped.range(..at).next_back().map(|(&place, _)| place);
        let inside: Vec<_> = self.mapped.range(at..end).map(|(&place, _)| place).collect();
        for place in first.into_iter().chain(inside) {
            let Some(run) = self.mapped.remove(&place) else { continue };
            let (kept, gone) = (run.before(place, at), run.before(place, end));
            handles += gone - kept;
            if kept > 0 {
                self.mapped.insert(place, Run { count: kept, ..run });
            }
            if gone < run.count {
                let rest = place.offset(gone * run.each);
                self.mapped.insert(rest, Run { count: run.count - gone, ..run });
            }
        }
        Amount { handles, size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::MIB;

    #[test]
    fn what_is_unknown_has_no_size() {
        let mut book = Book::default();
        let freed =
            |book: &mut Book| book.before(DriverCall::new(Call::MemFree, DevicePtr(8), 1, 0));
        assert_eq!(freed(&mut book).size, 0);
        book.after(DriverCall::new(Call::MemAlloc, DevicePtr(8), 1, 512));
        assert_eq!(book.held, 512);
        assert_eq!((freed(&mut book), book.held), (Amount { handles: 1, size: 512 }, 0));
    }

    /// The obvious twin of the runs: every mapping by itself.
    #[derive(Default)]
    struct OneByOne(BTreeMap<DevicePtr, Bytes>);

    impl OneByOne {
        fn map(&mut self, at: DevicePtr, sizes: &[Bytes]) {
            let mut place = at;
            for &size in sizes {
                self.0.insert(place, size);
                place = place.offset(size);
            }
        }

        fn within(&self, at: DevicePtr, size: Bytes) -> u64 {
            self.0.range(at..at.offset(size)).count() as u64
        }

        fn unmap(&mut self, at: DevicePtr, size: Bytes) -> u64 {
            let before = self.0.len();
            self.0.retain(|&place, _| place < at || place >= at.offset(size));
            (before - self.0.len()) as u64
        }
    }

    proptest::proptest! {
        #[test]
        fn runs_count_as_single_mappings_do(
            steps in proptest::collection::vec((0_u64..12, 0_usize..3, 1_usize..8), 1..60),
        ) {
            // Handle 0 has 2 MiB, handle 1 has 4 MiB; each place is a range of 32 MiB of its own.
            let mut runs = Book::default();
            let mut twin = OneByOne::default();
            runs.create(HandleId(0), 2 * MIB);
            runs.create(HandleId(1), 4 * MIB);
            for (place, what, count) in steps {
                let base = DevicePtr((1 << 32) + place / 3 * 32 * MIB);
                let at = base.offset(place % 3 * 4 * MIB);
                let size = count as u64 * 4 * MIB;
                if what < 2 {
                    runs.unmap(base, 32 * MIB);
                    twin.unmap(base, 32 * MIB);
                    let handles: Vec<_> =
                        (0..count).map(|i| HandleId((i % 3 == what) as u32)).collect();
                    let sizes: Vec<_> = handles.iter().map(|&handle| runs.size(handle)).collect();
                    runs.map(base, &handles);
                    twin.map(base, &sizes);
                } else {
                    proptest::prop_assert_eq!(runs.unmap(at, size).handles, twin.unmap(at, size));
                }
                proptest::prop_assert_eq!(runs.within(at, size).handles, twin.within(at, size));
                let is_here = |i| twin.0.get(&at.offset(i * 2 * MIB)) == Some(&(2 * MIB));
                let all = (0..count as u64).all(is_here);
                if runs.are_side_by_side(at, 2 * MIB, count) {
                    proptest::prop_assert!(all);
                }
            }
        }
    }
}
