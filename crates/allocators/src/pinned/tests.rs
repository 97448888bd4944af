//! Versions and settings, one by one; then random programs, against a twin in plain words.

use gmlake_core::alloc_conf::{AllocConf, PinnedConf, TorchVersion};
use gmlake_core::units::{Bytes, GIB, MIB};
use proptest::prelude::*;

use super::{ExactPinned, Pinned, PinnedBlock};

fn version(minor: u16) -> TorchVersion {
    TorchVersion { major: 2, minor }
}

fn pinned(text: &str, minor: u16) -> Pinned {
    let conf = AllocConf::parse(text, version(minor)).unwrap().pinned;
    Pinned::new(conf, version(minor))
}

fn bytes_of(pinned: &Pinned) -> (i64, i64) {
    let (calls, bytes) = pinned.driver();
    (calls.allocated, bytes.current)
}

#[test]
fn a_request_is_rounded_and_its_block_is_used_again() {
    let mut host = pinned("", 11);
    let first = host.alloc(21 * GIB);
    assert_eq!(bytes_of(&host), (1, 32 * GIB as i64));
    host.free(first);
    assert_eq!(host.alloc(17 * GIB), first);
    host.free(first);
    host.empty_cache();
    assert_eq!(bytes_of(&host), (1, 0));
}

#[test]
fn a_block_in_use_on_a_stream_comes_back_when_its_work_is_done() {
    let mut host = pinned("", 11);
    let first = host.alloc(1000);
    host.use_on(first, 7);
    host.use_on(first, 8);
    host.free(first);
    host.done(Some(7));
    assert_ne!(host.alloc(1000), first, "stream 8 still uses it");
    host.done(None);
    assert_eq!(host.alloc(1000), first);
}

#[test]
fn above_the_thresholds_sizes_are_exact_and_nothing_is_kept() {
    let mut host = pinned("pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:2", 13);
    let [small, middle, large] = [700, MIB + 1, 3 * MIB].map(|bytes| host.alloc(bytes));
    assert_eq!([small, middle, large].map(|block| host.size(block)), [1024, MIB + 1, 3 * MIB]);
    host.free(large);
    assert_eq!(bytes_of(&host), (3, MIB as i64 + 2 * 4096));
    host.free(middle);
    host.empty_cache();
    assert_eq!(bytes_of(&host), (3, 4096));
}

#[test]
fn version_2_13_hands_out_a_block_that_is_too_small() {
    for (minor, is_too_small) in [(13, true), (14, false)] {
        let mut host = pinned("pinned_max_round_threshold_mb:128", minor);
        let first = host.alloc(150 * MIB);
        host.free(first);
        let second = host.alloc(200 * MIB);
        assert_eq!(host.size(second) < 200 * MIB, is_too_small, "2.{minor}");
    }
}

#[test]
fn the_reserved_segment_serves_the_first_requests_and_stays() {
    let mut host = pinned("pinned_reserve_segment_size_mb:1", 12);
    let first = host.alloc(100);
    assert_eq!(bytes_of(&host), (1, MIB as i64));
    host.free(first);
    host.empty_cache();
    let large = host.alloc(MIB);
    assert_eq!(bytes_of(&host), (2, 2 * MIB as i64));
    host.free(large);
    host.empty_cache();
    assert_eq!(bytes_of(&host), (2, MIB as i64));
}

#[test]
fn a_thread_in_the_background_finds_what_is_done() {
    let mut host = pinned("pinned_use_background_threads:True", 11);
    let [first, second] = [1000, 1000].map(|bytes| host.alloc(bytes));
    for (block, stream) in [(first, 1), (second, 2)] {
        host.use_on(block, stream);
        host.free(block);
    }
    host.done(Some(2));
    assert_eq!(host.stats().active_requests.current, 2, "the oldest comes first");
    host.done(Some(1));
    assert_eq!(host.stats().active_requests.current, 0);
}

/// A step of a program; numbers choose among the blocks in use, sizes and streams.
type Step = (u8, usize, u64);

/// PyTorch 2.15 in the plainest words: all blocks in one list, and all decisions by looking through it.
#[derive(Default)]
struct Twin {
    /// Size, and what it is doing: in use, waiting for streams, free since a moment, or gone.
    blocks: Vec<(Bytes, Doing)>,
    clock: usize,
}

#[derive(Clone, PartialEq)]
enum Doing {
    Use(Vec<u64>),
    Wait(usize, Vec<u64>),
    Free(usize),
    Gone,
}

impl Twin {
    fn moment(&mut self) -> usize {
        self.clock += 1;
        self.clock
    }

    /// Blocks come back in the order in which they were freed, up to one that still waits.
    fn collect(&mut self, keeps: Bytes) {
        loop {
            let waiting = self.blocks.iter().enumerate().filter_map(|(at, block)| match &block.1 {
                Doing::Wait(since, streams) => Some((*since, streams.is_empty(), at)),
                _ => None,
            });
            let Some((_, true, at)) = waiting.min() else { return };
            let since = self.moment();
            let is_kept = self.blocks[at].0 <= keeps;
            self.blocks[at].1 = if is_kept { Doing::Free(since) } else { Doing::Gone };
        }
    }

    fn alloc(&mut self, bytes: Bytes, conf: PinnedConf) -> usize {
        self.collect(conf.max_cached);
        let is_exact = bytes > conf.max_rounded || bytes > conf.max_cached;
        let size = if is_exact { bytes } else { bytes.next_power_of_two() };
        let power = size.next_power_of_two();
        let free = self.blocks.iter().enumerate().filter_map(|(at, block)| match block.1 {
            Doing::Free(since) if block.0 >= size && block.0 <= power => Some((since, at)),
            _ => None,
        });
        let at = free.max().map(|(_, at)| at).unwrap_or_else(|| {
            self.blocks.push((size, Doing::Gone));
            self.blocks.len() - 1
        });
        self.blocks[at].1 = Doing::Use(Vec::new());
        at
    }

