//! Host pace: how long the host of a real GPU takes for what this machine's processor does at the moment.
//!
//! Where a prediction depends on time, it depends on how far the host is ahead of the GPU. How long work takes the GPU
//! is estimated (`duration.rs`); how long the host takes is what the script uses of this machine's processor. That may
//! be another one, and other programs share its caches: the same Python may take twice as long for a tenth of a second.
//! So the same piece of work, a probe, is run again and again, and compared with what it takes the host of an H200.
//!
//! ```text
//!   ── script ──┤probe├── script, 10 ms ──┤probe├── script, 10 ms ──┤probe├──   time for probes is left out
//! ```
//!
//! A probe does what an interpreter does: it follows a program of small operations, 7 of 16 of which look something
//! up. It does so three times: twice in a table as large as a second-level cache, and once always at the same place.

/// Processor time between two probes, in nanoseconds.
const BETWEEN_NS: u64 = 10_000_000;
/// What a probe is taken to last on the host of an H200, in nanoseconds.
///
/// Hosts differ. With 68 and 85 us, requests follow each other as in recordings of FSDP1 and of ZeRO-3; on the host of
/// an H200 that others shared, a probe took 162. Chosen with the peaks of both recordings in view, which are right with
/// 110 to 120 (`reports/predict.md`).
const REFERENCE_NS: f64 = 110_000.0;
/// Probes that have a say in the pace, by their median.
const RECENT: usize = 3;

/// How many entries of the table a probe looks at, each time that it goes through the program.
const ROUNDS: [usize; 3] = [1 << 16, 1 << 16, 1];
const OPERATIONS: usize = 2048;

/// Runs probes, and says what they mean.
#[derive(Debug)]
pub struct HostPace {
    program: Vec<u8>,
    table: Vec<u32>,
    recent: Vec<u64>,
    /// Processor time at the last probe.
    probed: Option<u64>,
    /// How long the host of a real GPU would have taken for all so far, and how long this processor took.
    host_ns: f64,
    processor_ns: f64,
}

impl Default for HostPace {
    fn default() -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        Self {
            program: (0..OPERATIONS).map(|_| random() as u8).collect(),
            table: (0..ROUNDS[0]).map(|_| random() as u32).collect(),
            recent: Vec::new(),
            probed: None,
            host_ns: 0.0,
            processor_ns: 0.0,
        }
    }
}

impl HostPace {
    /// Whether it is time for a probe, when the process has used so much of the processor.
    pub fn is_due(&self, processor_ns: u64) -> bool {
        self.probed.is_none_or(|last| processor_ns.saturating_sub(last) >= BETWEEN_NS)
    }

    /// The probe. The result has no meaning.
    pub fn probe(&self) -> u64 {
        let mut sum = 1;
        for extent in ROUNDS {
            for &operation in &self.program {
                sum = self.step(operation, sum, extent - 1);
            }
        }
        std::hint::black_box(sum)
    }

    /// One operation, which may look something up.
    fn step(&self, operation: u8, sum: u64, mask: usize) -> u64 {
        let at = |turn: u64| u64::from(self.table[(sum >> 7 ^ turn) as usize & mask]);
        match operation & 15 {
            0 => sum.wrapping_add(at(0)),
            1 => sum ^ at(0) << 3,
            2 => sum.rotate_left(7).wrapping_mul(0x9E37_79B9),
            3 => sum.wrapping_sub(at(0x55)),
            4 => sum ^ sum >> 11,
            5 if sum & 64 == 0 => sum.wrapping_add(77),
            5 => sum.rotate_right(3),
            6 => sum.wrapping_add(at(0x99)).rotate_left(5),
            7 => sum.wrapping_mul(31).wrapping_add(u64::from(operation)),
            8 => sum.wrapping_add(at(0x1111)),
            9 => sum ^ at(0x2222) << 9,
            10 if sum & 1024 == 0 => sum ^ 0x1234_5678,
            10 => sum.wrapping_add(sum >> 3),
            11 => sum.swap_bytes(),
            12 => sum.wrapping_add(at(0x4444)) ^ 0xABCD,
            13 => sum.rotate_left(u32::from(operation >> 4)),
            14 => sum.wrapping_mul(0x85EB_CA6B) ^ sum >> 13,
            _ => sum.wrapping_add(1),
        }
    }

    /// Notes that a probe took `ns` when the process had used `processor_ns`.
    pub fn took(&mut self, ns: u64, processor_ns: u64) {
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(ns.max(1));
        let used = processor_ns.saturating_sub(self.probed.unwrap_or(processor_ns)) as f64;
        self.processor_ns += used;
        self.host_ns += used * self.now();
        self.probed = Some(processor_ns);
    }

    /// How long the host of a real GPU takes, at the moment, for a nanosecond of this processor.
    pub fn now(&self) -> f64 {
        let mut recent = self.recent.clone();
        recent.sort_unstable();
        recent.get(recent.len() / 2).map_or(1.0, |&ns| REFERENCE_NS / ns as f64)
    }

    /// The same, over all so far.
    pub fn average(&self) -> f64 {
        if self.processor_ns > 0.0 { self.host_ns / self.processor_ns } else { self.now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_processor_counts_for_less() {
        let mut pace = HostPace::default();
        assert!(pace.is_due(0) && (pace.now() - 1.0).abs() < 1e-9);
        let twice = 2 * REFERENCE_NS as u64;
        pace.took(twice, 0);
        assert!((pace.now() - 0.5).abs() < 1e-9);
        assert!(!pace.is_due(BETWEEN_NS - 1) && pace.is_due(BETWEEN_NS));
    }

    #[test]
    fn one_probe_that_was_interrupted_changes_nothing() {
        let mut pace = HostPace::default();
        let probes = [1, 1, 50, 1, 1, 1].map(|times| times * REFERENCE_NS as u64);
        for (turn, ns) in probes.into_iter().enumerate() {
            pace.took(ns, turn as u64 * BETWEEN_NS);
        }
        assert!((pace.now() - 1.0).abs() < 1e-9 && (pace.average() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_second_slow_probe_counts() {
        let mut pace = HostPace::default();
        for turn in 0..7 {
            let times = if turn < 5 { 1 } else { 4 };
            pace.took(times * REFERENCE_NS as u64, turn * BETWEEN_NS);
        }
        assert!((pace.now() - 0.25).abs() < 1e-9);
        assert!((pace.average() - (5.0 + 0.25) / 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_probe_is_the_same_each_time_and_uses_all_operations() {
        let pace = HostPace::default();
        assert_eq!(pace.probe(), HostPace::default().probe());
        let used: std::collections::BTreeSet<u8> =
            pace.program.iter().map(|operation| operation & 15).collect();
        assert_eq!(used.len(), 16);
    }
}
