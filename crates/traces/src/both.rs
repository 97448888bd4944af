//! Two things at the same time.
//!
//! `rayon::join` takes up other work while it waits: whoever opens one of many files would begin another one, and hold
//! both. This waits.

use std::panic::resume_unwind;
use std::thread;

/// Items of fewer bytes are not split: a thread would cost more than it saves.
const LARGE: usize = 8 << 20;

/// Does two things at the same time; one after the other where the program has but one thread (`--jobs 1`).
pub fn both<A, B: Send>(first: impl FnOnce() -> A, second: impl FnOnce() -> B + Send) -> (A, B) {
    if rayon::current_num_threads() == 1 {
        return (first(), second());
    }
    thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = first();
        (first, second.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Works on both halves of many items at once, or on all of a few. `work` is told where its part begins.
pub(super) fn halves<T: Send, R: Send>(
    items: &mut [T],
    work: impl Fn(usize, &mut [T]) -> R + Sync,
) -> Vec<R> {
    if size_of_val(items) < LARGE {
        return vec![work(0, items)];
    }
    let middle = items.len() / 2;
    let (front, back) = items.split_at_mut(middle);
    let (front, back) = both(|| work(0, front), || work(middle, back));
    vec![front, back]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_all_there_is() {
        for count in [0, 1, LARGE - 1, LARGE, LARGE + 1] {
            let mut items = vec![0_u8; count];
            let parts = halves(&mut items, |begin, part| {
                part.fill(1);
                (begin, part.len())
            });
            assert!(items.iter().all(|&item| item == 1), "{count}");
            let end = parts.iter().fold(0, |end, &(begin, len)| {
                assert_eq!(begin, end);
                end + len
            });
            assert_eq!((end, parts.len()), (count, 1 + usize::from(count >= LARGE)));
        }
    }
}
