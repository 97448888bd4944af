//! The host's table: a device, as a plug-in in C sees it.
//!
//! Every call is checked before it is made, since what a plug-in says may be anything. A mistake ends the plug-in's
//! run: it is noted, and the call and all later ones fail. No panic crosses into C.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use gmlake_allocators::allocator::quietly;
use gmlake_allocators::device::{Device, DeviceError, DevicePtr, Fence, GRANULE, HandleId, Result};
use gmlake_core::program::StreamId;
use gmlake_core::units::{Bytes, TIB};

use crate::abi::{DONE, FAILED, HostTable, OUT_OF_MEMORY};

/// No GPU has more addresses, so that sums of two sizes do not overflow.
const MOST: Bytes = 256 * TIB;

/// A device that is lent to a plug-in for one call, and the first mistake that it made with it.
pub(crate) struct Lent<'d> {
    device: &'d mut dyn Device,
    mistake: Option<String>,
}

impl<'d> Lent<'d> {
    pub(crate) fn new(device: &'d mut dyn Device) -> Self {
        Self { device, mistake: None }
    }

    /// The table for one call, good as long as `self` is.
    pub(crate) fn table(&mut self) -> HostTable {
        HostTable {
            context: std::ptr::from_mut(self).cast(),
            memory_info,
            malloc,
            free,
            reserve,
            unreserve,
            create,
            release,
            map,
            set_access,
            unmap,
            synchronize,
            event_record,
            event_query,
            stream_wait_event,
            event_destroy,
        }
    }

    /// The first mistake.
    pub(crate) fn mistake(&mut self) -> Option<String> {
        self.mistake.take()
    }

    fn note(&mut self, mistake: String) -> c_int {
        self.mistake.get_or_insert(mistake);
        FAILED
    }
}

/// Makes one call: `work` says what came of it, or what is wrong with it.
fn call<T>(
    context: *mut c_void,
    name: &str,
    out: Option<*mut T>,
    work: impl FnOnce(&mut dyn Device) -> Result<Result<T>, String>,
) -> c_int {
    // SAFETY: the context is the `Lent` of the call that is under way, or null; only the plug-in's thread has it.
    let Some(lent) = (unsafe { context.cast::<Lent<'_>>().as_mut() }) else { return FAILED };
    if lent.mistake.is_some() {
        return FAILED;
    }
    if out.is_some_and(<*mut T>::is_null) {
        return lent.note(format!("it called {name} without a place for the result"));
    }
    let device = &mut *lent.device;
    match quietly(|| work(device)).and_then(|result| result) {
        Ok(Ok(value)) => {
            if let Some(out) = out {
                // SAFETY: it is not null, and the header says that it must be writable.
                unsafe { out.write(value) };
            }
            DONE
        }
        Ok(Err(DeviceError::OutOfMemory { .. })) => OUT_OF_MEMORY,
        Ok(Err(error)) => lent.note(error.to_string()),
        Err(why) => lent.note(format!("its call of {name} is wrong: {why}")),
    }
}

fn done<T>(value: T) -> Result<Result<T>, String> {
    Ok(Ok(value))
}

fn size(size: u64) -> Result<Bytes, String> {
    let is_possible = (1..=MOST).contains(&size);
    is_possible.then_some(size).ok_or_else(|| format!("a size of {size} bytes"))
}

fn granules(bytes: u64) -> Result<Bytes, String> {
    let is_whole = size(bytes)?.is_multiple_of(GRANULE);
    is_whole.then_some(bytes).ok_or_else(|| format!("{bytes} bytes are no multiple of 2 MiB"))
}

fn address(at: u64) -> Result<DevicePtr, String> {
    (at <= MOST).then_some(DevicePtr(at)).ok_or_else(|| format!("{at:#x} is no address"))
}

fn handle(number: u64) -> Result<HandleId, String> {
    u32::try_from(number).map(HandleId).map_err(|_| format!("{number} is no handle"))
}

fn fence(number: u64) -> Result<Fence, String> {
    u32::try_from(number).map(Fence).map_err(|_| format!("{number} is no event"))
}

fn stream(number: u32) -> Result<StreamId, String> {
    u16::try_from(number).map(StreamId).map_err(|_| format!("{number} is no stream"))
}

unsafe extern "C" fn memory_info(context: *mut c_void, free: *mut u64, total: *mut u64) -> c_int {
    let read = |context, out, of_free: bool| {
        call(context, "memory_info", Some(out), |device| {
            let info = device.memory_info();
            done(if of_free { info.free } else { info.total })
        })
    };
    match read(context, free, true) {
        DONE => read(context, total, false),
        failed => failed,
    }
}

/// The functions of the table: their arguments, and what the device is asked for them. Where there is a result, the
/// last argument is a place for it.
macro_rules! functions {
    ($(
        $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)? = |$device:ident| $work:expr;
    )+) => {
        $(functions! { @one $name($($argument: $type),*) $(-> $out)? = |$device| $work })+
    };
    (@one $name:ident($($argument:ident: $type:ty),*) -> $out:ty = |$device:ident| $work:expr) => {
        unsafe extern "C" fn $name(
            context: *mut c_void $(, $argument: $type)*, out: *mut $out
        ) -> c_int {
            call(context, stringify!($name), Some(out), |$device| $work)
        }
    };
    (@one $name:ident($($argument:ident: $type:ty),*) = |$device:ident| $work:expr) => {
        #[allow(clippy::unit_arg, reason = "most of these have no result")]
        unsafe extern "C" fn $name(context: *mut c_void $(, $argument: $type)*) -> c_int {
            call(context, stringify!($name), None, |$device| $work)
        }
    };
}

functions! {
    malloc(bytes: u64) -> u64 = |device| Ok(device.malloc(size(bytes)?).map(|at| at.0));
    free(at: u64) = |device| done(device.free(address(at)?));
    reserve(bytes: u64) -> u64 = |device| Ok(device.reserve(granules(bytes)?).map(|at| at.0));
    unreserve(at: u64, bytes: u64) =
        |device| done(device.unreserve(address(at)?, granules(bytes)?));
    create(bytes: u64) -> u64 =
        |device| Ok(device.create(granules(bytes)?).map(|handle| u64::from(handle.0)));
    release(number: u64) = |device| done(device.release(handle(number)?));
    map(at: u64, number: u64) = |device| Ok(device.map(address(at)?, &[handle(number)?]));
    set_access(at: u64, bytes: u64) =
        |device| Ok(device.set_access(address(at)?, granules(bytes)?));
    unmap(at: u64, bytes: u64) = |device| done(device.unmap(address(at)?, granules(bytes)?));
    synchronize() = |device| done(device.synchronize());
    event_record(number: u32) -> u64 = |device| done(u64::from(device.fence(stream(number)?).0));
    event_query(event: u64) -> c_int = |device| done(c_int::from(device.reached(fence(event)?)));
    stream_wait_event(number: u32, event: u64) =
        |device| done(device.stream_wait(stream(number)?, fence(event)?));
    event_destroy(event: u64) = |device| done(device.drop_fence(fence(event)?));
}
