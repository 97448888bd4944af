//! Durations: how long work takes the GPU and the host, in nanoseconds.
//!
//! Estimates from what is visible at the border: the number of threads of a launch, the shapes of a matrix product, the
//! bytes of a copy or collective. They decide only where a prediction depends on time (`timeline.rs`), and there the
//! answer is an interval: nothing else rests on them.

use super::Properties;

/// Time that the host takes for a kernel and the operator around it.
pub const LAUNCH_NS: u64 = 6_000;
/// Time that the host takes to record an event.
pub const RECORD_NS: u64 = 1_000;
/// Time that the host takes to ask for an event.
pub const QUERY_NS: u64 = 500;

/// Every piece of work takes the GPU this long at least.
const FLOOR_NS: f64 = 2_000.0;

/// Work for the GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// A kernel of so many threads.
    Threads(u64),
    /// A matrix product or convolution of so many multiplications and additions.
    Flops(f64),
    /// A copy or memset inside the device.
    Bytes(u64),
    /// A copy between host and device.
    Bus(u64),
    /// A collective over so many bytes.
    Link(u64),
}

impl Work {
    /// How long it takes this card, in nanoseconds.
    #[must_use]
    pub fn ns(self, card: &Properties) -> u64 {
        // Bytes over GB/s are nanoseconds; operations over TFLOP/s are thousandths of them.
        let (amount, per_ns) = match self {
            Self::Threads(threads) => (threads as f64 * BYTES_PER_THREAD, card.bandwidth_gbs),
            Self::Bytes(bytes) => (2.0 * bytes as f64, card.bandwidth_gbs),
            Self::Flops(flops) => (flops, card.tflops * 1e3 * PRODUCT_EFFICIENCY),
            Self::Bus(bytes) => (bytes as f64, BUS_GBS),
            Self::Link(bytes) => (bytes as f64, LINK_GBS),
        };
        (FLOOR_NS + amount / per_ns) as u64
    }
}

/// Bytes that a thread of a kernel moves.
const BYTES_PER_THREAD: f64 = 48.0;
/// Share of a card's rate that a matrix product reaches.
const PRODUCT_EFFICIENCY: f64 = 0.7;
/// Host to device, in GB/s.
const BUS_GBS: f64 = 50.0;
/// Between devices, in GB/s.
const LINK_GBS: f64 = 200.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_work_takes_longer_and_a_faster_card_less() {
        let (h200, a100) =
            (Properties::find("h200").unwrap(), Properties::find("a100 80gb").unwrap());
        for work in [Work::Threads, Work::Bytes, Work::Bus, Work::Link] {
            assert!(work(1 << 30).ns(&h200) > 10 * work(1 << 20).ns(&h200) / 2);
            assert!(work(1 << 30).ns(&h200) <= work(1 << 30).ns(&a100));
        }
        assert!(Work::Flops(1e12).ns(&h200) < Work::Flops(1e12).ns(&a100));
        assert!(Work::Flops(1e12).ns(&h200) > 1_000_000, "1 TFLOP takes more than a millisecond");
    }
}
