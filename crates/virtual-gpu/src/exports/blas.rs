//! cuBLAS and cuBLASLt: matrix products, which take time and compute nothing, and the answers that PyTorch asks for.
//!
//! Workspaces are PyTorch's own: it allocates a fixed size for each handle and hands it over.

use std::ffi::{c_char, c_int, c_void};

use crate::{Precision, Work};

use crate::exports::objects::Objects;
use crate::exports::state::{self, Stream, pointer, put};

/// `cublasStatus_t`
type Status = c_int;
const SUCCESS: Status = 0;
const NOT_INITIALIZED: Status = 1;

/// How a matrix lies in memory.
#[derive(Clone, Copy)]
struct Layout {
    kind: c_int,
    rows: u64,
    columns: u64,
    lead: i64,
    batches: u64,
}

/// Stream and mode of each handle.
static STREAMS: Objects<u64> = Objects::new();
static MODES: Objects<c_int> = Objects::new();
static LAYOUTS: Objects<Layout> = Objects::new();

/// The extents of a matrix product, and how far the columns of its three matrices lie apart, in elements.
struct Extents {
    m: c_int,
    n: c_int,
    k: c_int,
    batches: c_int,
    leads: [i64; 3],
}

impl Extents {
    fn new([m, n, k]: [c_int; 3], leads: [c_int; 3], batches: c_int) -> Self {
        Self { m, n, k, batches, leads: leads.map(i64::from) }
    }
}

fn product(handle: *mut c_void, extents: &Extents, precision: Precision) -> Status {
    let stream = STREAMS.get(handle).unwrap_or(0);
    let &Extents { m, n, k, batches, leads } = extents;
    let results = f64::from(m) * f64::from(n) * f64::from(batches);
    let flops = 2.0 * results * f64::from(k);
    let alignment = precision.alignment(leads);
    state::work(pointer(stream), Work::Product { flops, results, precision, alignment });
    SUCCESS
}

/// The precision of products in fp32 on a handle: tensor cores must be allowed.
fn single(handle: *mut c_void) -> Precision {
    const TF32: c_int = 3;
    if MODES.get(handle) == Some(TF32) { Precision::Tensor32 } else { Precision::Single }
}

/// The precision of products of a `cudaDataType`.
fn precision(handle: *mut c_void, kind: c_int) -> Precision {
    const WIDE: [c_int; 4] = [0, 1, 4, 5]; // 32 and 64 bits, real and complex
    if WIDE.contains(&kind) { single(handle) } else { Precision::Half }
}

/// Products with one type for all matrices; `$precision` is a function of the handle.
macro_rules! products {
    ($($name:ident)*: $precision:expr) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            handle: *mut c_void, _a_op: c_int, _b_op: c_int, m: c_int, n: c_int, k: c_int,
            _alpha: *const c_void, _a: *const c_void, a_lead: c_int,
            _b: *const c_void, b_lead: c_int, _beta: *const c_void,
            _c: *mut c_void, c_lead: c_int,
        ) -> Status {
            let extents = Extents::new([m, n, k], [a_lead, b_lead, c_lead], 1);
            product(handle, &extents, $precision(handle))
        }
    )*};
}

products! { cublasSgemm_v2 cublasDgemm_v2 cublasCgemm_v2 cublasZgemm_v2: single }
products! { cublasHgemm: |_| Precision::Half }

/// Products whose matrices each have a type. What follows the last matrix is not looked at.
macro_rules! typed {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            handle: *mut c_void, _a_op: c_int, _b_op: c_int, m: c_int, n: c_int, k: c_int,
            _alpha: *const c_void, _a: *const c_void, kind: c_int, a_lead: c_int,
            _b: *const c_void, _b_kind: c_int, b_lead: c_int, _beta: *const c_void,
            _c: *mut c_void, _c_kind: c_int, c_lead: c_int,
        ) -> Status {
            let extents = Extents::new([m, n, k], [a_lead, b_lead, c_lead], 1);
            product(handle, &extents, precision(handle, kind))
        }
    )*};
}

typed! { cublasSgemmEx cublasGemmEx }

macro_rules! strided {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            handle: *mut c_void, _a_op: c_int, _b_op: c_int, m: c_int, n: c_int, k: c_int,
            _alpha: *const c_void, _a: *const c_void, a_lead: c_int, _a_stride: i64,
            _b: *const c_void, b_lead: c_int, _b_stride: i64, _beta: *const c_void,
            _c: *mut c_void, c_lead: c_int, _c_stride: i64, batches: c_int,
        ) -> Status {
            let extents = Extents::new([m, n, k], [a_lead, b_lead, c_lead], batches);
            product(handle, &extents, single(handle))
        }
    )*};
}

