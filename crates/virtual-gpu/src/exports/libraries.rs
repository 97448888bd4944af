//! The smaller libraries: NVRTC, CUPTI, and sizes of workspaces that are not known.
//!
//! What cuSOLVER answers was measured for the usual decompositions, and is a guess for others (`decomposition.rs`).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::exports::signatures;
use crate::exports::state::{self, put};
use crate::workspace::{Guess, Subject, decomposition};

/// A function that asks how large a workspace must be: which arguments are places for answers, and their type. The
/// first answer is the device's, in bytes (`usize`) or elements (`c_int`); the second is the host's, which needs none.
macro_rules! no_workspace {
    ($name:ident ($($place:literal),* : $type:ty)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize,
            i: usize, j: usize, k: usize, l: usize, m: usize, n: usize, o: usize, p: usize,
            q: usize, r: usize, s: usize, t: usize,
        ) -> c_int {
            state::trace(stringify!($name));
            let arguments = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t];
            let is_bytes = size_of::<$type>() == size_of::<usize>();
            let mut size = crate::exports::libraries::ask(stringify!($name), &arguments, is_bytes);
            $({
                let to = std::ptr::with_exposed_provenance_mut::<$type>(arguments[$place - 1]);
                // SAFETY: the caller's argument of this number is a place for the size.
                unsafe { put(to, std::mem::take(&mut size) as $type) };
            })*
            0
        }
    };
}

pub(crate) use no_workspace;

/// The size of a workspace that a function asks for and that is about to be used, in bytes or elements.
pub fn ask(name: &'static str, arguments: &[usize], is_bytes: bool) -> u64 {
    if !name.starts_with("cuso") && !name.starts_with("cusparse") {
        return 0;
    }
    let arguments: Vec<u64> = arguments.iter().map(|&it| it as u64).collect();
    let (bytes, low, high) = decomposition(name, &arguments);
    let element = match name.as_bytes().get("cusolverDn".len()) {
        _ if is_bytes => 1,
        Some(b'D' | b'C') => 8,
        Some(b'Z') => 16,
        _ => 4,
    };
    let bytes = bytes.next_multiple_of(element);
    let ends = (low.min(bytes), high.max(bytes));
    let what = if name.starts_with("cuso") { DECOMPOSITIONS } else { SPARSE };
    used(name, &arguments, Guess { what, bytes, ends, chances: (25, 25) }) / element
}

const DECOMPOSITIONS: &str = "decompositions";
/// What operations of cuSPARSE are called in words.
pub const SPARSE: &str = "sparse matrices";

/// Bytes of a workspace that is about to be used: what was measured for these arguments, or the guess.
pub fn used(name: &'static str, arguments: &[u64], guess: Guess) -> u64 {
    let other = || Subject::Other(name, vec![guess.bytes, guess.ends.0, guess.ends.1]);
    let subject = signatures::line(name, arguments).map_or_else(other, Subject::Line);
    let bytes = state::workspace(subject.clone(), guess);
    state::ran(|| subject);
    bytes
}

skins! {
    nvrtcGetErrorString(code: c_int) -> *const c_char = state::numbered("NVRTC", code);
    nvrtcVersion(major: *mut c_int, minor: *mut c_int) = {
        let version = state::gpu().conf.cuda;
        put(major, version / 1000);
        put(minor, version % 1000 / 10)
    };
    /// A compiled program, and the log of its compilation, are one zero.
    nvrtcGetPTXSize(_program: *mut c_void, to: *mut usize) = put(to, 1);
    nvrtcGetPTX(_program: *mut c_void, to: *mut u8) = put(to, 0);
    nvrtcGetCUBINSize(_program: *mut c_void, to: *mut usize) = put(to, 1);
    nvrtcGetCUBIN(_program: *mut c_void, to: *mut u8) = put(to, 0);
    nvrtcGetProgramLogSize(_program: *mut c_void, to: *mut usize) = put(to, 1);
    nvrtcGetProgramLog(_program: *mut c_void, to: *mut u8) = put(to, 0);
    cuptiGetResultString(code: c_int, to: *mut *const c_char) =
        put(to, state::numbered("CUPTI", code));
    nvrtcGetLoweredName(_program: *mut c_void, _name: *const c_char, to: *mut *const c_char) =
        put(to, c"kernel".as_ptr());
    /// The profiler's library has a version and records nothing.
    cuptiGetVersion(to: *mut c_uint) = put(to, 130_000);
}
