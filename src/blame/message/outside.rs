//! Memory that ran out elsewhere: in the host, in the driver or in a library, by the words of whoever found none.
//!
//! Such words have no figures of a GPU. Where the text has PyTorch's own message, too, only the host's memory matters:
//! a driver without it may refuse memory that the GPU has.

use super::amount::Amount;
use super::{Cause, Finding};
use crate::trace::text::{joined, places_of};

pub(super) const WORDS: [(&str, Cause, &str); 19] = [
    ("DefaultCPUAllocator: can't allocate memory", Cause::HostMemory, HOST),
    ("DefaultCPUAllocator: not enough memory", Cause::HostMemory, HOST),
    ("ArrayMemoryError: Unable to allocate", Cause::HostMemory, HOST),
    ("Out of memory: Killed process", Cause::HostMemory, HOST),
    ("oom_kill event", Cause::HostMemory, HOST),
    ("No available memory for the cache blocks", Cause::ServerShare, NO_CACHE),
    ("is less than desired GPU memory utilization", Cause::ServerShare, NOT_FREE),
    ("than the available KV cache memory", Cause::ServerShare, CONTEXT),
    (
        "CUBLAS_STATUS_ALLOC_FAILED",
        Cause::OutsidePyTorch,
        "cuBLAS found no memory for its workspace. It allocates from the driver and cannot use \
         PyTorch's free cache.",
    ),
    ("CUDNN_STATUS_ALLOC_FAILED", Cause::OutsidePyTorch, LIBRARY),
    ("CUSOLVER_STATUS_ALLOC_FAILED", Cause::OutsidePyTorch, LIBRARY),
    ("CUFFT_ALLOC_FAILED", Cause::OutsidePyTorch, LIBRARY),
    ("Failed to CUDA calloc", Cause::OutsidePyTorch, NCCL),
    ("Cuda failure 'out of memory'", Cause::OutsidePyTorch, NCCL),
    ("Cuda failure 2 'out of memory'", Cause::OutsidePyTorch, NCCL),
    (
        "RESOURCE_EXHAUSTED: Out of memory",
        Cause::OtherFramework,
        "This is the message of XLA (JAX, TensorFlow), whose allocator is not PyTorch's.",
    ),
    ("CUDA error: out of memory", Cause::OutsidePyTorch, DRIVER),
    ("HIP error: out of memory", Cause::OutsidePyTorch, DRIVER),
    ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", Cause::OutsidePyTorch, DRIVER),
];

const HOST: &str = "The memory of the machine ran out, not that of a GPU. A snapshot of GPU memory \
                    tells nothing about it.";
const NCCL: &str = "NCCL found no memory for its buffers. It allocates from the driver and \
                    cannot use PyTorch's free cache.";
const LIBRARY: &str = "A library of CUDA found no memory for itself. It allocates from the driver \
                       and cannot use PyTorch's free cache.";
const NO_CACHE: &str = "vLLM keeps a share of the GPU for itself (gpu_memory_utilization). \
                        Weights, activations and CUDA graphs took all of that share: nothing \
                        was left for the KV cache.";
const NOT_FREE: &str = "vLLM found less memory free than the share that it keeps for itself \
                        (gpu_memory_utilization): other processes, or an earlier server, \
                        held the rest.";
const CONTEXT: &str = "The KV cache that vLLM has room for is too small for one request of the \
                       longest context (max_model_len).";
const DRIVER: &str = "The driver ran out of memory outside PyTorch's allocator: for this process's \
                      context, a kernel's code or stack, or a library. This process or others had \
                      filled the device; the message has no figures.";

/// Where such words stand, and what they say.
pub(super) fn find(text: &str) -> Option<(usize, Finding)> {
    let mut found = WORDS.iter().filter_map(|(words, cause, explanation)| {
        let at = places_of(text, words).next()?;
        let bytes = host_bytes(&joined(&text[at..])).filter(|_| *cause == Cause::HostMemory);
        Some((at, Finding::certain(*cause, bytes, *explanation)))
    });
    found.next()
}

/// The bytes of `you tried to allocate 13107200 bytes`.
fn host_bytes(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("tried to allocate ")?;
    Amount::read(rest).map(|(amount, _)| amount.bytes)
}

/// Findings of a message, with what the rest of the text says of the host's memory. It explains why a driver refuses.
pub(super) fn with_host(mut findings: Vec<Finding>, text: &str) -> Vec<Finding> {
    let found = find(text).map(|(_, found)| found).filter(|it| it.cause == Cause::HostMemory);
    let Some(host) = found else { return findings };
    let is_refused = |one: &Finding| one.cause == Cause::FreeYetRefused;
    let explanation = "The memory of the machine ran out, too: the text has the message of \
                       DefaultCPUAllocator."
        .to_owned();
    if findings.iter().any(is_refused) {
        let explanation = explanation
            + " Without host memory a driver may refuse what the GPU has, on Windows above all.";
        findings.insert(0, Finding { explanation, is_certain: false, ..host });
    } else {
        findings.push(Finding { explanation, ..host });
    }
    findings
}
