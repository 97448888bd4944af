//! A plug-in in Rust: a trait to implement, and the table that C wants made of it.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{AllocatorTable, DONE, FAILED, HostTable, OUT_OF_MEMORY, RawBlock, VERSION};

/// What a plug-in hands out: address, size and a tag of its own.
pub type Block = RawBlock;

/// Memory is short, or a call was wrong; the host knows which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

/// The device, during a call. See `gmlake_host` for what each call does.
#[derive(Debug)]
pub struct Host<'h>(&'h HostTable);

/// The calls that give a number for a number, and those that change something.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),*) $(-> $out:ty)?;)+) => {
        impl Host<'_> {
            $(calls! { @one $(#[$doc])* $name($($arg),*) $(-> $out)? })+
        }
    };
    (@one $(#[$doc:meta])* $name:ident($($arg:ident),*) -> $out:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// If memory is short, or the call is wrong.
        pub fn $name(&self, $($arg: u64),*) -> Result<$out, NoMemory> {
            let mut out = <$out>::default();
            // SAFETY: the table is the host's, and the result has a place.
            let code = unsafe { (self.0.$name)(self.0.context, $($arg,)* &raw mut out) };
            if code == DONE { Ok(out) } else { Err(NoMemory) }
        }
    };
    (@one $(#[$doc:meta])* $name:ident($($arg:ident),*)) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// If the call is wrong.
        pub fn $name(&self, $($arg: u64),*) -> Result<(), NoMemory> {
            // SAFETY: the table is the host's.
            let code = unsafe { (self.0.$name)(self.0.context, $($arg),*) };
            if code == DONE { Ok(()) } else { Err(NoMemory) }
        }
    };
}

calls! {
    /// `cuMemAlloc`: an address.
    malloc(size) -> u64;
    /// `cuMemFree`.
    free(address);
    /// `cuMemAddressReserve`: an address.
    reserve(size) -> u64;
    /// `cuMemAddressFree`.
    unreserve(address, size);
    /// `cuMemCreate`: a handle.
    create(size) -> u64;
    /// `cuMemRelease`.
    release(handle);
    /// `cuMemMap`.
    map(address, handle);
    /// `cuMemSetAccess`.
    set_access(address, size);
    /// `cuMemUnmap`.
    unmap(address, size);
    /// `cuCtxSynchronize`.
    synchronize();
}

/// An allocator.
pub trait PlugIn: Default {
    /// Its name, and one line that says what it is.
    const NAMES: (&'static CStr, &'static CStr);

    /// Serves a request on a stream.
    ///
    /// # Errors
    /// If memory is short.
    fn allocate(&mut self, host: &Host<'_>, size: u64, stream: u32) -> Result<Block, NoMemory>;

    /// Takes back a block that only this stream may still use.
    ///
    /// # Errors
    /// If a call of the host failed.
    fn free(&mut self, host: &Host<'_>, block: Block, stream: u32) -> Result<(), NoMemory>;

    /// Gives back what need not be held.
    ///
    /// # Errors
    /// If a call of the host failed.
    fn empty_cache(&mut self, _host: &Host<'_>) -> Result<(), NoMemory> {
        Ok(())
    }
}

/// The table of a plug-in, for [`export!`](crate::export).
pub const fn table<P: PlugIn>() -> AllocatorTable {
    AllocatorTable {
        version: VERSION,
        alignment: 512,
        name: P::NAMES.0.as_ptr(),
        summary: P::NAMES.1.as_ptr(),
        create: Some(create::<P>),
        destroy: Some(destroy::<P>),
        allocate: Some(allocate::<P>),
        free: Some(free::<P>),
        empty_cache: Some(empty_cache::<P>),
    }
}

/// Makes a library a plug-in: `export!(Mine);`, where `Mine` is a [`PlugIn`].
#[macro_export]
macro_rules! export {
    ($plug_in:ty) => {
        /// The plug-in's table.
        // SAFETY: no other function of the library has the name.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C" fn gmlake_allocator_entry() -> *const $crate::abi::AllocatorTable {
            Box::leak(Box::new($crate::table::<$plug_in>()))
        }
    };
}

unsafe extern "C" fn create<P: PlugIn>(options: *const c_char) -> *mut c_void {
    // SAFETY: the host gives a text.
    let has_options = unsafe { !CStr::from_ptr(options).is_empty() };
    if has_options { std::ptr::null_mut() } else { Box::into_raw(Box::new(P::default())).cast() }
}

unsafe extern "C" fn destroy<P: PlugIn>(instance: *mut c_void) {
    // SAFETY: `create` made it, and the host calls this once.
    drop(unsafe { Box::from_raw(instance.cast::<P>()) });
}

/// The instance and the host of a call.
fn lent<'i, P>(instance: *mut c_void, host: *const HostTable) -> (&'i mut P, Host<'i>) {
    // SAFETY: the host gives back what `create` made, in one call at a time, and a table that outlives the call.
    unsafe { (&mut *instance.cast::<P>(), Host(&*host)) }
}

fn code(result: Result<(), NoMemory>) -> c_int {
    if result.is_ok() { DONE } else { FAILED }
}

unsafe extern "C" fn allocate<P: PlugIn>(
    instance: *mut c_void,
    host: *const HostTable,
    size: u64,
    stream: u32,
    out: *mut RawBlock,
) -> c_int {
    let (plug_in, host) = lent::<P>(instance, host);
    match plug_in.allocate(&host, size, stream) {
        Ok(block) => {
            // SAFETY: the host gives a place for it.
            unsafe { out.write(block) };
            DONE
        }
        Err(NoMemory) => OUT_OF_MEMORY,
    }
}

unsafe extern "C" fn free<P: PlugIn>(
    instance: *mut c_void,
    host: *const HostTable,
    block: *const RawBlock,
    stream: u32,
) -> c_int {
    let (plug_in, host) = lent::<P>(instance, host);
    // SAFETY: the host gives a block.
    code(plug_in.free(&host, unsafe { *block }, stream))
}

unsafe extern "C" fn empty_cache<P: PlugIn>(
    instance: *mut c_void,
    host: *const HostTable,
) -> c_int {
    let (plug_in, host) = lent::<P>(instance, host);
    code(plug_in.empty_cache(&host))
}
