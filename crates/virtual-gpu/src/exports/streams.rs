//! The CUDA runtime's streams, events and graphs.

use std::ffi::{c_float, c_int, c_uint, c_void};

use crate::exports::copies;
use crate::exports::state::{
    self, Code, INVALID_VALUE, NOT_READY, SUCCESS, Stream, failed, gpu, number, pointer, put,
    remembered,
};

/// An event, graph or other object, as callers hand it over.
type Object = *mut c_void;

/// `cudaStreamCaptureStatusActive`
const ACTIVE: c_int = 1;

/// A new event.
fn event() -> Object {
    pointer(gpu().object())
}

/// A new stream. The first takes memory, whether or not work comes to it.
fn stream() -> Object {
    let mut gpu = gpu();
    gpu.count_once("stream");
    pointer(gpu.object())
}

/// Whether an event was reached. The driver's own functions leave the runtime's last error alone.
pub fn event_state(event: Object) -> Code {
    let reached = state::gpu_now().timeline.is_reached(number(event), state::asker());
    if reached { SUCCESS } else { NOT_READY }
}

/// Whether a stream has nothing left to do.
pub fn stream_state(of: Stream) -> Code {
    let of = state::stream(of);
    let idle = state::gpu_now().timeline.is_idle(of, state::asker());
    if idle { SUCCESS } else { NOT_READY }
}

/// The number of the capture that a stream is part of, if there is one.
fn capture_of(of: Stream) -> Option<u64> {
    let of = state::stream(of);
    gpu().graphs.of(of).map(|capture| capture.id)
}

/// # Safety
/// Each place is null or can be written to.
unsafe fn put_capture(of: Stream, status: *mut c_int, id: *mut u64, count: *mut usize) -> Code {
    let capture = capture_of(of);
    // SAFETY: as the caller promises.
    unsafe {
        if !id.is_null() {
            id.write(capture.unwrap_or(0));
        }
        if !count.is_null() {
            count.write(0);
        }
        put(status, capture.map_or(0, |_| ACTIVE))
    }
}

/// An executable graph that does what `graph` does.
fn instantiated(graph: Object) -> Object {
    let mut gpu = gpu();
    let executable = gpu.object();
    gpu.graphs.instantiate(number(graph), executable);
    gpu.count_graphs();
    pointer(executable)
}

