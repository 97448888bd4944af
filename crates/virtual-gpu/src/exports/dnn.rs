//! cuDNN: the graph interface, by which PyTorch asks for convolutions and attention. The older one is in `tensors.rs`
//! and `recurrent.rs`.
//!
//! A program describes an operation as descriptors that point to each other, asks for engines, and makes a plan from
//! one. Here there are two, one without a workspace. What matters is the workspace that its plan asks for:
//!
//! ```text
//!   plan ─▶ engine configuration ─▶ engine ─▶ operation graph ─▶ operation ─▶ tensors, convolution
//!     └─ workspace size                                             (plan.rs: from the shapes)
//! ```

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::{ALIGNED, Precision, Work};

use crate::exports::objects::Objects;
use crate::exports::plan::{self, Descriptor, Descriptors, Plan};
use crate::exports::state::{self, Stream, gpu, number, pointer, put};
use crate::exports::tensors::{BAD_PARAMETER, SUCCESS, Status};
use crate::workspace::{ATTENTION, Subject};

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

static DESCRIPTORS: Objects<Descriptor> = Objects::new();

/// The stream of each handle.
static STREAMS: Objects<u64> = Objects::new();

/// The stream of a handle.
pub fn stream_of(handle: *mut c_void) -> Stream {
    pointer(STREAMS.get(handle).unwrap_or(0))
}

fn computes(plan: *const c_void) -> Plan {
    DESCRIPTORS.get(plan).and_then(|found| found.computes).unwrap_or(Plan::Other)
}

const HEURISTIC_GRAPH: c_int = 201;
const HEURISTIC_RESULTS: c_int = 202;
const PLAN_WORKSPACE: c_int = 402;

/// A pointer that an empty slice may have, in place of null.
fn non_null(values: *mut c_void) -> *const u64 {
    if values.is_null() { std::ptr::dangling() } else { values.cast_const().cast() }
}

/// The bytes of an attribute.
fn get(of: *const c_void, name: c_int, kind: c_int) -> Vec<u8> {
    const NUMERICAL_NOTES: c_int = 11;
    const BEHAVIOR_NOTES: c_int = 19;
    let stored = DESCRIPTORS.change(of, |it| it.attributes.get(&name).cloned()).flatten();
    match (stored, kind) {
        (Some(bytes), _) => bytes,
        _ if name == PLAN_WORKSPACE => workspace(&computes(of)).to_ne_bytes().to_vec(),
        (None, NUMERICAL_NOTES | BEHAVIOR_NOTES) => Vec::new(),
        (None, _) => vec![0; width(kind)],
    }
}

/// Bytes for a plan. What is only an estimate is noted.
fn workspace(plan: &Plan) -> u64 {
    match plan {
        Plan::Convolution(asked) => gpu().convolution(asked),
        Plan::Fused(between) => ATTENTION + between,
        Plan::Other => 0,
    }
}

/// Fills descriptors of the caller's with those that an attribute names, and says how many there are.
fn get_descriptors(all: &mut Descriptors, of: u64, name: c_int, places: &[u64]) -> usize {
    let Some(source) = all.get(&of) else { return 0 };
    if name == HEURISTIC_RESULTS {
        let graph = source.handles(HEURISTIC_GRAPH).first().and_then(|graph| all.get(graph));
        let best = graph.and_then(|graph| graph.computes.clone());
        // Where there is no memory for the first one's workspace, PyTorch takes the second.
        let recommended = [best, Some(Plan::Other)];
        let count = recommended.len();
        for (place, computes) in places.iter().zip(recommended) {
            if let Some(configuration) = all.get_mut(place) {
                configuration.computes = computes;
            }
        }
        return count;
    }
    let named = source.handles(name);
    for (&place, source) in places.iter().zip(&named) {
        let copy = all.get(source).cloned().unwrap_or_default();
        all.insert(place, copy);
    }
    named.len().max(1)
}

