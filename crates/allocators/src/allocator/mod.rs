//! The allocator port, and the allocators behind it.
//!
//! An allocator is a plain state machine. It owns no device, no clock and no I/O: it is handed a
//! [`Device`](crate::device::Device) with each request, so that the same object runs in simulation, on a GPU and inside
//! PyTorch. To add one, write its file, and here its `mod` and its entry in [`ALL`]; the command line, the tables, the
//! property tests and the benchmarks take it up from there.

mod afterlife;
mod beside;
mod bfc;
mod bound;
mod caching;
mod checked;
mod cuda_async;
mod free_index;
mod gmlake;
mod guest;
mod lake;
mod last_users;
mod ledger;
mod live;
mod native;
mod offline;
mod paddle;
mod pool;
mod port;
mod quietly;
mod released;
mod rmm_arena;
mod rmm_pool;
mod slab;
mod small_pool;
mod spec;
mod stalloc;
mod vm_pool;
mod vmm;

pub use beside::Beside;
pub use caching::{Caching, SMALL_MAX, SMALL_SEGMENT, round_request, segment_size};
pub use checked::Checked;
pub use gmlake::{Gmlake, GmlakeOptions};
pub use guest::{Given, Guest, admit, hosted};
pub use lake::{Lake, LakeOptions};
pub use ledger::Ledger;
pub use native::Native;
pub use port::{
    AllocError, AllocResult, Allocation, Allocator, BlockId, BlockKind, BlockUse, BlockView,
    Counter, Held, Request, SlabIndex, Usage,
};
pub use quietly::quietly;
pub use released::{Released, ReleasedOptions};
pub use slab::{NIL, Slab};
pub use spec::{Choice, Environment, OptionError, OptionSpec, Options, Role, Spec};
pub use vmm::Vmm;

use bfc::{Bfc, BfcOptions};
use bound::paged_bound;
use cuda_async::CudaAsync;
use gmlake_core::units::Bytes;
use offline::{Offline, OfflineOptions};
use paddle::{PaddleV1, PaddleV1Options, PaddleV2, PaddleV2Options};
use pool::{Policy, Pool};
use rmm_arena::{RmmArena, RmmArenaOptions};
use rmm_pool::{RmmPool, RmmPoolOptions};
use stalloc::{StAlloc, StAllocOptions};
use vmm::VmmOptions;

/// The segment of the block that begins at an address.
#[cfg(test)]
fn segment_of(allocator: &dyn Allocator, at: crate::device::DevicePtr) -> crate::device::DevicePtr {
    let found = allocator.blocks().into_iter().find(|view| view.at == at);
    found.expect("a block begins there").segment
}

/// Alignment that PyTorch relies on; CUDA promises half of it.
const ALIGNMENT: Bytes = 512;