skins! {
    cudaStreamEndCapture(on: Stream, to: *mut Object) = {
        let on = state::stream(on);
        let mut gpu = gpu();
        let graph = gpu.object();
        if !gpu.graphs.end(on, graph) {
            return failed(INVALID_VALUE);
        }
        put(to, pointer(graph))
    };
    /// Does the graph's copies; kernels are none of our work.
    cudaGraphLaunch(graph: Object, on: Stream) = {
        let on_number = state::stream(on);
        let mut gpu = gpu();
        let Some(capture) = gpu.graphs.get(number(graph)).cloned() else {
            return failed(INVALID_VALUE);
        };
        (0..capture.nodes).for_each(|_| gpu.timeline.queue(on_number, 2_000));
        drop(gpu);
        for copy in capture.copies {
            copies::do_copy(copy.to, copy.from, copy.bytes as usize);
        }
        SUCCESS
    };
    cudaStreamCreate(to: *mut Object) = put(to, stream());
    cudaStreamCreateWithFlags(to: *mut Object, _flags: c_uint) = put(to, stream());
    cudaStreamCreateWithPriority(to: *mut Object, _flags: c_uint, _priority: c_int) =
        put(to, stream());
    cudaEventCreate(to: *mut Object) = put(to, event());
    cudaEventCreateWithFlags(to: *mut Object, _flags: c_uint) = put(to, event());
    cudaEventRecord(event: Object, on: Stream) = {
        let (event, on) = (number(event), state::stream(on));
        let mut gpu = state::gpu_now();
        if !gpu.graphs.record(event, on) {
            gpu.timeline.record(event, on);
        }
        SUCCESS
    };
    cudaStreamWaitEvent(on: Stream, event: Object, _flags: c_uint) = {
        let (on, event) = (state::stream(on), number(event));
        let mut gpu = gpu();
        if !gpu.graphs.wait(on, event) {
            gpu.timeline.wait(on, event);
        }
        SUCCESS
    };
    cudaStreamSynchronize(of: Stream) =
        { let of = state::stream(of); gpu().timeline.wait_for_stream(of); SUCCESS };
    cudaStreamBeginCapture(on: Stream, _mode: c_int) = {
        let on = state::stream(on);
        let begun = gpu().graphs.begin(on);
        if begun { SUCCESS } else { failed(INVALID_VALUE) }
    };
    /// No node depends on another. The number's place is the third argument in CUDA 12, the fourth in CUDA 13.
    cudaGraphNodeGetDependencies(
        _node: Object, _nodes: *mut Object, third: *mut usize, fourth: *mut usize
    ) = {
        let is_new = gpu().conf.cuda >= 13_000;
        put(if is_new { fourth } else { third }, 0)
    };
    cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) = {
        thread_local!(static MODE: std::cell::Cell<c_int> = const { std::cell::Cell::new(0) });
        put(mode, MODE.replace(*mode))
    };
    cudaEventDestroy(event: Object) = { gpu().timeline.forget_event(number(event)); SUCCESS };
    cudaEventRecordWithFlags(event: Object, on: Stream, _flags: c_uint) =
        cudaEventRecord(event, on);
    cudaEventQuery(event: Object) = remembered(event_state(event));
    cudaEventSynchronize(event: Object) = { gpu().timeline.wait_for_event(number(event)); SUCCESS };
    cudaEventElapsedTime(to: *mut c_float, from: Object, end: Object) =
        put(to, gpu().timeline.elapsed_ms(number(from), number(end)));
    cudaStreamQuery(of: Stream) = remembered(stream_state(of));
    cudaDeviceSynchronize() = { gpu().timeline.wait_for_all(); SUCCESS };
    cudaStreamGetPriority(_of: Stream, to: *mut c_int) = put(to, 0);
    /// Functions of the host run at once: what they wait for has been done.
    cudaLaunchHostFunc(_on: Stream, call: extern "C" fn(*mut c_void), data: *mut c_void) =
        { call(data); SUCCESS };
    cudaStreamAddCallback(
        on: Stream, call: extern "C" fn(Stream, Code, *mut c_void), data: *mut c_void,
        _flags: c_uint
    ) = { call(on, SUCCESS, data); SUCCESS };
    cudaStreamIsCapturing(of: Stream, to: *mut c_int) =
        put(to, capture_of(of).map_or(0, |_| ACTIVE));
    /// CUDA 13; of the nodes that the stream depends on, none are named.
    cudaStreamGetCaptureInfo(
        of: Stream, status: *mut c_int, id: *mut u64, _graph: *mut Object,
        _nodes: *mut *const Object, _edges: *mut *const c_void, count: *mut usize
    ) = put_capture(of, status, id, count);
    /// CUDA 12.
    cudaStreamGetCaptureInfo_v2(
        of: Stream, status: *mut c_int, id: *mut u64, _graph: *mut Object,
        _nodes: *mut *const Object, count: *mut usize
    ) = put_capture(of, status, id, count);
    cudaGraphInstantiate(to: *mut Object, graph: Object, _flags: u64) =
        put(to, instantiated(graph));
    cudaGraphInstantiateWithFlags(to: *mut Object, graph: Object, _flags: u64) =
        put(to, instantiated(graph));
    cudaGraphDestroy(graph: Object) = { gpu().graphs.destroy(number(graph)); SUCCESS };
    cudaGraphExecDestroy(graph: Object) = cudaGraphDestroy(graph);
    /// How many nodes there are; the nodes themselves have no names.
    cudaGraphGetNodes(graph: Object, _nodes: *mut Object, count: *mut usize) =
        put(count, gpu().graphs.get(number(graph)).map_or(0, |capture| capture.nodes) as usize);
}
