//! `libgmlake_torch.so`: the functions that PyTorch calls.
//!
//! With `mount_interface` this is the only unsafe code of the plug-in. It turns what C hands over into Rust and back.
//! No panic crosses: after one, what the plug-in believes about memory may be wrong, so the process ends with a
//! message.
//!
//! PyTorch does not look at what `gmlake_malloc` returns, so that failures must be C++ exceptions. They are made from
//! PyTorch's own parts, found by name in the process (`libc10.so`, `libc10_cuda.so`): nothing of PyTorch is needed to
//! build this, and its Python sees `torch.OutOfMemoryError`. Where a part is missing, a `std::runtime_error` has to
//! do; without a C++ runtime, nothing could catch one, and null is returned.
//!
//! ```text
//!   object, from __cxa_allocate_exception        c10::Error(SourceLocation, std::string)  writes all of it,
//!   ┌────────┬─────────────────────────┐         then the first word is made to point to
//!   │ vtable │ message, backtrace, ... │         the vtable of c10::OutOfMemoryError, which adds no field
//!   └────────┴─────────────────────────┘
//! ```
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::{Failure, GpuAllocator, Process, print_error};

/// Functions that C calls. Texts end with a zero, places that are not null can be written to, and have the room that is
/// said; functions can be called with what stands next to them, and do not come back here.
macro_rules! exports {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $type:ty),*) $(-> $out:ty)? = $answer:expr;
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $out)? {
            // SAFETY: the caller promises what stands above.
            #[allow(unused_unsafe)]
            $crate::c_interface::guarded(|| unsafe { $answer })
        })*
    };
}

pub(crate) use exports;

/// `cudaStream_t`.
type Stream = *mut c_void;

/// Memory for `size` bytes on a GPU, for use on a stream; null for nothing.
///
/// Throws a C++ exception if there is no memory, or something else is wrong.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gmlake_malloc(size: usize, device: c_int, stream: Stream) -> *mut c_void {
    let answer = guarded(|| Process::get()?.malloc(size as u64, device, number(stream)));
    match answer {
        Ok(at) => std::ptr::with_exposed_provenance_mut(at as usize),
        Err(failure) => exception::throw(failure),
    }
}

exports! {
    /// Takes back what [`gmlake_malloc`] gave. `size` and `stream` are those of the request.
    gmlake_free(at: *mut c_void, _size: usize, device: c_int, _stream: Stream) =
        if let Ok(process) = Process::get() {
            process.free(number(at), device);
        };
    /// Says that there are this many GPUs. Each is opened when it is first used.
    gmlake_init(_devices: c_int) = print_line(Process::get().map(drop));
    /// `torch.cuda.empty_cache()`
    gmlake_reset() = print_line(Process::get().and_then(Process::trim));
    /// `torch.cuda.set_per_process_memory_fraction(fraction, device)`
    gmlake_memory_fraction(fraction: f64, device: c_int) =
        on(device, |allocator| print_line(allocator.set_fraction(fraction)));
    /// The first address of the block that `at` is in, and its size, unless `size` is null.
    gmlake_base(at: *mut c_void, size: *mut usize) -> *mut c_void = {
        let found = Process::get().ok().and_then(|process| process.base(number(at)));
        let Some((base, bytes)) = found else { return at };
        if !size.is_null() {
            size.write(bytes as usize);
        }
        std::ptr::with_exposed_provenance_mut(base as usize)
    };
    /// `Tensor.record_stream(stream)`
    gmlake_record_stream(at: *mut c_void, stream: Stream) =
        if let Ok(process) = Process::get() {
            process.record_stream(number(at), number(stream));
        };
    /// The capture of a CUDA graph begins, and its memory is to come from a pool, whose number is a pair. The last
    /// argument, a `std::function` that tells which streams are captured, is not needed: the driver knows.
    gmlake_begin_pool(device: c_int, high: u64, low: u64, _filter: *const c_void) =
        on(device, |allocator| allocator.begin_pool((high, low)));
    /// The capture is over.
    gmlake_end_pool(device: c_int, high: u64, low: u64) =
        on(device, |allocator| allocator.end_pool((high, low)));
    /// A graph with memory in this pool is gone.
    gmlake_release_pool(device: c_int, high: u64, low: u64) =
        on(device, |allocator| allocator.release_pool((high, low)));
    /// Settles allocator and options, in the syntax of `GMLAKE_CONF`. Returns 0, or the length of an error message, of
    /// which as much as fits is in `message`.
    gmlake_configure(conf: *const c_char, message: *mut c_char, room: usize) -> usize = {
        let error = Process::configure(&text(conf)).err().unwrap_or_default();
        hand_over(&error, message, room)
    };
    /// Writes what is known about every GPU in use as JSON, as much as fits; returns the length of all of it.
    gmlake_stats(out: *mut c_char, room: usize) -> usize = {
        let stats = Process::in_use().map(Process::stats).unwrap_or_default();
        let stats = serde_json::to_string(&stats).expect("names and numbers are JSON");
        hand_over(&stats, out, room)
    };
    /// Lets the peaks of a GPU begin anew.
    gmlake_reset_peak(device: c_int) = on(device, GpuAllocator::reset_peak);
    /// Keeps this many events of every GPU that is in use, from now on; 0: records no more.
    gmlake_record(entries: usize) =
        if let Some(process) = Process::in_use() {
            process.each(|allocator| allocator.set_history(entries));
        };
    /// Writes a snapshot. Returns as [`gmlake_configure`] does.
    gmlake_snapshot(path: *const c_char, message: *mut c_char, room: usize) -> usize = {
        let path = text(path);
        let written = Process::snapshot(Path::new(path.as_ref()));
        let error = written.err().map(|error| format!("{path}: {error}")).unwrap_or_default();
        hand_over(&error, message, room)
    };
    /// Looks whether there is a GPU to work with. Returns as [`gmlake_configure`] does.
    gmlake_check(device: c_int, message: *mut c_char, room: usize) -> usize =
        hand_over(&Process::check(device).err().unwrap_or_default(), message, room);
}