/// Every allocator, in the order of all tables.
pub const ALL: &[Spec] = &[
    Spec {
        name: "caching",
        summary: "PyTorch's caching allocator (best fit with coalescing)",
        options: CACHING_OPTIONS,
        role: Role::PyTorch,
        alignment: ALIGNMENT,
        build: &|options, environment| build_caching(options, environment, false),
    },
    Spec {
        name: "expandable",
        summary: "PyTorch's caching allocator with expandable_segments:True",
        options: CACHING_OPTIONS,
        role: Role::PyTorch,
        alignment: ALIGNMENT,
        build: &|options, environment| build_caching(options, environment, true),
    },
    Spec {
        name: "native",
        summary: "every request to cuMemAlloc, every free to cuMemFree",
        options: &[],
        role: Role::Direct,
        alignment: ALIGNMENT,
        build: &|_, _| Ok(Box::new(Native::new())),
    },
    Spec {
        name: "vmm",
        summary: "every request to the virtual memory calls, without a pool",
        options: VmmOptions::SPECS,
        role: Role::Direct,
        alignment: ALIGNMENT,
        build: &|options, _| Ok(Box::new(Vmm::new(VmmOptions::take(options)?))),
    },
    Spec {
        name: "gmlake",
        summary: "GMLake as the paper describes it",
        options: GmlakeOptions::SPECS,
        role: Role::Candidate,
        alignment: ALIGNMENT,
        build: &|options, environment| {
            Ok(Box::new(Gmlake::new(GmlakeOptions::take(options)?, limit(environment))))
        },
    },
    Spec {
        name: "gmlake-released",
        summary: "GMLake as its authors released it",
        options: ReleasedOptions::SPECS,
        role: Role::Candidate,
        alignment: ALIGNMENT,
        build: &|options, environment| {
            Ok(Box::new(Released::new(ReleasedOptions::take(options)?, limit(environment))))
        },
    },
    Spec {
        name: "lake",
        summary: "our own: large handles in an arena, stitched where growth would waste memory",
        options: LakeOptions::SPECS,
        role: Role::Candidate,
        alignment: ALIGNMENT,
        build: &|options, environment| {
            Ok(Box::new(Lake::new(LakeOptions::take(options)?, limit(environment))))
        },
    },
    Spec {
        name: "xla-bfc",
        summary: "XLA's and TensorFlow's best fit with coalescing, in regions that double",
        options: BfcOptions::SPECS,
        role: Role::OnRequest,
        alignment: 256,
        build: &|options, _| pool(Bfc::new(BfcOptions::take(options)?)),
    },
    Spec {
        name: "rmm-pool",
        summary: "RAPIDS' pool: best fit, a free list for each stream, doubling",
        options: RmmPoolOptions::SPECS,
        role: Role::OnRequest,
        alignment: 256,
        build: &|options, _| pool(RmmPool::new(RmmPoolOptions::take(options)?)),
    },
    Spec {
        name: "rmm-arena",
        summary: "RAPIDS' arenas: first fit in superblocks, an arena for each stream",
        options: RmmArenaOptions::SPECS,
        role: Role::OnRequest,
        alignment: 256,
        build: &|options, _| pool(RmmArena::new(RmmArenaOptions::take(options)?)),
    },
    Spec {
        name: "cuda-async",
        summary: "CUDA's stream-ordered pool, PyTorch's backend:cudaMallocAsync",
        options: &[],
        role: Role::OnRequest,
        alignment: ALIGNMENT,
        build: &|_, _| pool(CudaAsync::default()),
    },
    Spec {
        name: "paddle-v1",
        summary: "PaddlePaddle's auto-growth best fit over virtual memory",
        options: PaddleV1Options::SPECS,
        role: Role::OnRequest,
        alignment: 256,
        build: &|options, _| pool(PaddleV1::new(PaddleV1Options::take(options)?)),
    },
    Spec {
        name: "paddle-v2",
        summary: "PaddlePaddle's best fit that moves free handles together when memory is short",
        options: PaddleV2Options::SPECS,
        role: Role::OnRequest,
        alignment: 256,
        build: &|options, _| pool(PaddleV2::new(PaddleV2Options::take(options)?)),
    },
    Spec {
        name: "offline",
        summary: "a plan made from the whole trace: a bound that is reached",
        options: OfflineOptions::SPECS,
        role: Role::Oracle,
        alignment: ALIGNMENT,
        build: &|options, _| pool(Offline::new(OfflineOptions::take(options)?)),
    },
    Spec {
        name: "stalloc",
        summary: "STAlloc: a plan from the first iterations, a caching allocator for the rest",
        options: StAllocOptions::SPECS,
        role: Role::Oracle,
        alignment: ALIGNMENT,
        build: &|options, environment| {
            pool(StAlloc::new(StAllocOptions::take(options)?, environment))
        },
    },
    Spec {
        name: "bound",
        summary: "lower bound: the bytes that are live",
        options: &[],
        role: Role::Bound,
        alignment: 1,
        build: &|_, _| Ok(Box::new(Native::with_rounding(1))),
    },
    Spec {
        name: "bound-2mib",
        summary: "lower bound in pages of 2 MiB, with PyTorch's small pool",
        options: &[],
        role: Role::Bound,
        alignment: ALIGNMENT,
        build: &|_, environment| Ok(Box::new(paged_bound(environment))),
    },
];

/// PyTorch's options, under PyTorch's names; those not given are as in the recording or in `--alloc-conf`.
const CACHING_OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "max_split_size_mb",
        default: "as recorded",
        help: "blocks of this many MiB or more are not split",
    },
    OptionSpec {
        name: "max_non_split_rounding_mb",
        default: "as recorded",
        help: "how many MiB larger than an oversize request a cached block may be",
    },
    OptionSpec {
        name: "garbage_collection_threshold",
        default: "as recorded",
        help: "share of the memory limit from which old cached blocks are released",
    },
    OptionSpec {
        name: "roundup_power2_divisions",
        default: "as recorded",
        help: "round requests up to this many steps between powers of two",
    },
    OptionSpec {
        name: "large_segment_size_mb",
        default: "as recorded",
        help: "segment for requests from 1 MiB up to 10 MiB",
    },
];

type Built = Result<Box<dyn Allocator>, OptionError>;

fn pool(policy: impl Policy + 'static) -> Built {
    Ok(Box::new(Pool::of(policy)))
}

/// Bytes that an allocator may hold.
fn limit(environment: &Environment) -> Bytes {
    environment.memory_limit().unwrap_or(Bytes::MAX)
}

fn build_caching(options: &mut Options, environment: &Environment, expandable: bool) -> Built {
    let mut environment = environment.clone();
    let given: Vec<String> = CACHING_OPTIONS
        .iter()
        .filter_map(|spec| options.take(spec.name).map(|value| format!("{}:{value}", spec.name)))
        .collect();
    environment.conf = environment
        .conf
        .with(&given.join(","), environment.version)
        .map_err(|error| OptionError(error.to_string()))?;
    environment.conf.expandable_segments = expandable;
    Ok(Box::new(Caching::new(&environment)))
}

/// The allocators that run where none is named.
pub fn by_default() -> impl Iterator<Item = &'static Spec> {
    ALL.iter().filter(|spec| spec.role.is_default())
}

/// The names of all allocators, plug-ins that were loaded last.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|spec| spec.name).chain(guest::names()).collect()
}

/// The allocator with this name, plug-ins that were loaded included.
pub fn find(name: &str) -> Option<&'static Spec> {
    ALL.iter().find(|spec| spec.name == name).or_else(|| guest::find(name))
}
