//! The functions of `libgmlake_torch.so` that the full mount calls (`python/gmlake/mount/interface.h` declares them).
//!
//! Nothing is thrown here: a failure is a number, and its text is fetched by the thread that met it.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{LazyLock, Mutex, Once, PoisonError};

use gmlake_allocators::pinned::ExactPinned;

use crate::{Elsewhere, Event, Failure, GpuAllocator, Numbers, Process, Served, Shown};

use crate::c_interface::{exports, hand_over, on, print_line, text};

/// What [`gmlake_mount_malloc`] returns.
const SERVED: c_int = 0;
const NO_MEMORY: c_int = 1;
const FAILED: c_int = 2;

thread_local! {
    /// Why the last request of this thread was not served.
    static FAILURE: RefCell<String> = const { RefCell::new(String::new()) };
}

exports! {
    /// Memory for `size` bytes, more than none: 0 and what it is, or 1 (no memory) or 2 (anything else).
    gmlake_mount_malloc(device: c_int, size: u64, stream: u64, out: *mut Served) -> c_int =
        answer(Process::get().and_then(|process| process.serve(size, device, stream)), out);
    /// The program is refused memory: that counts, and is an entry of the history.
    gmlake_mount_refused(device: c_int, size: u64, stream: u64) =
        on(device, |allocator| allocator.note_refused(size, stream));
    /// Why the last request of this thread was not served. Returns the length of the text.
    gmlake_mount_failure(out: *mut c_char, room: usize) -> usize =
        FAILURE.with_borrow(|text| hand_over(text, out, room));
    /// Takes memory back: 1, and what it was; 0 if it is not ours.
    gmlake_mount_free(at: u64, out: *mut Served) -> c_int = {
        let taken = Process::in_use().and_then(|process| process.take_back(at));
        let Some(served) = taken else { return 0 };
        out.write(served);
        1
    };
    /// `Tensor.record_stream`: 1 if the block is ours.
    gmlake_mount_record_stream(at: u64, stream: u64) -> c_int =
        Process::in_use().is_some_and(|process| process.record_stream(at, stream)).into();
    /// The block that an address is in: 1 if it is ours.
    gmlake_mount_find(at: u64, base: *mut u64, size: *mut u64) -> c_int = {
        let found = Process::in_use().and_then(|process| process.base(at));
        let Some(block) = found else { return 0 };
        base.write(block.0);
        size.write(block.1);
        1
    };
    /// Gives back what no block needs, on one GPU; nothing happens while something is held.
    gmlake_mount_trim(device: c_int) = on(device, |allocator| print_line(allocator.trim()));
    /// A capture, or a pool elsewhere, begins (not 0) or ends (0).
    gmlake_mount_hold(device: c_int, begins: c_int) =
        on(device, |allocator| allocator.hold(begins != 0));
    /// What PyTorch's own allocator holds on a GPU.
    gmlake_mount_elsewhere(device: c_int, held: *const Elsewhere) =
        on(device, |allocator| allocator.set_elsewhere(held.read()));
    /// All numbers of a GPU; zeros if it was not used.
    gmlake_mount_numbers(device: c_int, out: *mut Numbers) = {
        out.write(Numbers::default());
        on(device, |allocator| out.write(allocator.numbers()));
    };
    /// What came and went is counted anew.
    gmlake_mount_reset_accumulated(device: c_int) = on(device, GpuAllocator::reset_accumulated);
    /// Shows every block to a function, which is also handed `context`.
    gmlake_mount_show(
        device: c_int, visit: extern "C" fn(*mut c_void, *const Shown), context: *mut c_void
    ) = on(device, |allocator| allocator.show(&mut |shown| visit(context, shown)));
}

type Listener = extern "C" fn(c_int, c_int, u64, u64, u64);

/// Who listens, as a pointer to a [`Listener`]; null: no one.
static LISTENER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn tell(event: &Event) {
    let listener = LISTENER.load(Ordering::Acquire);
    if listener.is_null() {
        return;
    }
    // SAFETY: what is not null was stored by `gmlake_mount_observe`, which was given such a function.
    let listener: Listener = unsafe { std::mem::transmute(listener) };
    let Event { device, action, at, size, stream } = *event;
    listener(device as c_int, action as c_int, at, size, stream);
}

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn forked() {
    Process::has_forked();
}

type Keep = extern "C" fn(*mut c_void, u64, u64) -> u64;
type Fill = extern "C" fn(*mut c_void, u64, u64);

/// Runs something on the pinned memory of this process.
fn on_host<T>(run: impl FnOnce(&mut ExactPinned) -> T) -> T {
    static HOST: LazyLock<Mutex<ExactPinned>> = LazyLock::new(Mutex::default);
    run(&mut HOST.lock().unwrap_or_else(PoisonError::into_inner))
}

