//! Reductions over the data of several ranks, for the element types of NCCL.

use std::ffi::c_int;
use std::ops::Range;

use crate::Parcel;

/// `ncclDataType_t`
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
    F8,
}

impl Kind {
    /// The type that NCCL numbers so.
    pub fn of(number: c_int) -> Self {
        use Kind::{Bf16, F8, F16, F32, F64, I8, I32, I64, U8, U32, U64};
        let all = [I8, U8, I32, U32, I64, U64, F16, F32, F64, Bf16];
        *all.get(number as usize).unwrap_or(&F8)
    }

    /// Whether elements are whole numbers.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::I8 | Self::U8 | Self::I32 | Self::U32 | Self::I64 | Self::U64)
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// `ncclRedOp_t`: sum, product, maximum, minimum; 4 is the average, which is a sum divided by the number of ranks.
fn combine<T: PartialOrd>(
    operation: c_int,
    a: T,
    b: T,
    sum: fn(T, T) -> T,
    product: fn(T, T) -> T,
) -> T {
    match operation {
        1 => product(a, b),
        2 => {
            if a < b {
                b
            } else {
                a
            }
        }
        3 => {
            if b < a {
                b
            } else {
                a
            }
        }
        _ => sum(a, b),
    }
}

macro_rules! fold {
    ($parts:expr, $operation:expr, $ranks:expr, $type:ty, $sum:expr, $product:expr) => {{
        let mut total: Vec<$type> = Vec::new();
        for part in $parts {
            let values = part.chunks_exact(size_of::<$type>());
            let values =
                values.map(|bytes| <$type>::from_ne_bytes(bytes.try_into().unwrap_or_default()));
            if total.is_empty() {
                total = values.collect();
                continue;
            }
            for (a, b) in total.iter_mut().zip(values) {
                *a = combine($operation, *a, b, $sum, $product);
            }
        }
        let divided =
            total.into_iter().map(|a| if $operation == AVERAGE { a / $ranks as $type } else { a });
        divided.flat_map(<$type>::to_ne_bytes).collect()
    }};
}

/// `ncclAvg`
const AVERAGE: c_int = 4;

/// Reduces a part of what all ranks brought. Known if all of it is.
///
/// A rank alone brings its own for all `ranks`. What is not known is not computed, nor are floating-point numbers of 16
/// bits and fewer: the first rank's stand for all.
pub fn reduce(
    all: &[Parcel],
    part: Range<usize>,
    kind: Kind,
    (operation, ranks): (c_int, usize),
) -> Parcel {
    let is_small = matches!(kind, Kind::F16 | Kind::Bf16 | Kind::F8);
    if is_small || !all.iter().all(|parcel| parcel.is_known) {
        let first = all.first().and_then(|first| first.bytes.get(part)).unwrap_or_default();
        return Parcel { bytes: first.to_vec(), is_known: false };
    }
    let brought = all.iter().cycle().take(ranks.max(all.len()));
    let parts = brought.filter_map(|parcel| parcel.bytes.get(part.clone()));
    macro_rules! integers {
        ($type:ident) => {
            fold!(parts, operation, ranks, $type, $type::wrapping_add, $type::wrapping_mul)
        };
    }
    let bytes = match kind {
        Kind::I8 => integers!(i8),
        Kind::U8 => integers!(u8),
        Kind::I32 => integers!(i32),
        Kind::U32 => integers!(u32),
        Kind::I64 => integers!(i64),
        Kind::U64 => integers!(u64),
        Kind::F32 => fold!(parts, operation, ranks, f32, |a, b| a + b, |a, b| a * b),
        _ => fold!(parts, operation, ranks, f64, |a, b| a + b, |a, b| a * b),
    };
    Parcel { bytes, is_known: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(values: &[i32]) -> Parcel {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Parcel { bytes, is_known: true }
    }

    #[test]
    fn operations_are_those_that_nccl_numbers_so() {
        let all = [known(&[1, 8]), known(&[5, 2]), known(&[3, 2])];
        for (operation, expected) in
            [(0, [9, 12]), (1, [15, 32]), (2, [5, 8]), (3, [1, 2]), (4, [3, 4])]
        {
            assert_eq!(reduce(&all, 0..8, Kind::I32, (operation, 3)), known(&expected));
        }
        assert_eq!(reduce(&all, 4..8, Kind::I32, (0, 3)), known(&[12]));
    }

    #[test]
    fn a_rank_alone_stands_for_all_and_unknown_stays_unknown() {
        assert_eq!(reduce(&[known(&[7])], 0..4, Kind::I32, (0, 16)), known(&[112]));
        let unknown = Parcel { is_known: false, ..known(&[7]) };
        assert_eq!(reduce(std::slice::from_ref(&unknown), 0..4, Kind::I32, (0, 16)), unknown);
    }
}
