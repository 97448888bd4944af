//! cuBLAS and cuBLASLt: matrix products, which take time and compute nothing, and the answers that PyTorch asks for.
//!
//! Workspaces are PyTorch's own: it allocates a fixed size for each handle and hands it over.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use gmlake::virtual_gpu::Work;
use rustc_hash::FxHashMap;

use crate::state::{self, Stream, gpu, number, put};

/// `cublasStatus_t`
type Status = c_int;
const SUCCESS: Status = 0;

/// The stream of each handle, and rows, columns and batches of each matrix layout.
#[derive(Default)]
struct Objects {
    streams: FxHashMap<u64, u64>,
    layouts: FxHashMap<u64, [u64; 3]>,
}

static OBJECTS: Mutex<Option<Objects>> = Mutex::new(None);

fn objects<R>(use_them: impl FnOnce(&mut Objects) -> R) -> R {
    use_them(OBJECTS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(handle: *mut c_void, stream: Stream) -> Status {
    let stream = state::stream(stream);
    objects(|all| all.streams.insert(number(handle), stream));
    SUCCESS
}

fn product(handle: *mut c_void, flops: f64) -> Status {
    let default = state::stream(std::ptr::null_mut());
    let stream = objects(|all| all.streams.get(&number(handle)).copied()).unwrap_or(default);
    gpu().work(stream, Work::Flops(flops));
    SUCCESS
}

/// All matrix products begin with the handle, two transpositions and the extents.
macro_rules! products {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            handle: *mut c_void, _a: c_int, _b: c_int, m: c_int, n: c_int, k: c_int,
        ) -> Status {
            product(handle, 2.0 * f64::from(m) * f64::from(n) * f64::from(k))
        }
    )*};
}

products! {
    cublasSgemm_v2 cublasDgemm_v2 cublasCgemm_v2 cublasZgemm_v2 cublasSgemmEx cublasGemmEx
}

/// The count of a batch comes last but two in these; what stands before it is as wide as a pointer on the stack.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // CUDA's signature
pub extern "C" fn cublasGemmStridedBatchedEx(
    handle: *mut c_void,
    _a_op: c_int,
    _b_op: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    _a: *const c_void,
    _a_kind: c_int,
    _a_lead: c_int,
    _a_stride: i64,
    _b: *const c_void,
    _b_kind: c_int,
    _b_lead: c_int,
    _b_stride: i64,
    _beta: *const c_void,
    _c: *mut c_void,
    _c_kind: c_int,
    _c_lead: c_int,
    _c_stride: i64,
    batches: c_int,
) -> Status {
    product(handle, 2.0 * f64::from(m) * f64::from(n) * f64::from(k) * f64::from(batches))
}

macro_rules! strided {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)] // CUDA's signature
        pub extern "C" fn $name(
            handle: *mut c_void, _a_op: c_int, _b_op: c_int, m: c_int, n: c_int, k: c_int,
            _alpha: *const c_void, _a: *const c_void, _a_lead: c_int, _a_stride: i64,
            _b: *const c_void, _b_lead: c_int, _b_stride: i64, _beta: *const c_void,
            _c: *mut c_void, _c_lead: c_int, _c_stride: i64, batches: c_int,
        ) -> Status {
            product(handle, 2.0 * f64::from(m) * f64::from(n) * f64::from(k) * f64::from(batches))
        }
    )*};
}

strided! {
    cublasSgemmStridedBatched cublasDgemmStridedBatched cublasCgemmStridedBatched cublasZgemmStridedBatched
}

/// `CUBLAS_DEFAULT_MATH`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetMathMode(_handle: *mut c_void, to: *mut c_int) -> Status {
    // SAFETY: the caller hands over a place for the mode.
    unsafe { put(to, 0) }
}

/// `CUBLAS_POINTER_MODE_HOST`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetPointerMode_v2(_handle: *mut c_void, to: *mut c_int) -> Status {
    // SAFETY: the caller hands over a place for the mode.
    unsafe { put(to, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    130_100
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    to: *mut *mut c_void,
    _kind: c_int,
    rows: u64,
    columns: u64,
    _lead: i64,
) -> Status {
    let layout = gpu().object();
    objects(|all| all.layouts.insert(layout, [rows, columns, 1]));
    // SAFETY: the caller hands over a place for the layout.
    unsafe { put(to, state::pointer(layout)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatrixLayoutDestroy(layout: *mut c_void) -> Status {
    objects(|all| all.layouts.remove(&number(layout)));
    SUCCESS
}

/// Of a layout's attributes only the number of batches is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: *mut c_void,
    attribute: c_int,
    value: *const c_void,
    _bytes: usize,
) -> Status {
    const BATCH_COUNT: c_int = 5;
    if attribute == BATCH_COUNT {
        // SAFETY: this attribute is a number of 32 bits.
        let batches = unsafe { value.cast::<i32>().read_unaligned() };
        objects(|all| {
            if let Some(layout) = all.layouts.get_mut(&number(layout)) {
                layout[2] = batches.max(1) as u64;
            }
        });
    }
    SUCCESS
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // CUDA's signature
pub extern "C" fn cublasLtMatmul(
    _handle: *mut c_void,
    _what: *mut c_void,
    _alpha: *const c_void,
    _a: *const c_void,
    a_layout: *mut c_void,
    _b: *const c_void,
    _b_layout: *mut c_void,
    _beta: *const c_void,
    _c: *const c_void,
    _c_layout: *mut c_void,
    _d: *mut c_void,
    d_layout: *mut c_void,
    _algorithm: *const c_void,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    stream: Stream,
) -> Status {
    let of = |layout| objects(|all| all.layouts.get(&number(layout)).copied()).unwrap_or([1; 3]);
    let (a, d) = (of(a_layout), of(d_layout));
    // A has m rows and k columns, or the other way round.
    let k = if a[0] == d[0] { a[1] } else { a[0] };
    let flops = 2.0 * (d[0] * d[1] * d[2]) as f64 * k as f64;
    state::work(stream, Work::Flops(flops));
    SUCCESS
}

/// `cublasLtMatmulHeuristicResult_t`
#[repr(C)]
pub struct HeuristicResult {
    algorithm: [u64; 8],
    workspace: usize,
    status: Status,
    waves: f32,
    reserved: [c_int; 4],
}

/// One algorithm, which needs no workspace.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // CUDA's signature
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut c_void,
    _what: *mut c_void,
    _a: *mut c_void,
    _b: *mut c_void,
    _c: *mut c_void,
    _d: *mut c_void,
    _preference: *mut c_void,
    _wanted: c_int,
    results: *mut HeuristicResult,
    found: *mut c_int,
) -> Status {
    let result = HeuristicResult {
        algorithm: [0; 8],
        workspace: 0,
        status: SUCCESS,
        waves: 1.0,
        reserved: [0; 4],
    };
    // SAFETY: the caller hands over room for at least one result, and a place for their number.
    unsafe {
        put(results, result);
        put(found, 1)
    }
}