exports! {
    /// Calls a function for everything that happens, with the GPU's lock held: GPU, action in PyTorch's order, address,
    /// size, stream. Null: no more.
    gmlake_mount_observe(listener: Option<Listener>) = {
        let pointer = listener.map_or(std::ptr::null_mut(), |it| it as *mut c_void);
        if pointer.is_null() {
            Process::get().into_iter().for_each(|process| process.observe(None));
        }
        LISTENER.store(pointer, Ordering::Release);
        if !pointer.is_null() {
            Process::get().into_iter().for_each(|process| process.observe(Some(tell)));
        }
    };
    /// Called once, before the first request: from then on a forked process is notified and need not ask.
    gmlake_mount_begin() = {
        static ONCE: Once = Once::new();
        // The function only stores a byte, which is allowed after a fork.
        ONCE.call_once(|| {
            if pthread_atfork(None, None, Some(forked)) == 0 {
                Process::will_tell_of_forks();
            }
        });
    };
    /// Gives memory of a GPU back: of these tags (names with commas between them; none: all). `keep` takes an address
    /// and a size and returns what the contents are known by, or 0 if it cannot; null: contents are lost. Returns as
    /// [`gmlake_mount_malloc`] does, and the bytes.
    gmlake_mount_sleep(
        device: c_int, tags: *const c_char, keep: Option<Keep>, context: *mut c_void,
        bytes: *mut u64
    ) -> c_int = {
        let tags = tags_of(&text(tags));
        let outcome = Process::get().and_then(|process| {
            let mut allocator = process.allocator(device)?;
            match keep {
                None => allocator.sleep(&tags, None),
                Some(keep) => allocator.sleep(
                    &tags,
                    Some(&mut |at, size| Some(keep(context, at.0, size)).filter(|&kept| kept != 0)),
                ),
            }
        });
        answer(outcome, bytes)
    };
    /// Gives memory back to these tags, where it was. `fill` takes an address, and what the contents that belong there
    /// are known by. Returns as [`gmlake_mount_sleep`] does.
    gmlake_mount_wake(
        device: c_int, tags: *const c_char, fill: Fill, context: *mut c_void, bytes: *mut u64
    ) -> c_int = {
        let tags = tags_of(&text(tags));
        let outcome = Process::get().and_then(|process| {
            process.allocator(device)?.wake(&tags, &mut |at, kept| fill(context, at.0, kept))
        });
        answer(outcome, bytes)
    };
    /// Hands over what kept contents are known by that is not wanted any more.
    gmlake_mount_unwanted(
        device: c_int, drop: extern "C" fn(*mut c_void, u64), context: *mut c_void
    ) = on(device, |allocator| {
        allocator.take_unwanted().into_iter().for_each(|kept| drop(context, kept));
    });
    /// The number of the tag with this name.
    gmlake_tag(name: *const c_char) -> u32 = crate::tag(&text(name));
    /// What this thread asks for has this tag from now on (0: none); returns the one before.
    gmlake_use_tag(tag: u32) -> u32 = crate::use_tag(tag);
    /// The address of a free pinned block for `size` bytes, which is handed out; 0 if one must be pinned.
    gmlake_host_take(size: u64) -> u64 = on_host(|host| host.take(size)).unwrap_or(0);
    /// The address of a free block that is to be unpinned before `size` more bytes are pinned (0: in any case); 0: none
    /// is.
    gmlake_host_evict(size: u64) -> u64 =
        on_host(|host| if size == 0 { host.evict() } else { host.evict_for(size) }).unwrap_or(0);
    /// A block was pinned for a request of `size` bytes.
    gmlake_host_pin(at: u64, size: u64) = on_host(|host| host.pin(at, size));
    /// Neither the program nor a GPU uses a block any more.
    gmlake_host_put(at: u64) = {
        on_host(|host| host.put(at));
    };
}

fn tags_of(names: &str) -> Vec<u32> {
    names.split(',').filter(|name| !name.is_empty()).map(crate::tag).collect()
}

/// # Safety
/// `place` can be written to.
unsafe fn answer<T>(outcome: Result<T, Failure>, place: *mut T) -> c_int {
    match outcome {
        Ok(answer) => {
            // SAFETY: the caller promises a place.
            unsafe { place.write(answer) };
            SERVED
        }
        Err(failure) => {
            FAILURE.set(failure.to_string());
            if matches!(failure, Failure::OutOfMemory(_)) { NO_MEMORY } else { FAILED }
        }
    }
}
