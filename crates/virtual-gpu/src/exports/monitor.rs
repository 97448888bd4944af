//! NVML, the monitor: what PyTorch, nvidia-smi's bindings and `gmlake card` ask for.
//!
//! It tells of all devices, seen or not, and of no other process: each process has virtual devices of its own. The
//! memory in use is what the process took, as `cudaMemGetInfo` says. A handle is the device's index on the machine
//! and 1.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::visible;

use crate::exports::state::{gpu, number, pointer, put, put_text};

type Device = *mut c_void;

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const INSUFFICIENT_SIZE: c_int = 7;

/// `nvmlMemory_t`
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`
#[repr(C)]
pub struct Memory2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_t`
#[repr(C)]
pub struct Process {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The index of a device, if there is such a one.
fn index(of: Device) -> Option<usize> {
    let index = (number(of) as usize).checked_sub(1)?;
    (index < gpu().conf.devices).then_some(index)
}

/// Free bytes and all bytes of a device. Before the program uses one, each has what its use will take.
fn memory(of: Device) -> Option<(u64, u64)> {
    let index = index(of)?;
    let gpu = gpu();
    if let Some(seen) = gpu.visible.iter().position(|&device| device == index) {
        return Some(gpu.memories[seen].info());
    }
    let (all, used) = (gpu.conf.card.memory, gpu.beside().bytes);
    Some((if gpu.visible.is_empty() { all.saturating_sub(used) } else { all }, all))
}

/// # Safety
/// `to` is null or has `room` characters.
unsafe fn put_whole(text: &str, to: *mut c_char, room: c_uint) -> c_int {
    match room as usize {
        _ if to.is_null() => INVALID_ARGUMENT,
        room if text.len() >= room => INSUFFICIENT_SIZE,
        room => {
            // SAFETY: the caller promises the room.
            unsafe { put_text(text, to, room) };
            SUCCESS
        }
    }
}

/// `NVML_P2P_CAPS_INDEX_NVLINK`, `NVML_P2P_STATUS_OK` and `NVML_P2P_STATUS_NOT_SUPPORTED`
const NVLINK: c_int = 2;
const LINKED: c_int = 0;
const NOT_LINKED: c_int = 5;

/// Chips with NVLink between all cards of a machine, by compute capability: V100 to B300.
const WITH_NVLINK: [(i32, i32); 5] = [(7, 0), (8, 0), (9, 0), (10, 0), (10, 3)];

skins! {
    nvmlErrorString(code: c_int) -> *const c_char = {
        let text: &CStr = match code {
            SUCCESS => c"Success",
            INVALID_ARGUMENT => c"Invalid Argument",
            NOT_SUPPORTED => c"Not Supported",
            INSUFFICIENT_SIZE => c"Insufficient Size",
            _ => c"Unknown Error",
        };
        text.as_ptr()
    };
    /// Bus addresses are those of `cudaDeviceGetPCIBusId`: the bus is the index and 1. That of the properties is 0, for
    /// which PyTorch asks when memory runs out.
    nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, to: *mut Device) = {
        if bus.is_null() {
            return INVALID_ARGUMENT;
        }
        let text = CStr::from_ptr(bus).to_string_lossy();
        let bus = text.split(':').nth(1).and_then(|part| c_uint::from_str_radix(part, 16).ok());
        nvmlDeviceGetHandleByIndex_v2(bus.unwrap_or(0).saturating_sub(1), to)
    };
    /// This process, with all that it took.
    nvmlDeviceGetComputeRunningProcesses_v3(of: Device, count: *mut c_uint, to: *mut Process) = {
        let Some((free, total)) = memory(of) else { return INVALID_ARGUMENT };
        let room = if count.is_null() { 0 } else { *count };
        if put(count, 1) != SUCCESS || room == 0 || to.is_null() {
            return INSUFFICIENT_SIZE;
        }
        let (pid, instance) = (std::process::id(), c_uint::MAX);
        let used = total - free;
        put(to, Process { pid, used, gpu_instance: instance, compute_instance: instance })
    };
    /// Whether devices reach each other: all do over PCIe, as `cudaDeviceCanAccessPeer` says.
    nvmlDeviceGetP2PStatus(one: Device, other: Device, by: c_int, to: *mut c_int) = {
        if index(one).is_none() || index(other).is_none() {
            return INVALID_ARGUMENT;
        }
        let is_linked = by != NVLINK || WITH_NVLINK.contains(&gpu().conf.card.chip.capability);
        put(to, if is_linked { LINKED } else { NOT_LINKED })
    };
    nvmlDeviceGetUUID(of: Device, to: *mut c_char, room: c_uint) =
        index(of).map_or(INVALID_ARGUMENT, |index| {
            put_whole(&visible::name(index), to, room)
        });
    nvmlDeviceGetCudaComputeCapability(of: Device, major: *mut c_int, minor: *mut c_int) =
        index(of).map_or(INVALID_ARGUMENT, |_| {
            let capability = gpu().conf.card.chip.capability;
            put(major, capability.0).max(put(minor, capability.1))
        });
    /// The place has the version in it.
    nvmlDeviceGetMemoryInfo_v2(of: Device, to: *mut Memory2) =
        memory(of).map_or(INVALID_ARGUMENT, |(free, total)| {
            let version = if to.is_null() { 0 } else { (*to).version };
            put(to, Memory2 { version, total, reserved: 0, free, used: total - free })
        });
    nvmlDeviceGetGpuFabricInfoV() = NOT_SUPPORTED;
    nvmlDeviceGetMigMode() = NOT_SUPPORTED;
    nvmlDeviceGetNumaNodeId() = NOT_SUPPORTED;
    nvmlDeviceGetNvLinkRemoteDeviceType() = NOT_SUPPORTED;
    nvmlDeviceGetNvLinkRemotePciInfo_v2() = NOT_SUPPORTED;
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) =
        if (index as usize) < gpu().conf.devices {
            put(to, pointer(u64::from(index) + 1))
        } else {
            INVALID_ARGUMENT
        };
    nvmlDeviceGetIndex(of: Device, to: *mut c_uint) =
        index(of).map_or(INVALID_ARGUMENT, |index| put(to, index as c_uint));
    nvmlDeviceGetName(of: Device, to: *mut c_char, room: c_uint) =
        index(of).map_or(INVALID_ARGUMENT, |_| put_whole(&gpu().conf.card.chip.reported, to, room));
    nvmlDeviceGetMemoryInfo(of: Device, to: *mut Memory) =
        memory(of).map_or(INVALID_ARGUMENT, |(free, total)| {
            put(to, Memory { total, free, used: total - free })
        });
    /// The first version: PyTorch counts devices by it, so that a process that only counts may fork.
    nvmlInit() = SUCCESS;
    nvmlInit_v2() = SUCCESS;
    nvmlInitWithFlags(_flags: c_uint) = SUCCESS;
    nvmlShutdown() = SUCCESS;
    nvmlDeviceGetCount_v2(to: *mut c_uint) = put(to, gpu().conf.devices as c_uint);
    /// An old form, which PyTorch asks when memory ran out: there are no others.
    nvmlDeviceGetComputeRunningProcesses(
        _device: Device, count: *mut c_uint, _processes: *mut c_void
    ) = put(count, 0);
    nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) = put(to, gpu().conf.cuda);
    /// The driver under which the memory of cards and of contexts was measured (`cards.csv`, `beside.csv`).
    nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) = put_whole("580.159.04", to, room);
}
