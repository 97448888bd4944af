//! Entry points of the driver, which programs look up by name.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

use crate::exports::state::{number, pointer};

/// The address of a function of the driver. A name without a version is that of the newest one.
pub fn find(name: &str) -> Option<*const c_void> {
    let is_driver = name.starts_with("cu") && !name.starts_with("cuda");
    let named = |name: &str| exported(&CString::new(name).ok()?);
    is_driver.then(|| named(&format!("{name}_v2")).or_else(|| named(name))).flatten()
}

/// The address of a function that this library exports.
fn exported(name: &CString) -> Option<*const c_void> {
    static OWN: OnceLock<u64> = OnceLock::new();
    let own = pointer(*OWN.get_or_init(handle));
    // SAFETY: the handle is that of a library that stays loaded, and the name ends with a zero.
    let at = unsafe { libc::dlsym(own, name.as_ptr()) };
    (!own.is_null() && !at.is_null()).then_some(at.cast_const())
}

/// The handle by which the system's loader knows this library.
fn handle() -> u64 {
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is that of a function of this library; `about` is filled where it is known, whose name the
    // loader keeps.
    let own = unsafe {
        match libc::dladdr(handle as *const c_void, about.as_mut_ptr()) {
            0 => return 0,
            _ => libc::dlopen(about.assume_init().dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD),
        }
    };
    number(own)
}
