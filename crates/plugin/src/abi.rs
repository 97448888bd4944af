//! `gmlake_allocator.h` in Rust: the same structs in the same order. A test compares their sizes with the compiler's.

use std::ffi::{c_char, c_int, c_void};

/// See `GMLAKE_ALLOCATOR_VERSION`.
pub const VERSION: u32 = 1;
/// It was done.
pub const DONE: c_int = 0;
/// Memory is short.
pub const OUT_OF_MEMORY: c_int = 1;
/// It failed otherwise.
pub const FAILED: c_int = 2;

/// Changes one thing, named by a number.
pub type ByOne = unsafe extern "C" fn(*mut c_void, u64) -> c_int;
/// Changes one thing, named by two numbers.
pub type ByTwo = unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int;
/// Gives a number for a number.
pub type Obtain = unsafe extern "C" fn(*mut c_void, u64, *mut u64) -> c_int;

/// See `gmlake_host`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HostTable {
    /// First argument of each function.
    pub context: *mut c_void,
    /// Free and total bytes.
    pub memory_info: unsafe extern "C" fn(*mut c_void, *mut u64, *mut u64) -> c_int,
    /// Size to address.
    pub malloc: Obtain,
    /// Address.
    pub free: ByOne,
    /// Size to address.
    pub reserve: Obtain,
    /// Address and size.
    pub unreserve: ByTwo,
    /// Size to handle.
    pub create: Obtain,
    /// Handle.
    pub release: ByOne,
    /// Address and handle.
    pub map: ByTwo,
    /// Address and size.
    pub set_access: ByTwo,
    /// Address and size.
    pub unmap: ByTwo,
    /// Waits for the GPU.
    pub synchronize: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Stream to event.
    pub event_record: unsafe extern "C" fn(*mut c_void, u32, *mut u64) -> c_int,
    /// Event to whether it was reached.
    pub event_query: unsafe extern "C" fn(*mut c_void, u64, *mut c_int) -> c_int,
    /// Stream and event.
    pub stream_wait_event: unsafe extern "C" fn(*mut c_void, u32, u64) -> c_int,
    /// Event.
    pub event_destroy: ByOne,
}

/// See `gmlake_block`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawBlock {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The plug-in's own.
    pub tag: u64,
}

/// See `gmlake_allocator`. What may be null is an `Option`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AllocatorTable {
    /// [`VERSION`].
    pub version: u32,
    /// Of all addresses.
    pub alignment: u32,
    /// Its name.
    pub name: *const c_char,
    /// What it is.
    pub summary: *const c_char,
    /// Makes an instance.
    pub create: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    /// Drops it.
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Serves a request.
    pub allocate: Option<
        unsafe extern "C" fn(*mut c_void, *const HostTable, u64, u32, *mut RawBlock) -> c_int,
    >,
    /// Takes a block back.
    pub free:
        Option<unsafe extern "C" fn(*mut c_void, *const HostTable, *const RawBlock, u32) -> c_int>,
    /// Gives back what need not be held.
    pub empty_cache: Option<unsafe extern "C" fn(*mut c_void, *const HostTable) -> c_int>,
}

/// The function that a library exports.
pub type Entry = unsafe extern "C" fn() -> *const AllocatorTable;
/// Its name.
pub const ENTRY: &str = "gmlake_allocator_entry";
