//! Sizes: of the block that a request gets, and of the segment that is asked from the device.
//!
//! Constants and rules of PyTorch's `CUDACachingAllocator`; all results are multiples of 512 bytes.

use gmlake_core::alloc_conf::AllocConf;
use gmlake_core::units::{Bytes, MIB, round_up};

/// The smallest block, and what sizes are rounded to.
pub const MIN_BLOCK: Bytes = 512;
/// Rounded requests up to this size are served from the small pool.
pub const SMALL_MAX: Bytes = MIB;
/// Size of the small pool's segments.
pub const SMALL_SEGMENT: Bytes = 2 * MIB;
/// From this size on, a segment is made to the request's measure.
pub const MIN_LARGE: Bytes = 10 * MIB;
/// What the size of such a segment is rounded to.
pub const ROUND_LARGE: Bytes = 2 * MIB;

/// The block size that a request of `size` bytes is rounded to.
#[inline]
pub fn round_request(size: Bytes, conf: &AllocConf) -> Bytes {
    if size < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let divisions = Bytes::from(conf.divisions_for(size));
    if divisions > 1 && size > MIN_BLOCK * divisions {
        round_to_division(size, divisions)
    } else {
        round_plain(size)
    }
}

/// The block size that a request of `size` bytes is rounded to where no steps are set.
#[inline]
pub fn round_plain(size: Bytes) -> Bytes {
    (size.max(1) - 1) / MIN_BLOCK * MIN_BLOCK + MIN_BLOCK
}

/// Rounds up to the next of `divisions` equal steps between two powers of two.
fn round_to_division(size: Bytes, divisions: Bytes) -> Bytes {
    if size.is_power_of_two() {
        return size;
    }
    let power = 1 << size.ilog2();
    // The caller's guard (size > 512 x divisions) keeps the step at 512 bytes or more.
    round_up(size, power >> divisions.ilog2())
}

/// The segment that is asked from the device for a rounded request.
#[inline]
pub fn segment_size(rounded: Bytes, conf: &AllocConf) -> Bytes {
    match rounded {
        0..=SMALL_MAX => SMALL_SEGMENT,
        _ if rounded < MIN_LARGE => conf.large_segment_size,
        _ => round_up(rounded, ROUND_LARGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of PyTorch's own behaviour, for one number of divisions on all sizes.
    #[test]
    fn rounding_follows_the_divisions() {
        let cases: [(Bytes, [Bytes; 5]); 3] = [
            (1_048_577, [1_049_088, 1_572_864, 1_310_720, 1_179_648, 1_114_112]),
            (104_857_601, [104_858_112, 134_217_728, 117_440_512, 109_051_904, 109_051_904]),
            (1200, [1536; 5]),
        ];
        for (size, expected) in cases {
            for (divisions, rounded) in [1, 2, 4, 8, 16].into_iter().zip(expected) {
                let conf =
                    AllocConf { roundup_power2_divisions: [divisions; 16], ..AllocConf::default() };
                assert_eq!(round_request(size, &conf), rounded, "{size} in {divisions} divisions");
            }
        }
    }

    #[test]
    fn segments_are_2_20_or_as_many_mib_as_needed() {
        let conf = AllocConf::default();
        for (rounded, segment) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (1_049_088, 20 * MIB),
            (10_485_248, 20 * MIB),
            (10_485_760, 10_485_760),
            (10_486_272, 12_582_912),
        ] {
            assert_eq!(segment_size(rounded, &conf), segment, "{rounded}");
        }
    }
}
