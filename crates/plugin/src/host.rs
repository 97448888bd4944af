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

/// Makes a call that no device refuses, and that has no result.
fn perform(
    context: *mut c_void,
    name: &str,
    work: impl FnOnce(&mut dyn Device) -> Result<(), String>,
) -> c_int {
    call(context, name, None, |device| work(device).map(Ok))
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

unsafe extern "C" fn malloc(context: *mut c_void, bytes: u64, out: *mut u64) -> c_int {
    call(context, "malloc", Some(out), |device| Ok(device.malloc(size(bytes)?).map(|at| at.0)))
}

unsafe extern "C" fn free(context: *mut c_void, at: u64) -> c_int {
    perform(context, "free", |device| {
        device.free(address(at)?);
        Ok(())
    })
}

unsafe extern "C" fn reserve(context: *mut c_void, bytes: u64, out: *mut u64) -> c_int {
    call(context, "reserve", Some(out), |device| {
        Ok(device.reserve(granules(bytes)?).map(|at| at.0))
    })
}

unsafe extern "C" fn unreserve(context: *mut c_void, at: u64, bytes: u64) -> c_int {
    perform(context, "unreserve", |device| {
        device.unreserve(address(at)?, granules(bytes)?);
        Ok(())
    })
}

unsafe extern "C" fn create(context: *mut c_void, bytes: u64, out: *mut u64) -> c_int {
    call(context, "create", Some(out), |device| {
        Ok(device.create(granules(bytes)?).map(|handle| u64::from(handle.0)))
    })
}

unsafe extern "C" fn release(context: *mut c_void, number: u64) -> c_int {
    perform(context, "release", |device| {
        device.release(handle(number)?);
        Ok(())
    })
}

unsafe extern "C" fn map(context: *mut c_void, at: u64, number: u64) -> c_int {
    call(context, "map", None, |device| Ok(device.map(address(at)?, &[handle(number)?])))
}

unsafe extern "C" fn set_access(context: *mut c_void, at: u64, bytes: u64) -> c_int {
    call(
        context,
        "set_access",
        None,
        |device| Ok(device.set_access(address(at)?, granules(bytes)?)),
    )
}

unsafe extern "C" fn unmap(context: *mut c_void, at: u64, bytes: u64) -> c_int {
    perform(context, "unmap", |device| {
        device.unmap(address(at)?, granules(bytes)?);
        Ok(())
    })
}

unsafe extern "C" fn synchronize(context: *mut c_void) -> c_int {
    perform(context, "synchronize", |device| {
        device.synchronize();
        Ok(())
    })
}

unsafe extern "C" fn event_record(context: *mut c_void, number: u32, out: *mut u64) -> c_int {
    call(context, "event_record", Some(out), |device| {
        done(u64::from(device.fence(stream(number)?).0))
    })
}

unsafe extern "C" fn event_query(context: *mut c_void, event: u64, out: *mut c_int) -> c_int {
    call(context, "event_query", Some(out), |device| {
        done(c_int::from(device.reached(fence(event)?)))
    })
}

unsafe extern "C" fn stream_wait_event(context: *mut c_void, number: u32, event: u64) -> c_int {
    perform(context, "stream_wait_event", |device| {
        device.stream_wait(stream(number)?, fence(event)?);
        Ok(())
    })
}

unsafe extern "C" fn event_destroy(context: *mut c_void, event: u64) -> c_int {
    perform(context, "event_destroy", |device| {
        device.drop_fence(fence(event)?);
        Ok(())
    })
}
