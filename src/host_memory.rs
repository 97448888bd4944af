//! Host memory: the system's, and one line and exit code 2 where it has no more. Rust's own answer is to abort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::report::remove_unfinished;
use crate::units::Size;

/// The system's allocator, which ends the program where it has no memory.
#[derive(Debug)]
pub struct OrEnd {
    /// The program's name.
    pub program: &'static str,
    /// What a user can do, before the limit of the process is raised, such as `use fewer threads (--jobs 1), or `.
    pub remedy: &'static str,
}

// SAFETY: every call goes to `System` as it is, and what `System` returns is passed on unless it is null.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the rules of this very method.
        self.or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.or_end(unsafe { System.realloc(block, layout, size) }, size)
    }
}

impl OrEnd {
    #[inline]
    fn or_end(&self, block: *mut u8, size: usize) -> *mut u8 {
        if block.is_null() {
            end(size, self);
        }
        block
    }
}

/// Whether a thread is about to end the program.
static ENDS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether it is this one.
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Ends the program after a request of this many bytes. What this needs of memory is little; should there be none at
/// all, it ends without more words.
#[cold]
fn end(size: usize, OrEnd { program, remedy }: &OrEnd) -> ! {
    if ENDS.swap(true, Ordering::SeqCst) {
        if !IS_HERE.get() {
            // The other thread needs a moment.
            std::thread::sleep(Duration::from_secs(2));
        }
        exit();
    }
    IS_HERE.set(true);
    let size = Size(size as u64);
    let _ = writeln!(
        io::stderr(),
        "{program}: memory ran out: the system refused {size} more; {remedy}raise the limit of this \
         process (ulimit -v)"
    );
    remove_unfinished();
    exit();
}

/// Ends at once: destructors of a program without memory might want some.
#[allow(unsafe_code)]
fn exit() -> ! {
    // SAFETY: it takes no pointer and does not return.
    unsafe { libc::_exit(2) }
}
