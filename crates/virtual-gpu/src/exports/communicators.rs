//! Communicators of NCCL: groups of ranks, and how they are made from each other.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Parcel, Post};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::exports::objects::Objects;
use crate::exports::state::{self, gpu, list, put};

/// `ncclResult_t`
pub type Result_ = c_int;
pub const SUCCESS: Result_ = 0;
pub const SYSTEM_ERROR: Result_ = 2;
pub const INVALID_ARGUMENT: Result_ = 4;

/// `ncclUniqueId`: how the ranks of a communicator find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId([u8; 128]);

/// A group of ranks.
#[derive(Debug, Default)]
pub struct Communicator {
    pub name: String,
    pub rank: usize,
    pub world: usize,
    /// Whether `world` is the real number. It is not known after a split by a rank that runs alone.
    pub is_whole: bool,
    exchanges: u64,
    /// Whether a collective has connected its ranks.
    is_ring: bool,
    /// Ranks that it is connected to, to send and to receive.
    peers: FxHashSet<(usize, bool)>,
    splits: u64,
    /// Messages sent to and received from each rank.
    pub sent: FxHashMap<usize, u64>,
    pub received: FxHashMap<usize, u64>,
}

static COMMUNICATORS: Objects<Communicator> = Objects::new();

/// Uses a communicator, if there is one with this handle.
pub fn with<R>(handle: *mut c_void, use_it: impl FnOnce(&mut Communicator) -> R) -> Option<R> {
    COMMUNICATORS.change(handle, use_it)
}

/// A new communicator, which takes memory.
fn new(name: String, rank: usize, world: usize, is_whole: bool) -> Communicator {
    gpu().count_once("nccl");
    gpu().count_once("stream"); // NCCL works on streams of its own, whatever PyTorch's is
    gpu().count(&[(if world == 1 { "communicator_of_one" } else { "communicator" }, 1)]);
    Communicator { name, rank, world, is_whole, ..Communicator::default() }
}

/// How many ranks a communicator has.
pub fn world_of(communicator: *mut c_void) -> usize {
    with(communicator, |it| it.world).unwrap_or(1)
}

/// The way to other processes.
pub fn post() -> Post {
    gpu().post.clone()
}

