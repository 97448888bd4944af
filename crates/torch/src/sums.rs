//! Counts of what PyTorch asked for, and sums as PyTorch keeps them: what there is now, the most there ever was, and
//! what came and went in all.
//!
//! PyTorch splits each by its two pools. Here a block is *small* if up to 1 MiB was asked for, and memory from the
//! driver if it came in a piece of up to 2 MiB.
//!
//! ```text
//!                   all   small   large        each: current, peak, allocated, freed
//!   allocation       x      x       x
//!   ...              x      x       x          the peak is that of our own and of what others hold as well
//! ```

use gmlake_allocators::allocator::{SMALL_MAX, SMALL_SEGMENT};
pub use gmlake_allocators::pinned::Stat;
use gmlake_core::units::Bytes;
use serde::Serialize;

/// What is counted as it happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tallied {
    /// Requests served.
    pub mallocs: u64,
    /// Frees asked for.
    pub frees: u64,
    /// Bytes asked for, in all.
    pub requested_bytes_total: u64,
    /// Bytes freed, in all.
    pub freed_bytes_total: u64,
    /// Requests for which there was no memory.
    pub num_ooms: u64,
    /// Calls of `record_stream` that lent a block to another stream.
    pub recorded_uses: u64,
    /// Frees that had to wait for other streams.
    pub deferred_frees: u64,
    /// Frees of addresses that were not handed out.
    pub unknown_frees: u64,
    /// Pools of CUDA graphs that were begun.
    pub graph_pools: u64,
}

/// All, small, large; peaks are with what others held as well.
pub type Row = [Stat; 3];

/// What is summed up, in PyTorch's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// Blocks in the program's hands.
    Allocation,
    /// Pieces of memory from the driver.
    Segment,
    /// Blocks in the program's hands, or used by streams.
    Active,
    /// Free blocks.
    Inactive,
    /// Bytes of [`Sum::Allocation`].
    AllocatedBytes,
    /// Bytes of [`Sum::Segment`].
    ReservedBytes,
    /// Bytes of [`Sum::Active`].
    ActiveBytes,
    /// Bytes of [`Sum::Segment`] that are in no block of [`Sum::Active`].
    InactiveBytes,
    /// Bytes that were asked for, of [`Sum::Active`].
    RequestedBytes,
}

/// How many there are.
pub const SUMS: usize = 9;

/// What others hold on the same GPU, in the same order.
pub type Elsewhere = [[i64; 3]; SUMS];

/// All sums of one GPU.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    rows: [Row; SUMS],
    elsewhere: Elsewhere,
}

impl Sums {
    /// The rows, in PyTorch's order.
    pub fn rows(&self) -> &[Row; SUMS] {
        &self.rows
    }

    /// What there is of one now.
    #[inline]
    pub fn now(&self, sum: Sum) -> i64 {
        self.rows[sum as usize][0].current
    }

    /// A block of `size` bytes was handed out for a request.
    #[inline]
    pub(super) fn handed_out(&mut self, requested: Bytes, size: Bytes) {
        let class = class(requested, SMALL_MAX);
        for (sum, by) in [
            (Sum::Allocation, 1),
            (Sum::Active, 1),
            (Sum::AllocatedBytes, size),
            (Sum::ActiveBytes, size),
            (Sum::RequestedBytes, requested),
        ] {
            self.add(sum, class, by as i64);
        }
        self.balance(class);
    }

    /// The program let go of it.
    #[inline]
    pub(super) fn freed(&mut self, requested: Bytes, size: Bytes) {
        let class = class(requested, SMALL_MAX);
        self.add(Sum::Allocation, class, -1);
        self.add(Sum::AllocatedBytes, class, -(size as i64));
    }

    /// And so did all streams.
    #[inline]
    pub(super) fn completed(&mut self, requested: Bytes, size: Bytes) {
        let class = class(requested, SMALL_MAX);
        self.add(Sum::Active, class, -1);
        self.add(Sum::ActiveBytes, class, -(size as i64));
        self.add(Sum::RequestedBytes, class, -(requested as i64));
        self.balance(class);
    }

    /// Memory came from the driver (1) or went back (-1).
    pub(super) fn segment(&mut self, size: Bytes, sign: i64) {
        let class = class(size, SMALL_SEGMENT);
        self.add(Sum::Segment, class, sign);
        self.add(Sum::ReservedBytes, class, sign * size as i64);
        self.balance(class);
    }

    /// How many free blocks there are.
    pub(super) fn set_inactive(&mut self, small: i64, large: i64) {
        self.set(Sum::Inactive, 0, small + large);
        self.set(Sum::Inactive, 1, small);
        self.set(Sum::Inactive, 2, large);
    }

