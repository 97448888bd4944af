//! Memory is zeroed before it is handed out again, and that takes time.
//!
//! A driver must not show one program what another left behind. On an H200 it zeroes freed memory in the background, at
//! 395 GiB/s; an allocation takes memory that is clean already, and waits if there is not enough of it:
//!
//! ```text
//!   device   │ held by the program │ dirty: freed, not yet zeroed │ clean │
//!                      ▲ ▼ free ───────▶          395 GiB/s ───────▶   │
//!                      └──────────────── alloc ◀───────────────────────┘
//! ```
//!
//! A program that allocates once and keeps what it has never notices. One that returns everything at once (`native`)
//! runs, in the end, at the speed of the zeroing: on five recordings it allocated 391 to 396 GiB in each second,
//! whatever the sizes were (`gmlake-replay calibrate` measures that speed).

use gmlake_core::units::{Bytes, MIB};

/// How much of a device's memory is clean, at a time that only goes forward.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Zeroing {
    ns_per_mib: f64,
    memory: f64,
    held: f64,
    clean: f64,
    /// When that was so, in nanoseconds.
    at: f64,
}

impl Zeroing {
    /// A device that was idle for a while. No time for a MiB, or no memory: no request ever waits.
    pub(super) fn new(ns_per_mib: f64, memory: Bytes) -> Self {
        let memory = memory as f64;
        Self { ns_per_mib, memory, clean: memory, ..Self::default() }
    }

    /// Nanoseconds that an allocation of `size` at the time `now` waits for clean memory.
    pub(super) fn take(&mut self, size: Bytes, now: f64) -> f64 {
        if self.ns_per_mib <= 0.0 || self.memory <= 0.0 {
            return 0.0;
        }
        self.go_on(now);
        let size = size as f64;
        // A simulated device may be larger than the one that was measured: what it has more is as clean as new.
        let more = (self.held + size - self.memory).max(0.0);
        self.memory += more;
        self.clean += more;
        let wait = (size - self.clean).max(0.0) / MIB as f64 * self.ns_per_mib;
        self.go_on(now + wait);
        self.held += size;
        self.clean = (self.clean - size).max(0.0);
        wait
    }

    /// This many bytes were given back.
    pub(super) fn give(&mut self, size: Bytes, now: f64) {
        self.go_on(now);
        self.held -= size as f64;
    }

    /// What was zeroed until `now`.
    fn go_on(&mut self, now: f64) {
        if self.ns_per_mib > 0.0 {
            let zeroed = (now - self.at).max(0.0) / self.ns_per_mib * MIB as f64;
            self.clean = (self.clean + zeroed).min((self.memory - self.held).max(0.0));
            self.at = self.at.max(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::GIB;

    /// A GiB in a millisecond.
    fn device(memory: Bytes) -> Zeroing {
        Zeroing::new(1e6 / 1024.0, memory)
    }

    #[test]
    fn nobody_waits_while_there_is_memory_that_was_never_used() {
        let mut zeroing = device(4 * GIB);
        for _ in 0..4 {
            assert_eq!(zeroing.take(GIB, 0.0), 0.0);
        }
    }

    #[test]
    fn memory_that_was_given_back_is_waited_for_unless_time_has_passed() {
        let mut zeroing = device(2 * GIB);
        zeroing.take(2 * GIB, 0.0);
        zeroing.give(2 * GIB, 0.0);
        assert!((zeroing.take(GIB, 0.0) - 1e6).abs() < 1.0);
        // Half of what is missing is zeroed by then.
        assert!((zeroing.take(GIB, 1.5e6) - 0.5e6).abs() < 1.0);
    }

    #[test]
    fn in_the_long_run_the_zeroing_sets_the_pace() {
        let mut zeroing = device(8 * GIB);
        let mut now = 0.0;
        for _ in 0..1000 {
            now += zeroing.take(GIB, now);
            zeroing.give(GIB, now);
        }
        assert!((now / 1e6 - 992.0).abs() < 1.0, "{now}");
    }

    #[test]
    fn a_device_that_is_larger_than_the_measured_one_has_clean_memory_to_spare() {
        let mut zeroing = device(GIB);
        for _ in 0..10 {
            assert_eq!(zeroing.take(GIB, 0.0), 0.0);
        }
        zeroing.give(10 * GIB, 0.0);
        assert!((zeroing.take(GIB, 0.0) - 1e6).abs() < 1.0, "it is zeroed like any other");
    }

    #[test]
    fn a_device_of_unknown_speed_or_size_costs_nothing() {
        for mut zeroing in [Zeroing::new(0.0, GIB), Zeroing::new(5.0, 0), Zeroing::default()] {
            assert_eq!(zeroing.take(4 * GIB, 0.0), 0.0);
        }
    }
}