skins! {
    cudnnBackendCreateDescriptor(kind: c_int, to: *mut *mut c_void) =
        DESCRIPTORS.create(to, Descriptor { kind, ..Descriptor::default() });
    cudnnBackendFinalize(of: *mut c_void) = {
        let mut all = DESCRIPTORS.all();
        let computes = Plan::of(number(of), &all);
        if let Some(found) = all.get_mut(&number(of)) {
            found.computes = computes;
        }
        SUCCESS
    };
    cudnnBackendSetAttribute(
        of: *mut c_void, name: c_int, kind: c_int, count: i64, values: *const c_void
    ) = {
        let bytes = width(kind) * count.max(0) as usize;
        if bytes > 0 && values.is_null() {
            return BAD_PARAMETER;
        }
        let mut copy = vec![0; bytes];
        std::ptr::copy_nonoverlapping(values.cast::<u8>(), copy.as_mut_ptr(), bytes);
        let set = |descriptor: &mut Descriptor| descriptor.attributes.insert(name, copy);
        if DESCRIPTORS.change(of, set).is_some() { SUCCESS } else { BAD_PARAMETER }
    };
    /// What was set, or what there is, as far as there is room: a workspace size, two configurations, no notes on them.
    cudnnBackendGetAttribute(
        of: *mut c_void, name: c_int, kind: c_int, wanted: i64, count: *mut i64, values: *mut c_void
    ) = {
        let room = if values.is_null() { 0 } else { wanted.max(0) as usize };
        let all_of_them = if kind == DESCRIPTOR {
            let places = std::slice::from_raw_parts(non_null(values), room);
            get_descriptors(&mut DESCRIPTORS.all(), number(of), name, places)
        } else {
            let content = get(of, name, kind);
            let bytes = content.len().min(width(kind) * room);
            std::ptr::copy_nonoverlapping(content.as_ptr(), values.cast::<u8>(), bytes);
            content.len() / width(kind)
        };
        if !count.is_null() {
            // Who asks for none asks how many there are; who asks for some gets no more: PyTorch 2.14
            // reads as many as this says.
            let found = if room == 0 { all_of_them } else { all_of_them.min(room) };
            count.write(found as i64);
        }
        SUCCESS
    };
    /// The plan runs on the stream of its handle.
    cudnnBackendExecute(handle: *mut c_void, plan: *mut c_void, _pack: *mut c_void) = {
        let work = match computes(plan) {
            Plan::Convolution(asked) => {
                state::ran(|| Subject::Convolution(asked.clone()));
                let it = asked.convolution;
                let results = it.output.iter().product::<u64>() as f64;
                let precision = if it.element == 2 { Precision::Half } else { Precision::Tensor32 };
                Work::Product { flops: plan::flops(&it), results, precision, alignment: ALIGNED }
            }
            // The shapes of attention are not looked at.
            Plan::Fused(_) | Plan::Other => Work::Threads(1 << 20),
        };
        state::work(stream_of(handle), work);
        SUCCESS
    };
    cudnnGetVersion() -> usize = gpu().conf.cudnn as usize;
    cudnnGetCudartVersion() -> usize = gpu().conf.cuda as usize;
    cudnnGetErrorString(code: Status) -> *const c_char = {
        let text: &CStr = match code {
            SUCCESS => c"CUDNN_STATUS_SUCCESS",
            state::NOT_SUPPORTED => return state::refusal(),
            BAD_PARAMETER => c"CUDNN_STATUS_BAD_PARAM",
            _ => return state::numbered("cuDNN", code),
        };
        text.as_ptr()
    };
    cudnnGetLastErrorString(to: *mut c_char, room: usize) -> () =
        if room > 0 {
            to.write(0);
        };
    /// Major, minor and patch level.
    cudnnGetProperty(which: c_int, to: *mut c_int) = {
        let version = cudnnGetVersion() as c_int;
        let part = [version / 10_000, version / 100 % 100, version % 100];
        put(to, part.get(which as usize).copied().unwrap_or(0))
    };
    cudnnSetStream(handle: *mut c_void, stream: Stream) =
        { STREAMS.set(handle, number(stream)); SUCCESS };
    cudnnGetStream(handle: *mut c_void, to: *mut Stream) = put(to, stream_of(handle));
    cudnnBackendDestroyDescriptor(of: *mut c_void) =
        { DESCRIPTORS.forget(of); SUCCESS };
}
