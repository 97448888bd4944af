//! Durations: how long work takes the GPU, in nanoseconds.
//!
//! Estimates from what is visible at the border: the number of threads of a launch, the shapes of a matrix product, the
//! bytes of a copy or collective. They decide only where a prediction depends on time (`timeline.rs`), and there the
//! answer is an interval: nothing else rests on them.
//!
//! The constants were measured on an H200 (PyTorch 2.11): elementwise kernels, matrix products and copies of many
//! sizes. Other cards differ by the rates of their data sheets.

use super::Properties;

/// The shortest kernel.
const FLOOR_NS: f64 = 1_500.0;
/// Bytes that a thread of an elementwise kernel moves.
const BYTES_PER_THREAD: f64 = 32.0;
/// Share of its bandwidth that a kernel reaches.
const BANDWIDTH_SHARE: f64 = 0.7;
/// Host to device from pinned memory, in GB/s.
const BUS_GBS: f64 = 55.0;
/// Between two devices of one host, in GB/s, and what a collective of NCCL takes at least.
const LINK_GBS: f64 = 270.0;
const COLLECTIVE_NS: f64 = 35_000.0;

/// What a call that queues work takes the host, besides PyTorch's own part of it: a launch or copy, a copy from or to
/// the host, and a matrix product, for which cuBLAS looks up a kernel.
const LAUNCH_HOST_NS: u64 = 4_400;
const BUS_HOST_NS: u64 = 2_300;
const PRODUCT_HOST_NS: u64 = 9_300;

/// Bytes at multiples of which the columns of matrices should begin: the fast kernels load as many at once.
pub const ALIGNED: u64 = 16;

/// How exactly a matrix product is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 16 bits and fewer, by tensor cores.
    Half,
    /// 32 bits, rounded to 19 for tensor cores.
    Tensor32,
    /// 32 bits and more.
    Single,
}

/// Work for the GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// A kernel of this many threads.
    Threads(u64),
    /// A matrix product.
    Product {
        /// Multiplications and additions.
        flops: f64,
        /// Elements of the result.
        results: f64,
        /// Of what kind.
        precision: Precision,
        /// The bytes at multiples of which all columns begin, up to [`ALIGNED`].
        alignment: u64,
    },
    /// A copy or memset inside the device.
    Bytes(u64),
    /// A copy between host and device.
    Bus(u64),
    /// A collective in which each rank sends this many bytes.
    Link(u64),
}

impl Work {
    /// How long it takes this card, in nanoseconds.
    pub fn ns(self, card: &Properties) -> u64 {
        // Bytes over GB/s are nanoseconds.
        let memory = card.chip.bandwidth_gbs * BANDWIDTH_SHARE;
        let ns = match self {
            Self::Threads(threads) => threads as f64 * BYTES_PER_THREAD / memory,
            Self::Bytes(bytes) => 2.0 * bytes as f64 / memory,
            Self::Bus(bytes) => bytes as f64 / BUS_GBS,
            Self::Link(bytes) => COLLECTIVE_NS + bytes as f64 / LINK_GBS,
            Self::Product { flops, results, precision, alignment } => {
                let product = flops / (1e3 * precision.tflops(card));
                product * precision.slower(alignment) + results * precision.bytes() / memory
            }
        };
        (FLOOR_NS + ns) as u64
    }

    /// How long the call that queues it takes the host of a real GPU, in nanoseconds: a call of ours takes next to
    /// nothing. The difference between the two for small operations (`examples/predict/host_calls.py`).
    pub fn host_ns(self) -> u64 {
        match self {
            Self::Product { .. } => PRODUCT_HOST_NS,
            Self::Bus(_) => BUS_HOST_NS,
            Self::Threads(_) | Self::Bytes(_) | Self::Link(_) => LAUNCH_HOST_NS,
        }
    }
}

impl Work {
    /// A number for the kernel that computes a matrix product; none for other work.
    ///
    /// Libraries choose a kernel by type and shape. Products of one type whose extents have the same order of magnitude
    /// are taken to have the same.
    pub fn kernel_of_product(self) -> Option<u64> {
        let Self::Product { flops, results, precision, .. } = self else { return None };
        let order = |number: f64| number.max(1.0).log2() as u64;
        Some((precision as u64) << 16 | order(results) << 8 | order(flops / results.max(1.0)))
    }
}

