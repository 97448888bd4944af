//! Launches of kernels. None runs; each counts, and takes its stream a time.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};

use crate::Work;

use crate::exports::kernels;
use crate::exports::state::{
    self, Code, NO_KERNEL_IMAGE, SUCCESS, Stream, gpu, number, pointer, put,
};

/// `dim3`: the extents of a grid or block.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extents {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

impl Extents {
    fn count(self) -> u64 {
        u64::from(self.x) * u64::from(self.y) * u64::from(self.z)
    }
}

/// The first fields of `cudaLaunchConfig_t`.
#[repr(C)]
pub struct LaunchConfig {
    grid: Extents,
    block: Extents,
    shared: usize,
    stream: Stream,
}

/// The first fields of `CUlaunchConfig`.
#[repr(C)]
pub struct DriverLaunchConfig {
    grid: Extents,
    block: Extents,
    shared: c_uint,
    stream: Stream,
}

/// Counts a launch.
fn launch(kernel: *const c_void, grid: Extents, block: Extents, on: Stream) -> Code {
    state::gpu_now().load(number(kernel));
    state::work(on, Work::Threads(grid.count() * block.count()));
    SUCCESS
}

type Call = (Extents, Extents, usize, usize);
thread_local!(static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) });

/// The first fields of `cudaFuncAttributes`, which CUDA 12 and 13 share.
#[repr(C)]
pub struct FunctionAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    threads_per_block: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    dynamic_shared: c_int,
}

/// Registers that a thread of any kernel is taken to use.
pub const REGISTERS: c_int = 32;

/// Blocks of a kernel that run on a multiprocessor at a time, as far as threads and registers limit them.
pub fn blocks_at_a_time(threads: c_int) -> c_int {
    let card = gpu().conf.card.clone();
    let one = card.multiprocessor();
    let threads = (threads.max(1) + 31) / 32 * 32;
    (one.threads / threads).min(65_536 / (REGISTERS * threads)).clamp(1, one.blocks)
}

skins! {
    /// The first half of `kernel<<<grid, block, shared, stream>>>(...)`.
    __cudaPushCallConfiguration(
        grid: Extents, block: Extents, shared: usize, on: Stream
    ) -> c_uint = {
        CALLS.with_borrow_mut(|calls| calls.push((grid, block, shared, number(on) as usize)));
        0
    };
    /// The second half, called by the kernel's own stub.
    __cudaPopCallConfiguration(
        grid: *mut Extents, block: *mut Extents, shared: *mut usize, on: *mut Stream
    ) = {
        let Some(call) = CALLS.with_borrow_mut(Vec::pop) else { return state::INVALID_VALUE };
        put(grid, call.0);
        put(block, call.1);
        put(shared, call.2);
        put(on, pointer(call.3 as u64))
    };
    cudaFuncGetAttributes(to: *mut FunctionAttributes, kernel: *const c_void) = {
        let Some(code) = kernels::chosen(kernel) else { return state::failed(NO_KERNEL_IMAGE) };
        let found = FunctionAttributes {
            shared: 0,
            constant: 0,
            local: 0,
            threads_per_block: 1024,
            registers: REGISTERS,
            ptx_version: code.ptx,
            binary_version: code.binary,
            cache_mode: 0,
            dynamic_shared: 48 << 10,
        };
        put(to, found)
    };
    cudaLaunchKernel(
        kernel: *const c_void, grid: Extents, block: Extents, _arguments: *mut *mut c_void,
        _shared: usize, on: Stream
    ) = launch(kernel, grid, block, on);
    __cudaLaunchKernel(
        kernel: *const c_void, grid: Extents, block: Extents, arguments: *mut *mut c_void,
        shared: usize, on: Stream
    ) = cudaLaunchKernel(kernel, grid, block, arguments, shared, on);
    cudaLaunchCooperativeKernel(
        kernel: *const c_void, grid: Extents, block: Extents, arguments: *mut *mut c_void,
        shared: usize, on: Stream
    ) = cudaLaunchKernel(kernel, grid, block, arguments, shared, on);
    cudaLaunchKernelExC(config: *const LaunchConfig, kernel: *const c_void) =
        launch(kernel, (*config).grid, (*config).block, (*config).stream);
    cuLaunchKernelEx(config: *const DriverLaunchConfig, kernel: *const c_void) =
        launch(kernel, (*config).grid, (*config).block, (*config).stream);
    /// The driver's launches take the extents one by one.
    cuLaunchKernel(
        kernel: *const c_void, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, _shared: c_uint, on: Stream
    ) = {
        let grid = Extents { x: grid_x, y: grid_y, z: grid_z };
        launch(kernel, grid, Extents { x: block_x, y: block_y, z: block_z }, on)
    };
    cuLaunchCooperativeKernel(
        kernel: *const c_void, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, on: Stream
    ) = cuLaunchKernel(
        kernel, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, on
    );
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        to: *mut c_int, _kernel: *const c_void, threads: c_int
    ) = put(to, blocks_at_a_time(threads));
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        to: *mut c_int, _kernel: *const c_void, threads: c_int
    ) = put(to, blocks_at_a_time(threads));
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        to: *mut c_int, _kernel: *const c_void, threads: c_int
    ) = put(to, blocks_at_a_time(threads));
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        to: *mut c_int, _kernel: *const c_void, threads: c_int
    ) = put(to, blocks_at_a_time(threads));
    /// A kernel's name for `__cudaLaunchKernel`.
    __cudaGetKernel(to: *mut *const c_void, function: *const c_void) = put(to, function);
}
