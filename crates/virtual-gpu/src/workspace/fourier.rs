//! Fourier transforms: the work area of a cuFFT plan.
//!
//! A short line is transformed within one kernel. A longer one is taken in several passes, with a copy between them.

/// A Fourier transform as cuFFT gets it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fourier {
    /// Sizes that are transformed, the innermost last.
    pub sizes: Vec<u64>,
    /// How many transforms.
    pub batch: u64,
    /// Whether one side is real.
    pub real: bool,
    /// Bytes of a complex number.
    pub complex: u64,
}

impl Fourier {
    /// Bytes of the plan's work area.
    ///
    /// None while a line fits into one kernel, else one copy of the complex data. Real lines of odd length are taken
    /// two at a time as complex ones. A long line whose length has a large prime factor is computed as a convolution,
    /// its length filled up to a product of small primes.
    ///
    /// Of 193 plans on an H100, by which convolutions and primes were chosen, 165 are within 1 % or 16 KiB, 145 in
    /// the same block of 512 bytes (`examples/predict/drawn_operations.py 1 150`, `examples/jobs/libraries.py`). Most
    /// others take a copy where the rule has none.
    pub fn workspace(&self) -> u64 {
        let Some((&last, outer)) = self.sizes.split_last() else { return 0 };
        let lines = outer.iter().product::<u64>();
        let pairs = self.batch.div_ceil(2) * lines;
        if outer.is_empty() && last > SHORTEST_CONVOLVED && largest_prime(last) > LONGEST_PRIME {
            let filled = filled(2 * last - 1);
            let values = match (self.real, last % 2) {
                (true, 0) => self.batch * (filled + last / 2) + 256,
                (true, _) => pairs * (2 * filled + last) + 256,
                _ => self.batch * 2 * filled,
            };
            values * self.complex
        } else if self.real && last % 2 == 1 && last > SHORT {
            2 * pairs * last * self.complex
        } else if last > self.longest_line()
            || self.has_middle_primes(last)
            || outer.iter().any(|it| largest_prime(*it) > 64)
        {
            self.copy()
        } else {
            0
        }
    }

    /// Whether a single line is taken in passes since its length has primes that are neither small nor large.
    fn has_middle_primes(&self, last: u64) -> bool {
        let (least, shortest) = match (self.real, self.complex) {
            (true, _) => (11, 480),
            (false, 16) => (29, 256),
            _ => return false,
        };
        self.sizes.len() == 1 && last >= shortest && largest_prime(last) >= least
    }

    /// Bytes of one copy of the complex data.
    pub fn copy(&self) -> u64 {
        let Some((&last, outer)) = self.sizes.split_last() else { return 0 };
        let half = if self.real { last / 2 + 1 } else { last };
        self.batch * outer.iter().product::<u64>() * half * self.complex
    }

    /// Whether all lengths are products of 2, 3, 5 and 7, for which there are kernels.
    pub fn is_smooth(&self) -> bool {
        self.sizes.iter().all(|&size| largest_prime(size) <= 7)
    }

    /// How long a line may be for one kernel.
    fn longest_line(&self) -> u64 {
        let usual = self.complex == 8 && self.sizes.last().is_some_and(|it| it.is_power_of_two());
        if self.real && !usual { 4096 } else { (1 << 18) / self.complex.max(1) }
    }
}

/// Prime factors up to this have kernels of their own.
const LONGEST_PRIME: u64 = 127;
/// A line up to this is not computed as a convolution that needs memory, whatever its factors.
const SHORTEST_CONVOLVED: u64 = 4096;
/// A real line of odd length up to this fits into one kernel.
const SHORT: u64 = 128;

/// The least product of 2, 3 and 5 that is as large.
fn filled(length: u64) -> u64 {
    let powers = |of: u64| {
        std::iter::successors(Some(1_u64), move |it| it.checked_mul(of))
            .take_while(move |&it| it < 5 * length)
    };
    let products = powers(5).flat_map(|five| powers(3).map(move |three| five * three));
    let to = |product: u64| product * length.div_ceil(product).next_power_of_two();
    products.filter(|&it| it < 5 * length).map(to).min().unwrap_or(length)
}

fn largest_prime(mut number: u64) -> u64 {
    let (mut largest, mut factor) = (1, 2);
    while factor * factor <= number {
        while number.is_multiple_of(factor) {
            (largest, number) = (factor, number / factor);
        }
        factor += 1;
    }
    largest.max(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fourier(sizes: &[u64], batch: u64, real: bool, complex: u64) -> u64 {
        Fourier { sizes: sizes.to_vec(), batch, real, complex }.workspace()
    }

    #[test]
    fn transforms_need_a_copy_once_a_line_is_long() {
        assert_eq!(fourier(&[1024], 64, true, 8), 0);
        assert_eq!(fourier(&[2048, 2048], 1, false, 8), 0);
        assert_eq!(fourier(&[65_536], 8, true, 8), 2_097_216);
        assert_eq!(fourier(&[44_100], 64, false, 8), 22_579_200);
        assert_eq!(fourier(&[1_000_000], 1, true, 16), 8_000_016);
        assert_eq!(fourier(&[], 1, true, 8), 0);
    }

    #[test]
    fn lengths_with_large_primes_are_filled_as_was_measured() {
        assert_eq!([3, 7, 31_135, 220_211, 444_443].map(filled), [3, 8, 31_250, 221_184, 450_000]);
        assert_eq!(fourier(&[110_106], 96, false, 8), 339_738_624);
        assert_eq!(fourier(&[17_733], 40, false, 16), 46_080_000);
        assert_eq!(fourier(&[1100], 18_711, true, 8), 82_478_088);
        for (length, batch, bytes) in
            [(110_106, 96, 212_152_064), (342_660, 29, 200_109_008), (381_555, 21, 168_746_888)]
        {
            assert_eq!(fourier(&[length], batch, true, 8), bytes, "{length}");
        }
    }

    #[test]
    fn the_largest_prime_factor() {
        assert_eq!([1, 2, 12, 777, 65_537].map(largest_prime), [1, 2, 3, 37, 65_537]);
    }
}
