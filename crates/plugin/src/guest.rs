//! One instance of a plug-in, as a guest of ours.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};

use gmlake_allocators::allocator::{Given, Guest};
use gmlake_allocators::device::{Device, DevicePtr};
use gmlake_core::program::StreamId;
use gmlake_core::units::Bytes;

use crate::abi::{AllocatorTable, DONE, HostTable, OUT_OF_MEMORY, RawBlock};
use crate::host::Lent;

/// What a plug-in must have, taken from its table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    create: unsafe extern "C" fn(*const std::ffi::c_char) -> *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
    allocate: unsafe extern "C" fn(*mut c_void, *const HostTable, u64, u32, *mut RawBlock) -> c_int,
    free: unsafe extern "C" fn(*mut c_void, *const HostTable, *const RawBlock, u32) -> c_int,
    empty_cache: Option<unsafe extern "C" fn(*mut c_void, *const HostTable) -> c_int>,
}

impl Functions {
    /// The functions of a table; the error names one that it lacks.
    pub(crate) fn of(table: &AllocatorTable) -> Result<Self, &'static str> {
        Ok(Self {
            create: table.create.ok_or("create")?,
            destroy: table.destroy.ok_or("destroy")?,
            allocate: table.allocate.ok_or("allocate")?,
            free: table.free.ok_or("free")?,
            empty_cache: table.empty_cache,
        })
    }

    /// A new instance; `None`: the plug-in refused.
    pub(crate) fn start(self, options: &str) -> Option<Instance> {
        let options = CString::new(options).ok()?;
        // SAFETY: the function is the plug-in's own, and gets what the header says.
        let instance = unsafe { (self.create)(options.as_ptr()) };
        (!instance.is_null()).then(|| Instance { functions: self, instance })
    }
}

/// An instance of a plug-in.
pub(crate) struct Instance {
    functions: Functions,
    instance: *mut c_void,
}

// SAFETY: the header says that the calls of an instance may come from any thread, one at a time.
unsafe impl Send for Instance {}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: `create` made it, and nobody calls it again.
        unsafe { (self.functions.destroy)(self.instance) };
    }
}

/// Lends the device to a plug-in for one call, and judges what came of it: whether memory was enough.
fn lend(
    device: &mut dyn Device,
    name: &str,
    work: impl FnOnce(*const HostTable) -> c_int,
) -> Result<bool, String> {
    let mut lent = Lent::new(device);
    let table = lent.table();
    let result = work(&raw const table);
    match (lent.mistake(), result) {
        (Some(mistake), _) => Err(mistake),
        (None, DONE) => Ok(true),
        (None, OUT_OF_MEMORY) => Ok(false),
        (None, code) => Err(format!("its {name} returned {code}")),
    }
}

impl Guest for Instance {
    fn allocate(
        &mut self,
        device: &mut dyn Device,
        size: Bytes,
        stream: StreamId,
    ) -> Result<Option<Given>, String> {
        let mut block = RawBlock::default();
        let (allocate, instance) = (self.functions.allocate, self.instance);
        let is_served = lend(device, "allocate", |host| {
            // SAFETY: the instance is live, and the table and the block outlive the call.
            unsafe { allocate(instance, host, size, stream.0.into(), &raw mut block) }
        })?;
        let RawBlock { address, size, tag } = block;
        Ok(is_served.then_some(Given { at: DevicePtr(address), size, tag }))
    }

    fn free(
        &mut self,
        device: &mut dyn Device,
        given: Given,
        stream: StreamId,
    ) -> Result<(), String> {
        let block = RawBlock { address: given.at.0, size: given.size, tag: given.tag };
        let (free, instance) = (self.functions.free, self.instance);
        let is_done = lend(device, "free", |host| {
            // SAFETY: as above.
            unsafe { free(instance, host, &raw const block, stream.0.into()) }
        })?;
        is_done.then_some(()).ok_or_else(|| "its free ran out of memory".to_owned())
    }

    fn empty_cache(&mut self, device: &mut dyn Device) -> Result<(), String> {
        let Some(empty_cache) = self.functions.empty_cache else { return Ok(()) };
        let instance = self.instance;
        // SAFETY: as above.
        let is_done = lend(device, "empty_cache", |host| unsafe { empty_cache(instance, host) })?;
        is_done.then_some(()).ok_or_else(|| "its empty_cache ran out of memory".to_owned())
    }
}