    fn free(&mut self, at: usize, keeps: Bytes) {
        let since = self.moment();
        let is_kept = self.blocks[at].0 <= keeps;
        let Doing::Use(streams) = &mut self.blocks[at].1 else { panic!("not in use") };
        self.blocks[at].1 = match std::mem::take(streams) {
            streams if !streams.is_empty() => Doing::Wait(since, streams),
            _ if is_kept => Doing::Free(since),
            _ => Doing::Gone,
        };
    }

    fn bytes(&self, unit: Bytes, counts: impl Fn(&Doing) -> bool) -> i64 {
        self.blocks
            .iter()
            .filter(|block| counts(&block.1))
            .map(|block| block.0.next_multiple_of(unit) as i64)
            .sum()
    }
}

fn run_both(steps: &[Step], conf: PinnedConf) {
    let (mut ours, mut twin) = (Pinned::new(conf, version(15)), Twin::default());
    let mut used: Vec<(PinnedBlock, usize)> = Vec::new();
    for &(kind, which, number) in steps {
        let chosen = which.checked_rem(used.len());
        match (kind, chosen) {
            (0..=3, _) => {
                let bytes = 1 + number % (4 * MIB);
                used.push((ours.alloc(bytes), twin.alloc(bytes, conf)));
            }
            (4, Some(at)) => {
                let (block, own) = used[at];
                ours.use_on(block, number % 3);
                let Doing::Use(streams) = &mut twin.blocks[own].1 else { panic!("not in use") };
                streams.push(number % 3);
            }
            (5 | 6, Some(at)) => {
                let (block, own) = used.swap_remove(at);
                ours.free(block);
                twin.free(own, conf.max_cached);
            }
            (7, _) => {
                ours.done(Some(number % 3));
                for block in &mut twin.blocks {
                    if let Doing::Wait(_, streams) = &mut block.1 {
                        streams.retain(|&stream| stream != number % 3);
                    }
                }
            }
            (8, _) => {
                ours.empty_cache();
                twin.collect(conf.max_cached);
                for block in &mut twin.blocks {
                    if matches!(block.1, Doing::Free(_)) {
                        block.1 = Doing::Gone;
                    }
                }
            }
            _ => {}
        }
        assert_eq!(
            bytes_of(&ours),
            (twin.blocks.len() as i64, twin.bytes(4096, |d| *d != Doing::Gone))
        );
        let active = twin.bytes(1, |doing| matches!(doing, Doing::Use(_) | Doing::Wait(..)));
        assert_eq!(ours.stats().active_bytes.current, active);
    }
}

proptest! {
    #[test]
    fn every_decision_is_that_of_the_plain_twin(
        steps in proptest::collection::vec((0..9_u8, any::<usize>(), any::<u64>()), 1..200),
        max_rounded in prop_oneof![Just(Bytes::MAX), 0..4 * MIB],
        max_cached in prop_oneof![Just(Bytes::MAX), 0..4 * MIB],
    ) {
        run_both(&steps, PinnedConf { max_rounded, max_cached, ..PinnedConf::default() });
    }

    #[test]
    fn exact_pinning_never_exceeds_what_was_in_use(
        steps in proptest::collection::vec((0..8_u8, any::<usize>(), 1..5 * MIB), 1..300),
    ) {
        run_exact(&steps);
    }
}

/// Pins and unpins as `ExactPinned` says. The twin only knows which blocks there are, and who has them.
fn run_exact(steps: &[(u8, usize, Bytes)]) {
    let (mut host, mut used, mut free) = (ExactPinned::default(), Vec::new(), Vec::new());
    let (mut most, mut fresh) = (0, 0);
    let sum = |blocks: &[(u64, Bytes)]| blocks.iter().map(|block| block.1).sum::<Bytes>();
    for &(step, pick, bytes) in steps {
        // Few sizes, so that blocks are found again.
        let bytes = if pick.is_multiple_of(3) { bytes } else { bytes >> 20 << 19 | 1000 };
        let pages = bytes.next_multiple_of(4096);
        let fits = |size: Bytes| (pages..=pages + pages / 256).contains(&size);
        match step {
            0..4 => {
                let smallest =
                    free.iter().map(|block: &(u64, Bytes)| block.1).filter(|&s| fits(s)).min();
                if let Some(at) = host.take(bytes) {
                    let block = free.swap_remove(free.iter().position(|b| b.0 == at).unwrap());
                    assert_eq!(Some(block.1), smallest);
                    used.push(block);
                } else {
                    assert_eq!(smallest, None);
                    while let Some(at) = host.evict_for(bytes) {
                        free.swap_remove(free.iter().position(|b| b.0 == at).unwrap());
                    }
                    fresh += 1;
                    host.pin(fresh, bytes);
                    used.push((fresh, pages));
                }
            }
            4..7 if !used.is_empty() => {
                let block = used.swap_remove(pick % used.len());
                assert!(host.put(block.0));
                assert!(!host.put(block.0), "it is free already");
                free.push(block);
            }
            7 if pick.is_multiple_of(8) => {
                while let Some(at) = host.evict() {
                    free.swap_remove(free.iter().position(|b| b.0 == at).unwrap());
                }
                assert_eq!(free, []);
                most = 0;
            }
            _ => {}
        }
        most = most.max(sum(&used));
        assert_eq!(host.pinned(), sum(&used) + sum(&free));
        assert!(host.pinned() <= most + most / 256, "{} for {most}", host.pinned());
    }
}