fn hexadecimal(id: &UniqueId) -> String {
    id.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

static MESSAGE: Mutex<Option<std::ffi::CString>> = Mutex::new(None);

/// Remembers and says why a collective failed.
pub fn failed(problem: &str) -> Result_ {
    eprintln!("gmlake: virtual GPU: {problem}");
    *MESSAGE.lock().unwrap_or_else(PoisonError::into_inner) = std::ffi::CString::new(problem).ok();
    SYSTEM_ERROR
}

/// Counts the memory with which the first collective connects the ranks of a communicator.
pub fn connect(on: *mut c_void) {
    let is_new = with(on, |it| it.world > 1 && !std::mem::replace(&mut it.is_ring, true));
    if is_new == Some(true) {
        gpu().count(&[("ring", 1)]);
    }
}

/// Counts the memory with which a communicator is connected to a rank, in one direction.
pub fn connect_to(on: *mut c_void, peer: usize, is_sent: bool) {
    let is_new = with(on, |it| peer != it.rank && it.peers.insert((peer, is_sent)));
    if is_new == Some(true) {
        let mut gpu = gpu();
        gpu.count_once("messages");
        gpu.count(&[(if is_sent { "sender" } else { "receiver" }, 1)]);
    }
}

/// Gives and takes on a communicator: its name, this rank, and what every rank brought.
pub fn exchange(on: *mut c_void, mine: &Parcel) -> Option<(String, usize, Vec<Parcel>)> {
    let (name, number, rank, world) = with(on, |it| {
        it.exchanges += 1;
        (it.name.clone(), it.exchanges, it.rank, it.world)
    })?;
    match post().exchange(&name, number, (rank, world), mine) {
        Ok(all) => Some((name, rank, all)),
        Err(error) => {
            failed(&error);
            None
        }
    }
}

skins! {
    /// The ranks that bring the same colour, in the order of their keys. A rank that runs alone does not know how many.
    ncclCommSplit(
        parent: *mut c_void, color: c_int, key: c_int, to: *mut *mut c_void, _config: *const c_void
    ) = {
        let bytes = [color.to_ne_bytes(), key.to_ne_bytes()].concat();
        let mine = Parcel { bytes, is_known: true };
        let Some((name, rank, all)) = exchange(parent, &mine) else { return SYSTEM_ERROR };
        let splits = with(parent, |parent| {
            parent.splits += 1;
            parent.splits
        });
        if color < 0 {
            return put(to, std::ptr::null_mut());
        }
        let name = format!("{name}-{}c{color}", splits.unwrap_or(0));
        if post().is_alone() {
            let alone = new(name, key.max(0) as usize, world_of(parent), false);
            return COMMUNICATORS.create(to, alone);
        }
        let pair = |parcel: &Parcel| {
            let number = |at: usize| parcel.bytes[at..at + 4].try_into();
            let [color, key] = [0, 4].map(|at| number(at).map_or(0, c_int::from_ne_bytes));
            (color, key)
        };
        let mut members: Vec<(c_int, usize)> = all
            .iter()
            .enumerate()
            .map(|(rank, parcel)| (pair(parcel), rank))
            .filter(|((its_color, _), _)| *its_color == color)
            .map(|((_, key), rank)| (key, rank))
            .collect();
        members.sort_unstable();
        let place = members.iter().position(|&(_, member)| member == rank).unwrap_or(0);
        COMMUNICATORS.create(to, new(name, place, members.len(), true))
    };
    /// An id that no other call on this machine gives: the process, the time and a counter.
    ncclGetUniqueId(to: *mut UniqueId) = {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed) as u32;
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut id = [0; 128];
        id[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        id[4..8].copy_from_slice(&count.to_ne_bytes());
        id[8..16].copy_from_slice(&(since.map_or(0, |time| time.as_nanos() as u64)).to_ne_bytes());
        put(to, UniqueId(id))
    };
    ncclCommInitAll(to: *mut *mut c_void, world: c_int, _devices: *const c_int) = {
        let mut id = UniqueId([0; 128]);
        ncclGetUniqueId(&raw mut id);
        for rank in 0..world as usize {
            let one = new(hexadecimal(&id), rank, world as usize, false);
            COMMUNICATORS.create(to.add(rank), one);
        }
        SUCCESS
    };
    /// A communicator without some of the ranks; they do not call this.
    ncclCommShrink(
        parent: *mut c_void, excluded: *const c_int, count: c_int, to: *mut *mut c_void,
        _config: *const c_void, _flags: c_int
    ) = {
        let excluded = list(excluded, count);
        let found = with(parent, |parent| {
            parent.splits += 1;
            let lower = excluded.iter().filter(|&&rank| (rank as usize) < parent.rank).count();
            let world = parent.world - excluded.len().min(parent.world);
            let name = format!("{}-{}s", parent.name, parent.splits);
            (name, parent.rank - lower, world, parent.is_whole)
        });
        let Some((name, rank, world, is_whole)) = found else { return INVALID_ARGUMENT };
        COMMUNICATORS.create(to, new(name, rank, world, is_whole))
    };
    ncclGetErrorString(code: Result_) -> *const c_char = {
        let text: &CStr = match code {
            SUCCESS => c"no error",
            SYSTEM_ERROR => c"data from another rank did not arrive",
            state::NOT_SUPPORTED => return state::refusal(),
            INVALID_ARGUMENT => c"invalid argument",
            _ => return state::numbered("NCCL", code),
        };
        text.as_ptr()
    };
    ncclGetLastError(_of: *mut c_void) -> *const c_char = {
        let last = MESSAGE.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map_or(c"".as_ptr(), |text| text.as_ptr())
    };
    ncclCommDestroy(of: *mut c_void) = { COMMUNICATORS.forget(of); SUCCESS };
    ncclCommInitRank(to: *mut *mut c_void, world: c_int, id: UniqueId, rank: c_int) =
        COMMUNICATORS.create(to, new(hexadecimal(&id), rank as usize, world as usize, true));
    ncclCommInitRankConfig(
        to: *mut *mut c_void, world: c_int, id: UniqueId, rank: c_int, _config: *const c_void
    ) = ncclCommInitRank(to, world, id, rank);
    ncclCommInitRankScalable(
        to: *mut *mut c_void, world: c_int, rank: c_int, _count: c_int, ids: *const UniqueId,
        _config: *const c_void
    ) = ncclCommInitRank(to, world, *ids, rank);
    ncclCommAbort(of: *mut c_void) = ncclCommDestroy(of);
    ncclCommCount(of: *mut c_void, to: *mut c_int) =
        put(to, with(of, |it| it.world).unwrap_or(1) as c_int);
    ncclCommUserRank(of: *mut c_void, to: *mut c_int) =
        put(to, with(of, |it| it.rank).unwrap_or(0) as c_int);
    ncclCommGetAsyncError(_of: *mut c_void, to: *mut c_int) = put(to, SUCCESS);
    ncclGetVersion(to: *mut c_int) = put(to, 22_809);
    /// `ncclMemAlloc` takes memory of the device, as `cudaMalloc` does.
    ncclMemAlloc(to: *mut *mut c_void, bytes: usize) =
        crate::exports::runtime::cudaMalloc(to, bytes);
    ncclMemFree(at: *mut c_void) = crate::exports::runtime::cudaFree(at);
}
