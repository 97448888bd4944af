//! The prices that follow from what calls took in programs.

use crate::device::{Call, Line, PerCall, Profile};

use super::fit::{Bounds, Seen, lines};
use super::programs::Observed;

/// Prices of calls, fitted to what they took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    /// By ascending size of a handle.
    pub calls: PerCall<Vec<Line>>,
    /// How much of each call's price pays for rare long ones: 0.1 is a tenth of what the others cost.
    pub rare: PerCall<f64>,
    /// What the fixed work took next to them, in nanoseconds.
    pub probe_ns: f64,
    /// Calls that it rests on.
    pub observed: u64,
}

impl Prices {
    /// Prices of the calls that manage memory, by those that programs made.
    pub fn fit(programs: &[Observed]) -> Self {
        // The machine changes its pace all the time; all calls are brought to the programs' average.
        let probe_ns = programs.iter().map(Observed::mean_probe_ns).sum::<f64>()
            / programs.len().max(1) as f64;
        let of = |call: Call, is_wanted: &dyn Fn(&Observed) -> bool| -> Vec<Seen> {
            let programs = programs.iter().filter(|one| is_wanted(one));
            programs.flat_map(|one| one.at(probe_ns, call)).collect()
        };
        let observed = programs.iter().map(|one| one.calls.len() as u64).sum();
        let mut prices = Self { probe_ns: probe_ns.round(), observed, ..Self::default() };
        for call in MEMORY {
            // A price is taken from those who live by the call, where there are such. `native` does not: it gives
            // everything back at once, and waits for zeroing at almost every call.
            let lives_by_it = |one: &Observed| match call {
                Call::MemAlloc | Call::MemFree => one.allocator == "caching",
                _ => one.allocator != "native",
            };
            let fitted = lines(&of(call, &lives_by_it), &of(call, &|_| true), bounds(call));
            (prices.calls[call], prices.rare[call]) = (fitted.lines, fitted.rare);
        }
        prices
    }

    /// A profile with these prices in place of its own.
    pub fn put_into(&self, mut profile: Profile) -> Profile {
        for call in MEMORY {
            profile.calls[call].clone_from(&self.calls[call]);
        }
        profile.probe_ns = self.probe_ns;
        profile.source = format!(
            "gmlake-replay calibrate: {} calls of made-up programs through every allocator on an \
             idle GPU, fitted by least relative squares",
            self.observed
        );
        profile
    }
}

/// Calls whose price depends on what they are about.
const MEMORY: [Call; 9] = [
    Call::MemAlloc,
    Call::MemFree,
    Call::AddressReserve,
    Call::AddressFree,
    Call::Create,
    Call::Release,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
];

/// Where memory is handed out, long calls waited for zeroing.
fn bounds(call: Call) -> Bounds {
    match call {
        Call::MemAlloc | Call::Create => Bounds { ordinary: 2.0, paid: 2.0 },
        _ => Bounds { ordinary: 3.0, paid: 10.0 },
    }
}
