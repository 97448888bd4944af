//! Objects: what is kept of each thing that a program makes and names by a handle.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::exports::state::{gpu, number, pointer, put};

/// Things of one kind, by their handles.
pub struct Objects<T>(Mutex<FxHashMap<u64, T>>);

impl<T> Objects<T> {
    /// None yet.
    pub const fn new() -> Self {
        Self(Mutex::new(FxHashMap::with_hasher(FxBuildHasher)))
    }

    /// All of them, by the numbers of their handles.
    pub fn all(&self) -> MutexGuard<'_, FxHashMap<u64, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept of a handle.
    pub fn get(&self, of: *const c_void) -> Option<T>
    where
        T: Clone,
    {
        self.all().get(&number(of)).cloned()
    }

    /// Keeps this of a handle, in place of what was kept.
    pub fn set(&self, of: *const c_void, thing: T) {
        self.all().insert(number(of), thing);
    }

    /// Changes what is kept of a handle, or looks at it, if there is something.
    pub fn change<R>(&self, of: *const c_void, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.all().get_mut(&number(of)).map(change)
    }

    /// Forgets a handle.
    pub fn forget(&self, of: *const c_void) {
        self.all().remove(&number(of));
    }

    /// Makes a handle for something.
    ///
    /// # Safety
    /// `to` is null or can be written to.
    pub unsafe fn create(&self, to: *mut *mut c_void, thing: T) -> c_int {
        let handle = pointer(gpu().object());
        self.set(handle, thing);
        // SAFETY: as the caller promises.
        unsafe { put(to, handle) }
    }
}
