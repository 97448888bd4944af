//! Samples of the events' times, between which a straight line tells the others well enough to be shown.
//!
//! ```text
//!   time ▲          ●──────●   a sample where the line from the last one would miss an event
//!        │         ╱
//!        │  ●─────●
//!        └──────────────────▶ events
//! ```

use super::lives::EventIndex;

/// A line misses a time by at most this share of it: half of the third digit, the last one that is shown.
const SHARE: f64 = 1.0 / 2000.0;

/// The event and the time of each sample, the first and the last event's among them. `times` ascend.
pub(super) fn samples(times: &[u64]) -> Vec<(EventIndex, u64)> {
    let mut found = Vec::new();
    let mut lines = Lines::from(0, times.first().copied().unwrap_or(0));
    for (event, &time) in times.iter().enumerate() {
        if event > 0 && !lines.reach(event, time) {
            found.push((lines.event as EventIndex, lines.time));
            lines = Lines::from(event - 1, times[event - 1]);
        }
        lines.narrow(event, time);
    }
    found.push((lines.event as EventIndex, lines.time));
    let last = times.len().saturating_sub(1);
    if lines.event < last {
        found.push((last as EventIndex, times[last]));
    }
    found
}

/// The lines from a sample that miss no event since: those between the flattest and the steepest.
struct Lines {
    event: usize,
    time: u64,
    flattest: f64,
    steepest: f64,
}

impl Lines {
    fn from(event: usize, time: u64) -> Self {
        Self { event, time, flattest: 0.0, steepest: f64::INFINITY }
    }

    /// Whether one of them goes through this event.
    fn reach(&self, event: usize, time: u64) -> bool {
        let slope = self.slope(event, time as f64);
        (self.flattest..=self.steepest).contains(&slope)
    }

    /// Keeps those that do not miss this event, which is after the sample or the sample itself.
    fn narrow(&mut self, event: usize, time: u64) {
        if event > self.event {
            let (time, off) = (time as f64, time as f64 * SHARE);
            self.flattest = self.flattest.max(self.slope(event, time - off));
            self.steepest = self.steepest.min(self.slope(event, time + off));
        }
    }

    fn slope(&self, event: usize, time: f64) -> f64 {
        (time - self.time as f64) / (event - self.event) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(samples: &[(EventIndex, u64)], event: usize) -> f64 {
        let next = samples.partition_point(|&(at, _)| (at as usize) < event);
        let (to, end) = samples[next];
        let (from, start) = samples[next.saturating_sub(1)];
        let share = (event as f64 - f64::from(from)) / f64::from((to - from).max(1));
        start as f64 + (end as f64 - start as f64) * share
    }

    #[test]
    fn a_line_between_samples_misses_no_time() {
        let steps = (0..20_000_u64).map(|n| match n * n % 997 {
            0 => 1_000_000,
            rest if rest < 20 => 0,
            rest => rest % 7,
        });
        let bursts: Vec<u64> =
            steps.scan(0, |time, step| Some(std::mem::replace(time, *time + step))).collect();
        let even: Vec<u64> = (0..5000).map(|n| n * 3).collect();
        let late: Vec<u64> = (0..3000).map(|n| if n < 2990 { 0 } else { 1 << 40 }).collect();
        for (times, most) in [(bursts, 2000), (even, 2), (late, 4), (vec![7], 1), (vec![1, 9], 2)] {
            let samples = samples(&times);
            assert!(samples.len() <= most, "{} of {}", samples.len(), times.len());
            for (event, &time) in times.iter().enumerate() {
                let off = (between(&samples, event) - time as f64).abs();
                assert!(off <= time as f64 * SHARE + 1e-6, "{off} at {event}, {time}");
            }
        }
    }
}
