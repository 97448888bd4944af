//! The functions for `gmlake predict`, which its Python side calls.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::{Properties, philox, post};

use crate::exports::copies::{self, OnUnknownRead};
use crate::exports::state::{self, gpu, number, put_text};
use crate::exports::{host, pages};

skins! {
    /// These bytes have the values that a real GPU would hold.
    gmlake_gpu_known(at: *const c_void, bytes: usize) -> () =
        gpu().known.add(number(at), bytes as u64);
    /// A kernel would have written these bytes.
    gmlake_gpu_unknown(at: *const c_void, bytes: usize) -> () =
        gpu().known.remove(number(at), bytes as u64);
    /// Whether all of these bytes are known.
    gmlake_gpu_is_known(at: *const c_void, bytes: usize) =
        gpu().known.holds(number(at), bytes as u64).into();
    /// Notes for each piece of so many bytes of the host's memory whether it is all zeros, in a list with a byte for
    /// each piece. Where nothing was written, it is not read. Returns 0 and notes nothing where a file may be mapped.
    gmlake_gpu_host_zeros(at: *const c_void, bytes: usize, piece: usize, flags: *mut u8) = {
        let at = number(at);
        if piece == 0 || !pages::is_anonymous(at, bytes as u64) {
            return 0;
        }
        for (index, first) in (0..bytes).step_by(piece).enumerate() {
            let length = piece.min(bytes - first);
            flags.add(index).write(pages::is_zero(at + first as u64, length as u64).into());
        }
        1
    };
    /// Makes this memory of the host read as zeros without a write to each page; 0 where that cannot be done.
    gmlake_gpu_host_discard(at: *mut c_void, bytes: usize) =
        host::discard(number(at), bytes).into();
    /// The next copy of `bytes` bytes (8 at most) from the device to the host on this thread delivers `value`.
    gmlake_gpu_expect_read(bytes: usize, value: u64) -> () = state::expect_read(bytes, value);
    /// Forgets the values that `gmlake_gpu_expect_read` announced and nothing read.
    gmlake_gpu_expect_nothing() -> () = state::expect_nothing();
    /// Calls `call` from now on whenever bytes are read that are not known; null ends that.
    gmlake_gpu_on_unknown_read(call: Option<OnUnknownRead>) -> () = copies::on_unknown_read(call);
    /// This process has used so much of the processor for what the host of a real GPU does not do.
    gmlake_gpu_leave_out(processor_ns: u64) -> () = gpu().timeline.leave_out(processor_ns);
    /// Fills four lists of `count` integers, one behind the other, with the words that as many threads of a GPU draw.
    gmlake_gpu_philox(seed: u64, counter: u64, first: u64, count: usize, words: *mut u64) -> () = {
        for index in 0..count {
            let drawn = philox(seed, counter, first + index as u64);
            for (list, word) in drawn.into_iter().enumerate() {
                words.add(list * count + index).write(word.into());
            }
        }
    };
    /// When all that was done and queued so far will be done, in nanoseconds by the estimated clock.
    gmlake_gpu_all_done_ns() -> u64 = state::gpu_now().timeline.all_done_ns();
    /// Writes the names of all cards that there are, as a JSON array. Does not start the virtual GPU.
    gmlake_gpu_cards(text: *mut c_char, room: usize) -> usize = {
        let names: Vec<String> = Properties::all().into_iter().map(|card| card.name).collect();
        put_text(&serde_json::json!(names).to_string(), text, room)
    };
    /// Writes what was counted, as a JSON object.
    gmlake_gpu_report(text: *mut c_char, room: usize) -> usize =
        put_text(&gpu().report(), text, room);
    /// Waits for a file of another rank, which may compute for as many seconds; 0 if it does not come. Says why on
    /// standard error.
    gmlake_gpu_wait(path: *const c_char, from: usize, seconds: u64) = {
        let path = Path::new(OsStr::from_bytes(CStr::from_ptr(path).to_bytes()));
        let found = post::wait(path, from, Duration::from_secs(seconds));
        found.inspect_err(|why| eprintln!("gmlake: virtual GPU: {why}")).is_ok().into()
    };
}
