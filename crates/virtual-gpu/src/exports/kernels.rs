//! Kernels that libraries register while they are loaded, and the machine code behind each.
//!
//! Registering must not start the virtual GPU: it happens whenever a library is loaded, used or not. Nor is a binary
//! looked at before somebody asks, since its pages would have to be read from the file.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::images::{self, Chosen};
use rustc_hash::FxHashMap;

use crate::exports::state::{gpu, number, pointer};

/// `__fatBinC_Wrapper_t`: what a library registers.
#[repr(C)]
struct Wrapper {
    magic: c_int,
    version: c_int,
    binary: *const u8,
}

/// The first field of a wrapper.
const MAGIC: c_int = 0x4662_43b1;

/// The handle of the first binary; the next ones follow.
const FIRST: u64 = 0x8000;

#[derive(Default)]
struct Registered {
    /// Addresses of the wrappers, and zero for those of libraries that were unloaded.
    binaries: Vec<u64>,
    /// The binary of each kernel, by the address of its stub.
    kernels: FxHashMap<u64, u64>,
    /// What was chosen of each binary, for those that were asked for.
    chosen: FxHashMap<u64, Option<Chosen>>,
}

static REGISTERED: Mutex<Option<Registered>> = Mutex::new(None);

fn registered<R>(use_it: impl FnOnce(&mut Registered) -> R) -> R {
    let mut found = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(found.get_or_insert_default())
}

/// Which code the driver chooses for a kernel. One that was not registered was compiled for this card.
///
/// `None` if the card runs none of the code that there is.
pub fn chosen(kernel: *const c_void) -> Option<Chosen> {
    let card = gpu().conf.card.architecture();
    let own = Chosen { ptx: card, binary: card };
    registered(|it| {
        let Some(&handle) = it.kernels.get(&number(kernel)) else { return Some(own) };
        let wrapper = it.binaries.get(handle.wrapping_sub(FIRST) as usize).copied().unwrap_or(0);
        *it.chosen.entry(handle).or_insert_with(|| {
            // SAFETY: a library registers its own constant, and unregisters it before it is unloaded.
            let images = unsafe { images_of(pointer(wrapper).cast_const().cast()) };
            if images.is_empty() { Some(own) } else { images::chosen(&images, card) }
        })
    })
}

/// # Safety
/// The wrapper is null or what a library has registered.
unsafe fn images_of(wrapper: *const Wrapper) -> Vec<images::Image> {
    if wrapper.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises; a wrapper with this mark points to a binary, whose header tells its length.
    unsafe {
        let wrapper = &*wrapper;
        if wrapper.magic != MAGIC || wrapper.binary.is_null() {
            return Vec::new();
        }
        let length = images::length(&*wrapper.binary.cast::<[u8; images::HEADER]>());
        length.map_or_else(Vec::new, |length| {
            images::images(std::slice::from_raw_parts(wrapper.binary, length))
        })
    }
}

skins! {
    __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut *mut c_void = {
        let handle = registered(|it| {
            it.binaries.push(number(wrapper));
            FIRST + it.binaries.len() as u64 - 1
        });
        pointer(handle).cast()
    };
    __cudaUnregisterFatBinary(handle: *mut *mut c_void) -> () = {
        let handle = number(handle);
        registered(|it| {
            it.chosen.remove(&handle);
            it.kernels.retain(|_, of| *of != handle);
            if let Some(wrapper) = it.binaries.get_mut(handle.wrapping_sub(FIRST) as usize) {
                *wrapper = 0;
            }
        });
    };
    __cudaRegisterFunction(
        handle: *mut *mut c_void, stub: *const c_void, _name: *mut c_char,
        _device_name: *const c_char
    ) -> () = {
        registered(|it| it.kernels.insert(number(stub), number(handle)));
    };
}