/// Runs what may panic, and ends the process if it does.
pub fn guarded<T>(run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        print_error(
            "gmlake: this is a bug in the allocator (see the message above); the process ends, \
             because memory may be in use twice. Without gmlake.enable, or with another \
             allocator, the program runs on.",
        );
        std::process::abort()
    })
}

/// For calls that cannot fail in PyTorch's eyes.
pub fn print_line(result: Result<(), Failure>) {
    if let Err(failure) = result {
        print_error(&failure.to_string());
    }
}

/// Runs something on the allocator of a GPU; says why not.
pub fn on(device: c_int, run: impl FnOnce(&mut GpuAllocator)) {
    let allocator = Process::get().and_then(|process| process.allocator(device));
    print_line(allocator.map(|mut allocator| run(&mut allocator)));
}

/// The number of an address or a handle.
fn number(pointer: *mut c_void) -> u64 {
    pointer.expose_provenance() as u64
}

/// A text that C hands over.
///
/// # Safety
/// It is a string that ends with a zero.
pub unsafe fn text<'t>(from: *const c_char) -> Cow<'t, str> {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(from) }.to_string_lossy()
}

/// Copies a text and a final zero, or as much of it as there is room for; returns the length of the text.
///
/// # Safety
/// `out` has room for `room` bytes.
pub unsafe fn hand_over(text: &str, out: *mut c_char, room: usize) -> usize {
    if room > 0 && !out.is_null() {
        let length = text.len().min(room - 1);
        // SAFETY: `length + 1` bytes are at most `room`, and a new text does not overlap the caller's buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, length);
            out.add(length).write(0);
        }
    }
    text.len()
}

/// C++ exceptions, out of parts that are found at run time.
mod exception {
    use std::ffi::{CStr, CString, c_char, c_void};

    use crate::{Failure, print_error};

    /// Room for a `c10::Error`, which has 150 bytes or so.
    const OBJECT: usize = 1024;

    const NEW: &CStr = c"_Znwm";
    const ALLOCATE: &CStr = c"__cxa_allocate_exception";
    const THROW: &CStr = c"__cxa_throw";
    const RUNTIME_ERROR: &CStr = c"_ZSt21__throw_runtime_errorPKc";
    const ERROR: &CStr =
        c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
    const OOM_VTABLE: &CStr = c"_ZTVN3c1016OutOfMemoryErrorE";
    const OOM_TYPE: &CStr = c"_ZTIN3c1016OutOfMemoryErrorE";

    /// `std::string` of libstdc++ (since GCC 5): where the text is, its length, and its capacity if it is elsewhere.
    #[repr(C)]
    struct StdString {
        text: *mut u8,
        length: usize,
        capacity: [usize; 2],
    }

