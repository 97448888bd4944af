//! cuDNN: the graph interface by which PyTorch asks for convolutions and attention, and the older one for the rest.
//!
//! A program describes an operation as descriptors that point to each other, asks for engines, and makes a plan from
//! one. Here there is one engine. What matters is the workspace that its plan asks for:
//!
//! ```text
//!   plan ─▶ engine configuration ─▶ engine ─▶ operation graph ─▶ operation ─▶ tensors, convolution
//!     └─ workspace size                                             (workspace.rs: from the shapes)
//! ```

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use gmlake::virtual_gpu::Work;
use rustc_hash::FxHashMap;

use crate::state::{self, Stream, gpu, number, pointer, put};

/// `cudnnStatus_t`
type Status = c_int;
const SUCCESS: Status = 0;
const BAD_PARAMETER: Status = 2000;

/// `cudnnBackendAttributeType_t`, as far as values of it are counted in other than 8 bytes.
const HANDLE: c_int = 0;
const DESCRIPTOR: c_int = 15;

/// Bytes of a value of this type.
fn width(kind: c_int) -> usize {
    match kind {
        2 | 24 => 1,                          // boolean, character
        HANDLE | 3 | 5 | 6 | DESCRIPTOR => 8, // handle, int64, double, pointer, descriptor
        _ => 4,                               // float, int32 and all enumerations
    }
}

/// A descriptor: its kind, and its attributes as they were set.
#[derive(Debug, Default, Clone)]
struct Descriptor {
    kind: c_int,
    attributes: FxHashMap<c_int, Vec<u8>>,
}

static DESCRIPTORS: Mutex<Option<FxHashMap<u64, Descriptor>>> = Mutex::new(None);

fn all<R>(use_them: impl FnOnce(&mut FxHashMap<u64, Descriptor>) -> R) -> R {
    let mut found = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    use_them(found.get_or_insert_default())
}

/// The stream of each handle.
static STREAMS: Mutex<Option<FxHashMap<u64, u64>>> = Mutex::new(None);

fn streams<R>(use_them: impl FnOnce(&mut FxHashMap<u64, u64>) -> R) -> R {
    let mut found = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    use_them(found.get_or_insert_default())
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetStream(handle: *mut c_void, stream: Stream) -> Status {
    streams(|all| all.insert(number(handle), number(stream)));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetStream(handle: *mut c_void, to: *mut Stream) -> Status {
    let stream = streams(|all| all.get(&number(handle)).copied()).unwrap_or(0);
    // SAFETY: the caller hands over a place for the stream.
    unsafe { put(to, pointer(stream)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, to: *mut *mut c_void) -> Status {
    let handle = gpu().object();
    all(|all| all.insert(handle, Descriptor { kind, ..Descriptor::default() }));
    // SAFETY: the caller hands over a place for the descriptor.
    unsafe { put(to, pointer(handle)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendDestroyDescriptor(of: *mut c_void) -> Status {
    all(|all| all.remove(&number(of)));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    of: *mut c_void,
    name: c_int,
    kind: c_int,
    count: i64,
    values: *const c_void,
) -> Status {
    let bytes = width(kind) * count.max(0) as usize;
    if bytes > 0 && values.is_null() {
        return BAD_PARAMETER;
    }
    let mut copy = vec![0; bytes];
    // SAFETY: the caller hands over `count` values of this type.
    unsafe { std::ptr::copy_nonoverlapping(values.cast::<u8>(), copy.as_mut_ptr(), bytes) };
    let set = |descriptor: &mut Descriptor| descriptor.attributes.insert(name, copy);
    if all(|all| all.get_mut(&number(of)).map(set)).is_some() { SUCCESS } else { BAD_PARAMETER }
}

const ENGINEHEUR_RESULTS: c_int = 202;
const PLAN_WORKSPACE: c_int = 402;
/// `CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR`
const KIND_HEURISTIC: c_int = 8;

/// What was set, or what there is: a workspace size, one engine, and no notes about it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    of: *mut c_void,
    name: c_int,
    kind: c_int,
    wanted: i64,
    count: *mut i64,
    values: *mut c_void,
) -> Status {
    let (stored, what) = all(|all| {
        let found = all.get(&number(of));
        (found.and_then(|it| it.attributes.get(&name).cloned()), found.map_or(-1, |it| it.kind))
    });
    let (found, content) = match (stored, kind) {
        (Some(bytes), _) => ((bytes.len() / width(kind)) as i64, bytes),
        _ if name == PLAN_WORKSPACE => (1, workspace(number(of)).to_ne_bytes().to_vec()),
        _ if name == ENGINEHEUR_RESULTS && what == KIND_HEURISTIC => (1, Vec::new()),
        // Notes about numerics and behaviour, of which there are none.
        (None, 11 | 19) => (0, Vec::new()),
        (None, DESCRIPTOR) => (1, Vec::new()),
        (None, _) => (1, vec![0; width(kind)]),
    };
    // SAFETY: the caller hands over room for `wanted` values, and a place for their number or null.
    unsafe {
        if !count.is_null() {
            count.write(found);
        }
        if !values.is_null() {
            let bytes = content.len().min(width(kind) * wanted.max(0) as usize);
            std::ptr::copy_nonoverlapping(content.as_ptr(), values.cast::<u8>(), bytes);
        }
    }
    SUCCESS
}

/// Bytes of workspace that a plan asks for.
fn workspace(_plan: u64) -> i64 {
    0
}

/// The plan runs on the stream of its handle; how long is a guess, since the shapes are not looked at here.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendExecute(
    handle: *mut c_void,
    _plan: *mut c_void,
    _pack: *mut c_void,
) -> Status {
    let stream = streams(|all| all.get(&number(handle)).copied()).unwrap_or(0);
    state::work(pointer(stream), Work::Threads(1 << 20));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    91_900
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    gpu().conf.cuda as usize
}

/// Major, minor and patch level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetProperty(which: c_int, to: *mut c_int) -> Status {
    let version = cudnnGetVersion() as c_int;
    let part = [version / 10_000, version / 100 % 100, version % 100];
    // SAFETY: the caller hands over a place for the number.
    unsafe { put(to, part.get(which as usize).copied().unwrap_or(0)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(code: Status) -> *const c_char {
    let text: &CStr = match code {
        SUCCESS => c"CUDNN_STATUS_SUCCESS",
        state::NOT_SUPPORTED => return state::refusal(),
        _ => c"an error of the virtual GPU",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(to: *mut c_char, room: usize) {
    if room > 0 {
        // SAFETY: the caller hands over `room` characters.
        unsafe { to.write(0) };
    }
}
