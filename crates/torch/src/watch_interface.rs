//! CUPTI's calls of us: before and after functions of the driver, on the thread that called them.
//!
//! CUPTI serves one subscriber in a process. While we are it, PyTorch's profiler sees no kernels, and the other way
//! round we get an error. So nobody watches unless asked. The structs are those of `cupti.h` and its generated
//! parameters of CUDA 12 and 13.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use gmlake_core::beside::{Uses, beside_pytorch};
use gmlake_core::cards::Card;

use crate::c_interface::{exports, hand_over, text};
use crate::watch::{Watch, asker};

/// `CUpti_CallbackData`, its first fields.
#[repr(C)]
struct Call {
    site: c_int,
    name: *const c_char,
    parameters: *const u64,
    result: *const c_int,
}

/// The location in `CUmemAllocationProp`, behind two numbers.
#[repr(C)]
struct Properties {
    kind: c_int,
    handle_kinds: c_int,
    location_kind: c_int,
}

const EXIT: c_int = 1;
const DRIVER: c_int = 1;
const ON_DEVICE: c_int = 1;

/// Numbers of the functions in CUPTI's list.
const ALLOC: c_uint = 243;
const FREE: c_uint = 245;
const CREATE: c_uint = 549;
const RELEASE: c_uint = 550;
const MAP: c_uint = 551;
const UNMAP: c_uint = 552;
const ALLOC_ASYNC: c_uint = 598;
const FREE_ASYNC: c_uint = 600;
const ALLOC_FROM_POOL: c_uint = 611;
const ALL: [c_uint; 9] =
    [ALLOC, FREE, CREATE, RELEASE, MAP, UNMAP, ALLOC_ASYNC, FREE_ASYNC, ALLOC_FROM_POOL];

/// Calls on a stack that are looked at.
const DEPTH: usize = 32;

static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

/// Files of the functions on this thread's stack, the innermost first.
fn stack() -> Vec<String> {
    let mut frames = [ptr::null_mut(); DEPTH];
    // SAFETY: there is room for `DEPTH` addresses.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), DEPTH as c_int) };
    frames[..count as usize].iter().filter_map(|&at| file_of(at)).collect()
}

fn file_of(at: *const c_void) -> Option<String> {
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: any address may be asked for, and the place for the answer is ours.
    let is_known = unsafe { libc::dladdr(at, &raw mut found) } != 0 && !found.dli_fname.is_null();
    // SAFETY: the loader keeps the name for as long as the library is there, which is on our stack.
    is_known.then(|| unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned())
}

/// Called by CUPTI on every call that we have asked for.
///
/// # Safety
/// `call` is what CUPTI hands over: its parameters are those of the function with this number.
unsafe extern "C" fn on_call(_: *mut c_void, _: c_int, function: c_uint, call: *const Call) {
    // SAFETY: as the caller promises. Parameters are words: numbers, addresses, and places for results.
    unsafe {
        if (*call).site != EXIT || *(*call).result != 0 {
            return;
        }
        let parameters = (*call).parameters;
        let word = |index: usize| *parameters.add(index);
        let result = || *ptr::with_exposed_provenance::<u64>(word(0) as usize);
        let owner = || asker(stack().iter().map(String::as_str)).to_owned();
        let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = watch.get_or_insert_default();
        match function {
            ALLOC | ALLOC_ASYNC | ALLOC_FROM_POOL => watch.alloc(owner(), result(), word(1)),
            FREE | FREE_ASYNC => watch.free(word(0)),
            CREATE => {
                let properties = ptr::with_exposed_provenance::<Properties>(word(2) as usize);
                if (*properties).location_kind == ON_DEVICE {
                    watch.create(owner(), result(), word(1));
                }
            }
            RELEASE => watch.release(word(0)),
            MAP => watch.map(word(0), word(3)),
            UNMAP => watch.unmap(word(0)),
            _ => {}
        }
    }
}

type OnCall = unsafe extern "C" fn(*mut c_void, c_int, c_uint, *const Call);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, OnCall, *mut c_void) -> c_int;
type Enable = unsafe extern "C" fn(c_uint, *mut c_void, c_int, c_uint) -> c_int;

/// Watches from now on, through the CUPTI in this file. 0, or CUPTI's error code, or -1 if the file cannot be loaded.
///
/// # Safety
/// `path` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gmlake_watch(path: *const c_char) -> c_int {
    stack(); // glibc loads what it needs for this at the first call
    // SAFETY: `path` is a text; the functions have these types in every CUPTI of CUDA 12 and 13.
    unsafe {
        let library = libc::dlopen(path, libc::RTLD_NOW);
        let find = |name: &str| {
            let name = CString::new(name).unwrap_or_default();
            if library.is_null() { ptr::null_mut() } else { libc::dlsym(library, name.as_ptr()) }
        };
        let (subscribe, enable) = (find("cuptiSubscribe"), find("cuptiEnableCallback"));
        if subscribe.is_null() || enable.is_null() {
            return -1;
        }
        let subscribe = std::mem::transmute::<*mut c_void, Subscribe>(subscribe);
        let enable = std::mem::transmute::<*mut c_void, Enable>(enable);
        let mut subscriber = ptr::null_mut();
        let code = subscribe(&raw mut subscriber, on_call, ptr::null_mut());
        let enabled = ALL.iter().map(|&function| enable(1, subscriber, DRIVER, function));
        if code == 0 { enabled.max().unwrap_or(0) } else { code }
    }
}

exports! {
    /// Writes what each library has taken since [`gmlake_watch`], as JSON, and returns its length.
    gmlake_watched(out: *mut c_char, room: usize) -> usize = {
        let watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        let found = watch.as_ref().map_or_else(|| "{}".to_owned(), Watch::to_json);
        drop(watch);
        hand_over(&found, out, room)
    };
    /// Writes what a process with these uses (a JSON object of counts) is expected to take of a card besides PyTorch's
    /// allocator, as JSON, and returns its length. The card is named as its driver names it.
    gmlake_beside(
        card: *const c_char, uses: *const c_char, out: *mut c_char, room: usize
    ) -> usize = {
        let card = text(card);
        let uses: Uses = serde_json::from_str(&text(uses)).unwrap_or_default();
        let known = Card::built_in();
        let is_it = |known: &&Card| known.chip.as_ref().is_some_and(|chip| chip.reported == card);
        let name = known.iter().find(is_it).map_or(&*card, |known| &known.name);
        let found = serde_json::to_string(&beside_pytorch(name, &uses)).unwrap_or_default();
        hand_over(&found, out, room)
    };
}