    /// `c10::SourceLocation`
    #[repr(C)]
    struct SourceLocation {
        function: *const c_char,
        file: *const c_char,
        line: u32,
    }

    type New = unsafe extern "C" fn(usize) -> *mut u8;
    type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
    type Destructor = unsafe extern "C" fn(*mut c_void);
    type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, Destructor) -> !;
    type ThrowText = unsafe extern "C-unwind" fn(*const c_char) -> !;
    /// A class with a destructor is passed by address; a plain one of 24 bytes on the stack.
    type Construct = unsafe extern "C" fn(*mut c_void, SourceLocation, *mut StdString);

    /// The parts of `throw c10::OutOfMemoryError(location, text)`.
    struct Parts {
        new: New,
        allocate: Allocate,
        throw: Throw,
        construct: Construct,
        vtable: *const Destructor,
        class: *const c_void,
    }

    /// Throws; returns null if nothing can be thrown.
    pub(super) fn throw(failure: Failure) -> *mut c_void {
        let text = failure.to_string();
        let is_oom = matches!(failure, Failure::OutOfMemory(_));
        drop(failure);
        if is_oom && let Some(parts) = Parts::find() {
            // SAFETY: the parts were found under their names, so they are what those names mean.
            let object = unsafe { parts.build(&text) };
            drop(text);
            // SAFETY: the object was made by `parts.allocate` and constructed; nothing is left to be dropped here.
            unsafe {
                let destroy = parts.vtable.read();
                (parts.throw)(object, parts.class, destroy)
            }
        }
        let message = CString::new(text.replace('\0', " ")).unwrap_or_default();
        let Some(found) = symbol(c"libstdc++.so.6", RUNTIME_ERROR) else {
            print_error(&message.to_string_lossy());
            return std::ptr::null_mut();
        };
        // SAFETY: the name is that of `std::__throw_runtime_error(char const*)`, which copies the text; the text is
        // dropped as the exception passes.
        unsafe { std::mem::transmute::<*const c_void, ThrowText>(found)(message.as_ptr()) }
    }

    impl Parts {
        fn find() -> Option<Self> {
            let runtime = |name| symbol(c"libstdc++.so.6", name);
            let class =
                |name| symbol(c"libc10_cuda.so", name).or_else(|| symbol(c"libc10.so", name));
            let vtable: *const Destructor = class(OOM_VTABLE)?.cast();
            // SAFETY: each name is that of a function with this signature. A vtable begins with two words that are not
            // for calls; the first function after them is the destructor.
            unsafe {
                Some(Self {
                    new: std::mem::transmute::<*const c_void, New>(runtime(NEW)?),
                    allocate: std::mem::transmute::<*const c_void, Allocate>(runtime(ALLOCATE)?),
                    throw: std::mem::transmute::<*const c_void, Throw>(runtime(THROW)?),
                    construct: std::mem::transmute::<*const c_void, Construct>(symbol(
                        c"libc10.so",
                        ERROR,
                    )?),
                    vtable: vtable.add(2),
                    class: class(OOM_TYPE)?,
                })
            }
        }

        /// A `c10::OutOfMemoryError` with this text.
        ///
        /// # Safety
        /// The parts are what their names say.
        unsafe fn build(&self, text: &str) -> *mut c_void {
            let location = SourceLocation {
                function: c"gmlake_malloc".as_ptr(),
                file: c"gmlake".as_ptr(),
                line: 0,
            };
            // SAFETY: the string is laid out as libstdc++ does, its text from the C++ heap, where the one that takes it
            // over will return it; the object has more than enough room.
            unsafe {
                let copy = (self.new)(text.len() + 1);
                std::ptr::copy_nonoverlapping(text.as_ptr(), copy, text.len());
                copy.add(text.len()).write(0);
                let capacity = [text.len(), 0];
                let mut message = StdString { text: copy, length: text.len(), capacity };
                let object = (self.allocate)(OBJECT);
                (self.construct)(object, location, &raw mut message);
                object.cast::<*const Destructor>().write(self.vtable);
                object
            }
        }
    }

    /// A symbol of a library that is loaded already.
    fn symbol(library: &CStr, name: &CStr) -> Option<*const c_void> {
        // SAFETY: both names end with a zero. A library that is not there is not loaded; one that is stays.
        let found = unsafe {
            let library = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() {
                return None;
            }
            libc::dlsym(library, name.as_ptr())
        };
        (!found.is_null()).then_some(found.cast_const())
    }
}
