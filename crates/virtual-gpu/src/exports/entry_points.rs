//! Entry points of the driver, which programs look up by name.

use std::ffi::c_void;

use crate::exports::table;

/// The address of a function of the driver. A name without a version is that of the newest one.
pub fn find(name: &str) -> Option<*const c_void> {
    let newest = format!("{name}_v2");
    let is_driver = name.starts_with("cu") && !name.starts_with("cuda");
    is_driver.then(|| table::find(&newest).or_else(|| table::find(name))).flatten()
}