    /// What others hold from now on.
    pub(super) fn set_elsewhere(&mut self, elsewhere: Elsewhere) {
        self.elsewhere = elsewhere;
        for sum in 0..SUMS {
            (0..3).for_each(|place| self.top(sum, place));
        }
    }

    /// Bytes that others hold.
    pub(super) fn reserved_elsewhere(&self) -> Bytes {
        self.elsewhere[Sum::ReservedBytes as usize][0].max(0) as Bytes
    }

    /// The peaks begin anew.
    pub(super) fn reset_peaks(&mut self) {
        for (row, others) in self.rows.iter_mut().zip(&self.elsewhere) {
            row.iter_mut().zip(others).for_each(|(stat, other)| stat.peak = stat.current + other);
        }
    }

    /// What came and went is counted anew.
    pub(super) fn reset_accumulated(&mut self) {
        for stat in self.rows.iter_mut().flatten() {
            (stat.allocated, stat.freed) = (0, 0);
        }
    }

    #[inline]
    fn add(&mut self, sum: Sum, class: usize, by: i64) {
        for place in [0, class] {
            let now = self.rows[sum as usize][place].current;
            self.set(sum, place, now + by);
        }
    }

    #[inline]
    fn set(&mut self, sum: Sum, place: usize, value: i64) {
        let stat = &mut self.rows[sum as usize][place];
        let by = value - stat.current;
        stat.current = value;
        stat.allocated += by.max(0);
        stat.freed += (-by).max(0);
        self.top(sum as usize, place);
    }

    #[inline]
    fn top(&mut self, sum: usize, place: usize) {
        let stat = &mut self.rows[sum][place];
        stat.peak = stat.peak.max(stat.current + self.elsewhere[sum][place]);
    }

    /// What is reserved and not active is free.
    #[inline]
    fn balance(&mut self, class: usize) {
        for place in [0, class] {
            let now = |sum: Sum| self.rows[sum as usize][place].current;
            let free = now(Sum::ReservedBytes) - now(Sum::ActiveBytes);
            self.set(Sum::InactiveBytes, place, free.max(0));
        }
    }
}

/// The place of a size in a row.
#[inline]
fn class(size: Bytes, limit: Bytes) -> usize {
    if size <= limit { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmlake_core::units::MIB;

    fn row(sums: &Sums, sum: Sum) -> [(i64, i64); 3] {
        sums.rows()[sum as usize].map(|stat| (stat.current, stat.peak))
    }

    #[test]
    fn a_block_counts_until_its_streams_are_done() {
        let mut sums = Sums::default();
        sums.segment(4 * MIB, 1);
        sums.handed_out(3 * MIB - 1, 3 * MIB);
        sums.handed_out(100, 512);
        let mib = MIB as i64;
        let both = (3 * mib + 512, 3 * mib + 512);
        assert_eq!(row(&sums, Sum::AllocatedBytes), [both, (512, 512), (3 * mib, 3 * mib)]);
        assert_eq!(row(&sums, Sum::InactiveBytes)[0], (mib - 512, 4 * mib));
        sums.freed(3 * MIB - 1, 3 * MIB);
        assert_eq!(row(&sums, Sum::AllocatedBytes)[0], (512, both.1));
        assert_eq!(row(&sums, Sum::ActiveBytes)[0], both, "a stream still uses it");
        sums.completed(3 * MIB - 1, 3 * MIB);
        assert_eq!(
            row(&sums, Sum::RequestedBytes),
            [(100, 3 * mib + 99), (100, 100), (0, 3 * mib - 1)]
        );
        assert_eq!(sums.rows()[Sum::Active as usize][0].freed, 1);
    }

    #[test]
    fn the_peak_is_that_of_the_sum() {
        let mut sums = Sums::default();
        sums.segment(10 * MIB, 1);
        sums.segment(10 * MIB, -1);
        let mut others = Elsewhere::default();
        others[Sum::ReservedBytes as usize][0] = 4 * MIB as i64;
        sums.set_elsewhere(others);
        let peak = |sums: &Sums| sums.rows()[Sum::ReservedBytes as usize][0].peak;
        assert_eq!(peak(&sums), 10 * MIB as i64, "never both at once");
        sums.segment(10 * MIB, 1);
        assert_eq!(peak(&sums), 14 * MIB as i64);
        sums.segment(10 * MIB, -1);
        sums.reset_peaks();
        assert_eq!(peak(&sums), 4 * MIB as i64);
        sums.reset_accumulated();
        assert_eq!(sums.rows()[Sum::ReservedBytes as usize][0].allocated, 0);
    }
}
