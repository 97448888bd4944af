//! Prices the driver calls to a device by a profile, and adds the bill up.

use serde::Serialize;

use super::call::{Amount, Call, DriverCall, PerCall};
use super::profile::Profile;
use super::watched::Watch;
use super::zeroing::Zeroing;
use gmlake_core::units::Bytes;

/// What a run's driver calls cost by a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Bill {
    /// Nanoseconds by call.
    pub nanos: PerCall<u64>,
    /// Times that a call waited for work queued on the GPU.
    pub stream_waits: u64,
}

/// Prices calls. One that fails costs as much as one that does not.
#[derive(Debug, Clone, Default)]
pub struct Priced {
    /// What the calls so far have cost.
    pub bill: Bill,
    profile: Option<Profile>,
    zeroing: Zeroing,
    /// Time that passed between the calls, in nanoseconds.
    elapsed_ns: u64,
}

impl Priced {
    /// Nothing has cost anything yet; without a profile it never will.
    pub fn new(profile: Option<Profile>) -> Self {
        let zeroing = profile.as_ref().map(|p| Zeroing::new(p.zeroing_ns_per_mib, p.memory));
        Self { profile, zeroing: zeroing.unwrap_or_default(), ..Self::default() }
    }

    /// Now, on the clock by which memory is zeroed.
    fn now(&self) -> f64 {
        self.elapsed_ns.saturating_add(self.bill.nanos.total()) as f64
    }

    /// Waits for clean memory.
    fn take(&mut self, call: Call, size: Bytes) {
        let wait = self.zeroing.take(size, self.now());
        self.add(call, wait, 1);
    }

    /// Charges so many times a price. The most that there is is more than 500 years.
    fn add(&mut self, call: Call, price: f64, count: u64) {
        let nanos = &mut self.bill.nanos[call];
        *nanos = nanos.saturating_add((price.round() as u64).saturating_mul(count));
    }

    fn give(&mut self, size: Bytes) {
        self.zeroing.give(size, self.now());
    }

    fn price(&mut self, done: DriverCall<'_>) {
        let (call, amount) = (done.call, done.amount);
        let given = amount.size * done.handles.len() as u64;
        match (call, done.row) {
            (Call::Create, Some(row)) => {
                self.take(call, given);
                self.charge(call, amount, row as u64);
            }
            (_, row) => self.charge(call, amount, row.unwrap_or(1) as u64),
        }
        match call {
            Call::MemAlloc if done.is_done() => self.take(call, amount.size),
            Call::Create if done.is_done() && done.row.is_none() => self.take(call, amount.size),
            Call::MemFree => self.give(amount.size),
            Call::Release => self.give(given),
            _ => {}
        }
    }

    fn charge(&mut self, call: Call, amount: Amount, count: u64) {
        let Some(profile) = &self.profile else { return };
        let mut price = profile.price(call, amount);
        if matches!(call, Call::MemFree | Call::Synchronize) {
            self.bill.stream_waits += count;
            price += profile.stream_wait_ns;
        }
        self.add(call, price, count);
    }
}

impl Watch for Priced {
    const ROWS: bool = true;

    fn wants_amounts(&self) -> bool {
        self.profile.is_some()
    }

    #[inline(always)]
    fn after(&mut self, done: &DriverCall<'_>) {
        if self.profile.is_some() {
            self.price(*done);
        }
    }

    #[inline]
    fn elapsed(&mut self, ns: u64) {
        self.elapsed_ns = self.elapsed_ns.saturating_add(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Line, SimDevice, Watched};
    use gmlake_core::units::{GIB, MIB};

    #[test]
    fn the_bill_is_the_sum_of_what_each_call_was_about() {
        let line = |call, handle, mib| Line {
            up_to: None,
            per_call_ns: call,
            per_handle_ns: handle,
            per_mib_ns: mib,
            fit_error: None,
        };
        let mut profile = Profile { stream_wait_ns: 7e6, ..Profile::default() };
        profile.calls.set_access = vec![line(1.0, 100.0, 10.0)];
        profile.calls.unmap = vec![line(0.0, 1.0, 0.0)];
        profile.calls.mem_free = vec![line(0.0, 0.0, 3.0)];
        let mut gpu = Watched::new(SimDevice::new(GIB), Priced::new(Some(profile)));
        let at = gpu.reserve(8 * MIB).unwrap();
        let handles = [gpu.create(2 * MIB).unwrap(), gpu.create(6 * MIB).unwrap()];
        gpu.map(at, &handles).unwrap();
        gpu.set_access(at, 8 * MIB).unwrap();
        gpu.set_access(at, 2 * MIB).unwrap();
        gpu.unmap(at, 8 * MIB);
        let block = gpu.malloc(4 * MIB).unwrap();
        gpu.free(block);
        assert_eq!(gpu.watch.bill.nanos.set_access, (1 + 200 + 80) + (1 + 100 + 20));
        assert_eq!(gpu.watch.bill.nanos.unmap, 2);
        assert_eq!(gpu.watch.bill.nanos.mem_free, 12 + 7_000_000);
        assert_eq!(gpu.watch.bill.stream_waits, 1);
        assert_eq!(gpu.watch.bill.nanos.total(), 281 + 121 + 2 + 7_000_012);
    }

    /// The largest prices that a profile may have, of the largest calls, over and over.
    #[test]
    fn a_bill_never_overflows() {
        let mut profile = Profile::default();
        let most = 1e12;
        for call in Call::ALL {
            let line = Line {
                per_call_ns: most,
                per_handle_ns: most,
                per_mib_ns: most,
                ..Line::default()
            };
            profile.calls[call] = vec![line];
        }
        (profile.stream_wait_ns, profile.zeroing_ns_per_mib) = (most, most);
        let mut gpu = Watched::new(SimDevice::new(1 << 50), Priced::new(Some(profile)));
        for _ in 0..100 {
            let block = gpu.malloc(1 << 49).unwrap();
            gpu.watch.elapsed(u64::MAX / 4);
            gpu.free(block);
        }
        assert_eq!(gpu.watch.bill.nanos.total(), u64::MAX);
    }

    #[test]
    fn calls_made_at_once_cost_what_they_cost_one_by_one() {
        let bill = |at_once: bool| {
            let priced = Priced::new(Profile::built_in("h200"));
            let mut gpu = Watched::new(SimDevice::new(8 * MIB), priced);
            let at = gpu.reserve(8 * MIB).unwrap();
            let mut handles = Vec::new();
            if at_once {
                gpu.create_each(2 * MIB, 5, &mut handles).unwrap_err();
            } else {
                handles.extend((0..4).map(|_| gpu.create(2 * MIB).unwrap()));
                gpu.create(2 * MIB).unwrap_err();
            }
            gpu.map(at, &handles).unwrap();
            if at_once {
                gpu.set_access_each(at, 2 * MIB, 4).unwrap();
            } else {
                (0..4).for_each(|i| gpu.set_access(at.offset(i * 2 * MIB), 2 * MIB).unwrap());
            }
            gpu.unmap(at, 8 * MIB);
            if at_once {
                gpu.release_each(&handles);
            } else {
                handles.into_iter().for_each(|handle| gpu.release(handle));
            }
            gpu.watch.bill
        };
        assert_eq!(bill(true), bill(false));
        assert!(bill(true).nanos.total() > 0);
    }
}