impl Precision {
    /// What a card reaches, in TFLOP/s.
    fn tflops(self, card: &Properties) -> f64 {
        match self {
            Self::Half => 0.73 * card.chip.tflops,
            Self::Tensor32 => 0.35 * card.chip.tflops,
            Self::Single => 0.76 * card.chip.single_tflops,
        }
    }

    /// Bytes of a result.
    fn bytes(self) -> f64 {
        if self == Self::Half { 2.0 } else { 4.0 }
    }

    /// The bytes at multiples of which all columns begin, for columns that lie this many elements apart.
    pub fn alignment(self, leads: [i64; 3]) -> u64 {
        let all = leads.into_iter().fold(0, |all, lead| all | lead as u64);
        1 << ((all * self.bytes() as u64) | ALIGNED).trailing_zeros()
    }

    /// How many times as long a large product takes whose columns are not aligned. Measured on an H200 for five shapes,
    /// three layouts and each extent (`examples/predict/products.py`): medians of the large ones.
    fn slower(self, alignment: u64) -> f64 {
        match (self, alignment) {
            (Self::Half, ..4) => 5.4,
            (Self::Half, 4..ALIGNED) => 2.8,
            (Self::Tensor32, ..ALIGNED) => 2.5,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(extent: f64, precision: Precision) -> Work {
        let (flops, results, alignment) = (2.0 * extent.powi(3), extent * extent, ALIGNED);
        Work::Product { flops, results, precision, alignment }
    }

    #[test]
    fn columns_that_are_not_aligned_take_longer() {
        let h200 = Properties::find("h200").unwrap();
        let time = |lead, precision: Precision| {
            let alignment = precision.alignment([8, lead, 1280]);
            let flops = 2.0 * 12288.0 * 50257.0 * 1280.0;
            Work::Product { flops, results: 1.0, precision, alignment }.ns(&h200)
        };
        let half = [50256, 50257, 50258, 50260].map(|lead| time(lead, Precision::Half));
        assert!(half[1] > 5 * half[0] && half[2] > 2 * half[0] && half[2] == half[3], "{half:?}");
        let single = [50256, 50257].map(|lead| time(lead, Precision::Single));
        assert_eq!(single[0], single[1]);
        let rounded = [50256, 50257, 50260].map(|lead| time(lead, Precision::Tensor32));
        assert!(rounded[1] > 2 * rounded[0] && rounded[2] == rounded[0], "{rounded:?}");
    }

    #[test]
    fn more_work_takes_longer_and_a_faster_card_less() {
        let (h200, a100) =
            (Properties::find("h200").unwrap(), Properties::find("a100 80gb").unwrap());
        for work in [Work::Threads, Work::Bytes, Work::Bus, Work::Link] {
            assert!(work(1 << 30).ns(&h200) > 5 * work(1 << 20).ns(&h200));
            assert!(work(1 << 30).ns(&h200) <= work(1 << 30).ns(&a100));
        }
        let large = product(8192.0, Precision::Half);
        assert!(large.ns(&h200) < large.ns(&a100));
    }

    /// Times of an H200 in microseconds, and what the model says of them: within a quarter.
    #[test]
    fn measured_times_are_met() {
        let h200 = Properties::find("h200").unwrap();
        for (work, microseconds) in [
            (product(8192.0, Precision::Half), 1489.1),
            (product(2048.0, Precision::Half), 23.8),
            (product(4096.0, Precision::Tensor32), 342.7),
            (product(8192.0, Precision::Single), 21454.2),
            (Work::Bytes(1 << 28), 128.1),
            (Work::Bus(1 << 28), 4837.2),
            (Work::Link(1 << 19), 37.0), // two ranks, all_gather_into_tensor to 1 MiB
            (Work::Link(1 << 29), 1985.6), // to 1 GiB
            (Work::Link(1 << 30), 3284.7), // all_reduce of 1 GiB
            (Work::Threads(402_176 * 128), 561.9),
        ] {
            let ratio = work.ns(&h200) as f64 / 1e3 / microseconds;
            assert!((0.75..1.33).contains(&ratio), "{work:?}: {ratio}");
        }
    }
}
