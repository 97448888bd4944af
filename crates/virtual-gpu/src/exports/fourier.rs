//! cuFFT: plans, and their work areas. PyTorch allocates these itself.

use std::ffi::{c_int, c_void};

use crate::workspace::{Fourier, Guess, Question, Subject, joined};

use crate::exports::objects::Objects;
use crate::exports::state::{self, gpu, list, pointer, put};

/// The line of each plan, by its number.
static PLANS: Objects<String> = Objects::new();

fn place(plan: c_int) -> *mut c_void {
    pointer(plan.max(0) as u64)
}

/// `CUFFT_INVALID_VALUE`
const INVALID_VALUE: c_int = 4;

/// Whether a `cudaDataType` is real, and bytes of a complex number of its precision.
fn precision(kind: c_int) -> (bool, u64) {
    let complex = match kind {
        1 | 5 => 16,
        2 | 6 | 14 | 15 => 4,
        _ => 8,
    };
    (matches!(kind, 0..=2 | 14), complex)
}

skins! {
    cufftXtMakePlanMany(
        plan: c_int, rank: c_int, sizes: *const i64, input_sizes: *const i64, input_stride: i64,
        input_distance: i64, input: c_int, output_sizes: *const i64, output_stride: i64,
        output_distance: i64, output: c_int, batch: i64, to: *mut usize, execution: c_int
    ) = {
        if sizes.is_null() || rank < 1 {
            return INVALID_VALUE;
        }
        let [sizes, inside, outside] =
            [sizes, input_sizes, output_sizes].map(|from| list(from, rank));
        let (real_input, complex) = precision(input);
        let transform = Fourier {
            sizes: sizes.iter().map(|&size| size.max(0) as u64).collect(),
            batch: batch.max(0) as u64,
            real: real_input || precision(output).0,
            complex,
        };
        let bytes = transform.workspace();
        let (ends, chances) = transform.spread(bytes);
        let guess = Guess { what: "Fourier transforms", bytes, ends, chances };
        let line = Question::Fourier.line(format_args!(
            "sizes={} input={}/{input_stride}/{input_distance}/{input} \
             output={}/{output_stride}/{output_distance}/{output} \
             batch={batch} execution={execution}",
            joined(sizes),
            joined(inside),
            joined(outside),
        ));
        PLANS.set(place(plan), line.clone());
        let bytes = state::workspace(Subject::Line(line), guess);
        put(to, bytes as usize)
    };
    cufftCreate(to: *mut c_int) = {
        gpu().count_once("cufftCreate");
        put(to, (gpu().object() & 0x7FFF_FFFF) as c_int)
    };
    cufftXtExec(plan: c_int) =
        { state::ran(|| Subject::Line(PLANS.get(place(plan)).unwrap_or_default())); 0 };
    cufftDestroy(plan: c_int) = { PLANS.forget(place(plan)); 0 };
}