strided! {
    cublasSgemmStridedBatched cublasDgemmStridedBatched
    cublasCgemmStridedBatched cublasZgemmStridedBatched
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

skins! {
    cublasGemmStridedBatchedEx(
        handle: *mut c_void, _a_op: c_int, _b_op: c_int, m: c_int, n: c_int, k: c_int,
        _alpha: *const c_void, _a: *const c_void, kind: c_int, a_lead: c_int, _a_stride: i64,
        _b: *const c_void, _b_kind: c_int, b_lead: c_int, _b_stride: i64, _beta: *const c_void,
        _c: *mut c_void, _c_kind: c_int, c_lead: c_int, _c_stride: i64, batches: c_int
    ) = {
        let extents = Extents::new([m, n, k], [a_lead, b_lead, c_lead], batches);
        product(handle, &extents, precision(handle, kind))
    };
    cublasGetStatusString(code: Status) -> *const c_char =
        if code == SUCCESS {
            c"CUBLAS_STATUS_SUCCESS".as_ptr()
        } else {
            state::numbered("cuBLAS", code)
        };
    cublasLtGetVersion() -> usize = 130_100;
    /// Of a layout's attributes only the number of batches is kept.
    cublasLtMatrixLayoutSetAttribute(
        layout: *mut c_void, attribute: c_int, value: *const c_void, _bytes: usize
    ) = {
        const BATCH_COUNT: c_int = 5;
        if attribute == BATCH_COUNT {
            let batches = value.cast::<i32>().read_unaligned();
            LAYOUTS.change(layout, |layout| layout.batches = batches.max(1) as u64);
        }
        SUCCESS
    };
    cublasLtMatmul(
        _handle: *mut c_void, _what: *mut c_void, _alpha: *const c_void, _a: *const c_void,
        a_layout: *mut c_void, _b: *const c_void, b_layout: *mut c_void, _beta: *const c_void,
        _c: *const c_void, _c_layout: *mut c_void, _d: *mut c_void, d_layout: *mut c_void,
        _algorithm: *const c_void, _workspace: *mut c_void, _workspace_bytes: usize, stream: Stream
    ) = {
        let [Some(a), Some(b), Some(d)] = [a_layout, b_layout, d_layout].map(|it| LAYOUTS.get(it))
        else {
            return NOT_INITIALIZED;
        };
        // A has m rows and k columns, or the other way round.
        let k = if a.rows == d.rows { a.columns } else { a.rows };
        let results = (d.rows * d.columns * d.batches) as f64;
        let precision = if a.kind == 0 { Precision::Tensor32 } else { Precision::Half };
        let (flops, alignment) =
            (2.0 * results * k as f64, precision.alignment([a.lead, b.lead, d.lead]));
        state::work(stream, Work::Product { flops, results, precision, alignment });
        SUCCESS
    };
    /// One algorithm, which needs no workspace.
    cublasLtMatmulAlgoGetHeuristic(
        _handle: *mut c_void, _what: *mut c_void, _a: *mut c_void, _b: *mut c_void, _c: *mut c_void,
        _d: *mut c_void, _preference: *mut c_void, _wanted: c_int, results: *mut HeuristicResult,
        found: *mut c_int
    ) = {
        let result = HeuristicResult {
            algorithm: [0; 8],
            workspace: 0,
            status: SUCCESS,
            waves: 1.0,
            reserved: [0; 4],
        };
        put(results, result);
        put(found, 1)
    };
    cublasSetStream_v2(handle: *mut c_void, stream: Stream) =
        { STREAMS.set(handle, state::stream(stream)); SUCCESS };
    cublasLtMatrixLayoutCreate(
        to: *mut *mut c_void, kind: c_int, rows: u64, columns: u64, lead: i64
    ) = LAYOUTS.create(to, Layout { kind, rows, columns, lead, batches: 1 });
    cublasSetMathMode(handle: *mut c_void, mode: c_int) =
        { MODES.set(handle, mode); SUCCESS };
    cublasGetMathMode(handle: *mut c_void, to: *mut c_int) =
        put(to, MODES.get(handle).unwrap_or(0));
    /// `CUBLAS_POINTER_MODE_HOST`
    cublasGetPointerMode_v2(_handle: *mut c_void, to: *mut c_int) = put(to, 0);
    cublasLtMatrixLayoutDestroy(layout: *mut c_void) =
        { LAYOUTS.forget(layout); SUCCESS };
}
