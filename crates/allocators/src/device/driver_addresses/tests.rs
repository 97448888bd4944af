//! The rule next to its obvious twin, and next to what an H200 answered.

use proptest::prelude::*;

use super::*;

const TOP: u64 = 0x7fff_f000_0000;

/// The same rule, written down as it is said: everything is a list, and everything is looked for.
#[derive(Default)]
struct Twin {
    /// Address and size, the oldest first.
    ranges: Vec<(u64, Bytes)>,
    taken: Vec<(u64, Bytes)>,
}

impl Twin {
    fn holes(&self, (base, size): (u64, Bytes)) -> Vec<(u64, Bytes)> {
        let mut taken = self.taken.clone();
        taken.retain(|&(at, _)| (base..base + size).contains(&at));
        taken.sort_unstable();
        taken.push((base + size, 0));
        let mut from = base;
        let mut holes = Vec::new();
        for (at, length) in taken {
            if at > from {
                holes.push((from, at - from));
            }
            from = at + length;
        }
        holes
    }

    fn take(&mut self, size: Bytes, reserve: bool) -> u64 {
        let in_range = |&range: &(u64, Bytes)| {
            let fits = self.holes(range).into_iter().filter(|&(_, hole)| hole >= size);
            fits.min_by_key(|&(at, hole)| if reserve { (0, at) } else { (hole, at) })
        };
        let found = self.ranges.iter().rev().find_map(in_range).map(|(at, _)| at);
        let at = found.unwrap_or_else(|| {
            let whole = round_up(size, STEP);
            let base = if reserve { self.lowest(whole) } else { self.highest(whole) };
            self.ranges.push((base, whole));
            base
        });
        self.taken.push((at, size));
        at
    }

    fn give(&mut self, at: u64) {
        self.taken.retain(|&(taken, _)| taken != at);
        let taken = &self.taken;
        self.ranges
            .retain(|&(base, size)| taken.iter().any(|&(at, _)| (base..base + size).contains(&at)));
    }

    fn is_free(&self, at: u64, size: Bytes) -> bool {
        self.ranges.iter().all(|&(base, length)| base + length <= at || at + size <= base)
    }

    fn highest(&self, size: Bytes) -> u64 {
        let mut places = (1..).map(|steps| TOP - steps * STEP);
        let fits = |&at: &u64| at + STEP + size <= TOP && self.is_free(at, STEP + size);
        places.find(fits).expect("there is room") + STEP
    }

    fn lowest(&self, size: Bytes) -> u64 {
        let mut places = (0..).map(|steps| LOWEST_RESERVATION + steps * STEP);
        places.find(|&at| self.is_free(at, size)).expect("there is room")
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take(Bytes),
    Reserve(Bytes),
    Give(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let granules = prop_oneof![3 => Just(1), 2 => Just(10), 3 => 1..100u64, 1 => Just(16)];
    let size = granules.prop_map(|granules| granules * GRANULE).boxed();
    let step = prop_oneof![
        4 => size.clone().prop_map(Step::Take),
        1 => size.prop_map(Step::Reserve),
        4 => any::<prop::sample::Index>().prop_map(Step::Give),
    ];
    proptest::collection::vec(step, 0..150)
}

proptest! {
    #[test]
    fn it_does_what_the_twin_does(steps in steps()) {
        let (mut addresses, mut twin) = (DriverAddresses::new(TOP), Twin::default());
        let mut live: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Step::Take(size) => {
                    live.push(twin.take(size, false));
                    prop_assert_eq!(addresses.take(size), live.last().copied());
                }
                Step::Reserve(size) => {
                    live.push(twin.take(size, true));
                    prop_assert_eq!(addresses.reserve(size), live.last().copied());
                }
                Step::Give(_) if live.is_empty() => {}
                Step::Give(index) => {
                    let at = live.swap_remove(index.index(live.len()));
                    twin.give(at);
                    addresses.give(at);
                }
            }
        }
        live.into_iter().for_each(|at| addresses.give(at));
        prop_assert!(addresses.ranges.is_empty() && addresses.taken.is_empty());
        prop_assert_eq!(addresses.high.bottom(), TOP);
    }
}

/// Calls and what an H200 answered them, as `tests/data/driver_addresses.py` wrote them.
#[test]
fn it_does_what_the_driver_of_an_h200_did() {
    let calls = include_str!("../../../tests/data/driver_addresses.csv");
    let mut addresses = DriverAddresses::new(TOP);
    for (number, line) in calls.lines().enumerate() {
        let cells: Vec<_> = line.split(',').collect();
        let size = cells[1].parse().expect("a size");
        let at = u64::from_str_radix(cells[2], 16).expect("an address");
        let answer = match cells[0] {
            "start" => {
                addresses = DriverAddresses::with_context(at);
                continue;
            }
            "take" => addresses.take(size),
            "reserve" => addresses.reserve(size),
            _ => {
                addresses.give(at);
                continue;
            }
        };
        assert_eq!(answer, Some(at), "line {}: {line}", number + 1);
    }
}

#[test]
fn addresses_run_out() {
    let mut addresses = DriverAddresses::new(TOP);
    assert_eq!(addresses.take(TOP), None);
    assert_eq!(addresses.reserve(TOP), None);
    assert_eq!(addresses.take(u64::MAX), None);
    let at = addresses.take(TOP / 2).expect("half of all");
    assert_eq!(addresses.take(TOP / 2), None);
    addresses.give(at);
    assert_eq!(addresses.take(TOP / 2), Some(at));
}
