//! Devices of the CUDA runtime: how many there are, and their properties.

use std::ffi::{c_char, c_int};

use crate::visible;

use crate::exports::state::{
    self, Code, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, SUCCESS, failed, gpu, put, put_text,
    remembered,
};

/// Widths of fields, in bytes.
const INT: usize = 4;
const SIZE: usize = 8;

/// Fields of `cudaDeviceProp`, which CUDA 12 and CUDA 13 lay out differently: the offsets in both, the width, and the
/// attribute that the field holds.
const FIELDS: &[(usize, usize, usize, c_int)] = &[
    (296, 296, SIZE, 8),  // sharedMemPerBlock
    (304, 304, INT, 12),  // regsPerBlock
    (308, 308, INT, 10),  // warpSize
    (312, 312, SIZE, 11), // memPitch
    (320, 320, INT, 1),   // maxThreadsPerBlock
    (324, 324, INT, 2),   // maxThreadsDim
    (328, 328, INT, 3),
    (332, 332, INT, 4),
    (336, 336, INT, 5), // maxGridSize
    (340, 340, INT, 6),
    (344, 344, INT, 7),
    (352, 352, SIZE, 9),   // totalConstMem
    (360, 360, INT, 75),   // major
    (364, 364, INT, 76),   // minor
    (368, 368, SIZE, 14),  // textureAlignment
    (376, 376, SIZE, 51),  // texturePitchAlignment
    (388, 384, INT, 16),   // multiProcessorCount
    (400, 392, INT, 19),   // canMapHostMemory
    (576, 560, INT, 31),   // concurrentKernels
    (580, 564, INT, 32),   // ECCEnabled
    (600, 584, INT, 40),   // asyncEngineCount
    (604, 588, INT, 41),   // unifiedAddressing
    (616, 596, INT, 38),   // l2CacheSize
    (624, 604, INT, 39),   // maxThreadsPerMultiProcessor
    (628, 608, INT, 78),   // streamPrioritiesSupported
    (632, 612, INT, 79),   // globalL1CacheSupported
    (636, 616, INT, 80),   // localL1CacheSupported
    (640, 624, SIZE, 81),  // sharedMemPerMultiprocessor
    (648, 632, INT, 82),   // regsPerMultiprocessor
    (652, 636, INT, 83),   // managedMemory
    (676, 656, INT, 89),   // concurrentManagedAccess
    (680, 660, INT, 90),   // computePreemptionSupported
    (688, 668, INT, 95),   // cooperativeLaunch
    (696, 672, SIZE, 97),  // sharedMemPerBlock, on request
    (712, 688, INT, 106),  // maxBlocksPerMultiProcessor
    (720, 696, SIZE, 111), // reservedSharedMemPerBlock
    (744, 720, INT, 115),  // memoryPoolsSupported
    (772, 748, INT, 120),  // clusterLaunch
];
/// `uuid` and `totalGlobalMem`, in both.
const UUID: usize = 256;
const TOTAL: usize = 288;

/// # Safety
/// `to` has room for `size` bytes, the whole struct.
unsafe fn put_properties(to: *mut u8, device: c_int, size: usize, is_new: bool) -> Code {
    let Some(index) = device_index(device) else { return INVALID_DEVICE };
    let card = gpu().conf.card.clone();
    let uuid = visible::uuid(gpu().visible[index]);
    // SAFETY: as the caller promises; the name is shorter than its 256 bytes, and all offsets lie inside.
    unsafe {
        std::ptr::write_bytes(to, 0, size);
        put_text(&card.chip.reported, to.cast(), 256);
        to.add(UUID).cast::<[u8; 16]>().write_unaligned(uuid);
        to.add(TOTAL).cast::<u64>().write_unaligned(card.memory);
        for &(old, new, width, attribute) in FIELDS {
            let bytes = (card.attribute(attribute) as u64).to_ne_bytes();
            let at = to.add(if is_new { new } else { old });
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, width);
        }
    }
    SUCCESS
}

/// The answer to a question about a device, if there is such a device.
pub fn on_device(device: c_int, answer: impl FnOnce() -> Code) -> Code {
    if device_index(device).is_some() { answer() } else { INVALID_DEVICE }
}

/// Writes how many devices there are; an error where there is none.
///
/// # Safety
/// `to` is null or can be written to.
pub unsafe fn count(to: *mut c_int) -> Code {
    let devices = state::devices();
    // SAFETY: as the caller promises.
    let written = unsafe { put(to, devices as c_int) };
    if devices == 0 { NO_DEVICE } else { written }
}

/// A device's index, if there is such a device.
pub fn device_index(device: c_int) -> Option<usize> {
    usize::try_from(device).ok().filter(|&index| index < state::devices())
}

skins! {
    cudaDeviceGetPCIBusId(to: *mut c_char, room: c_int, device: c_int) = {
        let Some(index) = device_index(device) else { return failed(INVALID_DEVICE) };
        let text = format!("0000:{:02X}:00.0\0", gpu().visible[index] + 1);
        if room < text.len() as c_int {
            return failed(INVALID_VALUE);
        }
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        SUCCESS
    };
    cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) =
        { put(least, 0); put(greatest, -5) };
    cudaDeviceGetAttribute(to: *mut c_int, attribute: c_int, device: c_int) =
        remembered(on_device(device, || put(to, gpu().conf.card.attribute(attribute))));
    /// CUDA 13.
    cudaGetDeviceProperties(to: *mut u8, device: c_int) =
        remembered(put_properties(to, device, 1008, true));
    /// CUDA 12.
    cudaGetDeviceProperties_v2(to: *mut u8, device: c_int) =
        remembered(put_properties(to, device, 1032, false));
    cudaGetDeviceCount(to: *mut c_int) = remembered(count(to));
    cudaGetDevice(to: *mut c_int) = put(to, state::device());
    cudaSetDevice(device: c_int) = state::remembered(state::set_device(device));
    cudaDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int) =
        put(to, c_int::from(device != peer));
    cudaDriverGetVersion(to: *mut c_int) = put(to, gpu().conf.cuda);
    cudaRuntimeGetVersion(to: *mut c_int) = cudaDriverGetVersion(to);
}
