//! Devices of the CUDA runtime: how many there are, and their properties.

use std::ffi::{c_char, c_int};

use crate::Properties;

use crate::exports::state::{
    self, Code, INVALID_DEVICE, INVALID_VALUE, SUCCESS, failed, gpu, put, remembered,
};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> Code {
    // SAFETY: the caller hands over places for both.
    unsafe {
        put(least, 0);
        put(greatest, -5)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetPCIBusId(
    to: *mut c_char,
    room: c_int,
    device: c_int,
) -> Code {
    if device_index(device).is_none() {
        return failed(INVALID_DEVICE);
    }
    let text = format!("0000:{:02X}:00.0\0", device + 1);
    if room < text.len() as c_int {
        return failed(INVALID_VALUE);
    }
    // SAFETY: the caller hands over `room` bytes.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len()) };
    SUCCESS
}

/// `CUDA 12` and `CUDA 13` lay `cudaDeviceProp` out differently. Offsets of a field in both, and what it holds.
struct Field(usize, usize, u64, usize);

fn fields(card: &Properties) -> Vec<Field> {
    let one = card.multiprocessor();
    let attribute = |number| card.attribute(number) as u64;
    let int = |old, new, number| Field(old, new, attribute(number), 4);
    let size = |old, new, bytes| Field(old, new, bytes, 8);
    vec![
        size(288, 288, card.memory),
        size(296, 296, attribute(8)),
        int(304, 304, 12),
        int(308, 308, 10),
        size(312, 312, attribute(11)),
        int(320, 320, 1),
        int(324, 324, 2),
        int(328, 328, 3),
        int(332, 332, 4),
        int(336, 336, 5),
        int(340, 340, 6),
        int(344, 344, 7),
        size(352, 352, attribute(9)),
        int(360, 360, 75),
        int(364, 364, 76),
        size(368, 368, attribute(14)),
        size(376, 376, attribute(51)),
        int(388, 384, 16),
        int(400, 392, 19),
        int(576, 560, 31),
        int(580, 564, 32),
        int(600, 584, 40),
        int(604, 588, 41),
        int(616, 596, 38),
        int(624, 604, 39),
        int(628, 608, 78),
        int(632, 612, 79),
        int(636, 616, 80),
        size(640, 624, one.shared),
        int(648, 632, 82),
        int(652, 636, 83),
        int(676, 656, 89),
        int(680, 660, 90),
        int(688, 668, 95),
        size(696, 672, one.shared_per_block),
        int(712, 688, 106),
        size(720, 696, attribute(111)),
        int(744, 720, 115),
        int(772, 748, 120),
    ]
}

/// # Safety
/// `to` has room for `size` bytes, the whole struct.
unsafe fn put_properties(to: *mut u8, size: usize, is_new: bool) -> Code {
    let card = gpu().conf.card.clone();
    // SAFETY: as the caller promises; the name is shorter than its 256 bytes, and all offsets lie inside.
    unsafe {
        std::ptr::write_bytes(to, 0, size);
        let name = card.chip.reported.as_bytes();
        std::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len().min(255));
        for Field(old, new, value, width) in fields(&card) {
            let bytes = value.to_ne_bytes();
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

/// A device's index, if there is such a device.
pub fn device_index(device: c_int) -> Option<usize> {
    usize::try_from(device).ok().filter(|&index| index < gpu().memories.len())
}

skins! {
    cudaDeviceGetAttribute(to: *mut c_int, attribute: c_int, device: c_int) =
        remembered(on_device(device, || put(to, gpu().conf.card.attribute(attribute))));
    /// CUDA 13.
    cudaGetDeviceProperties(to: *mut u8, device: c_int) =
        remembered(on_device(device, || put_properties(to, 1008, true)));
    /// CUDA 12.
    cudaGetDeviceProperties_v2(to: *mut u8, device: c_int) =
        remembered(on_device(device, || put_properties(to, 1032, false)));
    cudaGetDeviceCount(to: *mut c_int) = put(to, gpu().memories.len() as c_int);
    cudaGetDevice(to: *mut c_int) = put(to, state::device());
    cudaSetDevice(device: c_int) = state::remembered(state::set_device(device));
    cudaDeviceCanAccessPeer(to: *mut c_int, device: c_int, peer: c_int) =
        put(to, c_int::from(device != peer));
    cudaDriverGetVersion(to: *mut c_int) = put(to, gpu().conf.cuda);
    cudaRuntimeGetVersion(to: *mut c_int) = cudaDriverGetVersion(to);
}
