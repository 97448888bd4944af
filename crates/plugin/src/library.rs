//! Loading: from a file to an entry in the list of allocators.
//!
//! A library stays loaded until the process ends, since its code may run until then. So its entry may live as long.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gmlake_allocators::allocator::{OptionError, Role, Spec, admit, hosted};
use gmlake_core::units::Bytes;
use libloading::Library;

use crate::abi::{AllocatorTable, ENTRY, Entry, VERSION};
use crate::guest::Functions;

/// Longest name of a plug-in: it heads a column.
const LONGEST: usize = 24;

/// Why a file is no plug-in.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct PlugInError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong, and what is expected; or what the system says.
    pub reason: String,
}

/// Loads a plug-in, whose name is then known to [`find`](gmlake_allocators::allocator::find). A file that was loaded
/// before is not loaded again.
///
/// Its code runs in this process: load only what you trust.
///
/// # Errors
/// If the file is no plug-in of this version, or its name is taken.
pub fn load(path: &Path) -> Result<&'static Spec, PlugInError> {
    static LOADED: Mutex<BTreeMap<PathBuf, &'static Spec>> = Mutex::new(BTreeMap::new());
    let wrong = |reason| PlugInError { file: path.to_owned(), reason };
    let unreadable = |why: String| wrong(format!("cannot be loaded: {why}"));
    // A name without a slash would be looked for in the system's folders.
    let file = path.canonicalize().map_err(|error| unreadable(error.to_string()))?;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(spec) = loaded.get(&file) {
        return Ok(spec);
    }
    // SAFETY: the user named the file to have its code run; its initialisers are its own matter.
    let library = unsafe { Library::new(&file) }.map_err(|error| unreadable(one_line(&error)))?;
    // SAFETY: the header declares the function so.
    let entry = unsafe { library.get::<Entry>(ENTRY) };
    let entry = *entry.map_err(|_| wrong(format!("no plug-in: it does not export {ENTRY}")))?;
    std::mem::forget(library);
    // SAFETY: the library stays, and the header says that the table does.
    let table = unsafe { entry().as_ref() };
    let spec = table.ok_or_else(|| format!("{ENTRY} returned null")).and_then(spec_of);
    let spec: &'static Spec = Box::leak(Box::new(spec.map_err(wrong)?));
    admit(spec).map_err(wrong)?;
    loaded.insert(file, spec);
    Ok(spec)
}

fn one_line(error: &libloading::Error) -> String {
    let text =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The entry in the list of allocators that a table makes.
fn spec_of(table: &'static AllocatorTable) -> Result<Spec, String> {
    if table.version != VERSION {
        let found = table.version;
        return Err(format!("made for version {found} of gmlake_allocator.h; expected {VERSION}"));
    }
    let functions = Functions::of(table).map_err(|name| format!("its table has no {name}"))?;
    let name = text(table.name).filter(|name| is_name(name)).ok_or_else(|| {
        format!("its name must be 1 to {LONGEST} characters of a-z, 0-9, - and _")
    })?;
    if !table.alignment.is_power_of_two() {
        return Err(format!("its alignment is {}, not a power of two", table.alignment));
    }
    let build = move |options: &mut gmlake_allocators::allocator::Options, _: &_| {
        let given = options.take_all();
        let instance = functions.start(&given).ok_or_else(|| {
            let with = if given.is_empty() { "" } else { " with the options " };
            OptionError(format!("the plug-in did not start{with}{given}"))
        })?;
        Ok(hosted(Box::new(instance)))
    };
    Ok(Spec {
        name,
        summary: text(table.summary).unwrap_or("a plug-in"),
        options: &[],
        role: Role::PlugIn,
        alignment: Bytes::from(table.alignment),
        build: Box::leak(Box::new(build)),
    })
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    (1..=LONGEST).contains(&name.len()) && name.chars().all(is_letter)
}

fn text(at: *const c_char) -> Option<&'static str> {
    // SAFETY: the header says that the text ends with a zero, and lives as long as the library, which stays.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }).and_then(|text| text.to_str().ok())
}
