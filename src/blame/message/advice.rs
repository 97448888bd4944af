//! Advice: what to do about a cause, and how to find out more.

use super::amount::Amount;
use super::numbers::Numbers;
use super::{Cause, Finding};

/// How a recording comes about that tells what a message cannot.
const RECORD: &str = "To see which lines hold the memory, record a snapshot: call \
                      torch.cuda.memory._record_memory_history(context=\"alloc\", \
                      stacks=\"python\") before the model is built, and \
                      torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") in a finally; then run \
                      gmlake-sim blame snapshot.pickle --at oom";
const PREDICT: &str =
    "To learn the full need without a GPU: python -m gmlake predict --memory unlimited SCRIPT";

const POOL: &str = "If a MemPool or a graph capture is active at that line: call \
                    torch.cuda.empty_cache() before it begins, since PyTorch releases no \
                    memory of other pools meanwhile, whatever the settings";

const GRAPHS: &str =
    "CUDA graphs have their own pools, whose memory nothing else can use: capture fewer sizes";

/// What to do, the most promising first.
pub(super) fn advice(findings: &[Finding], numbers: &Numbers) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for finding in findings {
        for text in about(finding.cause, numbers) {
            if !out.iter().any(|known| known == text) {
                out.push(text.to_owned());
            }
        }
    }
    let is_fragmentation = |one: &Finding| one.cause == Cause::Fragmentation;
    if !findings.iter().any(is_fragmentation) && findings.iter().any(is_short) {
        out.extend(numbers.over_if_joined().map(joined));
    }
    // PyTorch records what its allocators of GPUs do, and not that of Apple's.
    let is_recorded = numbers.backend.as_deref() != Some("MPS");
    if is_recorded && findings.iter().any(|finding| shows(finding.cause)) {
        out.push(RECORD.to_owned());
    }
    if is_recorded && findings.iter().any(|finding| finding.cause == Cause::TooMuch) {
        out.push(PREDICT.to_owned());
    }
    out
}

/// Whether a recording of PyTorch's allocator shows more of a cause.
fn shows(cause: Cause) -> bool {
    use Cause::{HostMemory, OtherFramework, ServerShare, WrongSize};
    !matches!(cause, HostMemory | OtherFramework | ServerShare | WrongSize)
}

/// Causes of a device that lacks memory for the request, and perhaps for it alone.
fn is_short(finding: &Finding) -> bool {
    match finding.cause {
        Cause::TooMuch => !finding.is_certain,
        cause => cause == Cause::OtherProcesses,
    }
}

/// What joining the free pieces gains: this request, and little more.
fn joined(over: Amount) -> String {
    format!(
        "expandable_segments:True may serve this request from pieces that are free, and leaves at \
         most {over} for all later ones"
    )
}

fn about(cause: Cause, numbers: &Numbers) -> Vec<&'static str> {
    let has_graphs = numbers.private.is_some_and(|private| private.bytes > 0);
    let texts: &[&'static str] = match cause {
        Cause::Limit if numbers.is_piece_limited => {
            &["Make that tensor smaller, or of several parts, each below 4 GB"]
        }
        Cause::Limit => &["Raise the limit: torch.cuda.set_per_process_memory_fraction, or \
             per_process_memory_fraction in PYTORCH_ALLOC_CONF"],
        Cause::FreeYetRefused => &[
            POOL,
            "Else look at what limits the process: nvidia-smi for MIG and other processes, the \
             container's settings, dmesg for messages of the driver",
        ],
        Cause::Fragmentation => &[
            "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF from PyTorch \
             2.10 on). To know before you run, give a snapshot to gmlake-sim tune",
            POOL,
        ],
        Cause::OtherProcesses => {
            &["End the other processes, or choose another GPU: nvidia-smi lists the memory of each"]
        }
        Cause::TooMuch => &[
            "Use less memory: a smaller batch or sequence, gradient checkpointing, a lower precision, a \
             smaller optimizer state, sharding over more GPUs; or take a larger GPU",
        ],
        Cause::WrongSize => &["Look at the shape at that line: one of its sizes is wrong"],
        Cause::OutsidePyTorch => &["Leave the driver some memory: a smaller batch, or \
             torch.cuda.set_per_process_memory_fraction below 1, so that PyTorch's cache does not \
             take everything. nvidia-smi shows whether other processes hold it"],
        Cause::OtherFramework => &[
            "Use less memory: a smaller batch, a lower precision, sharding over more GPUs; or take a larger GPU. \
             XLA_PYTHON_CLIENT_MEM_FRACTION says how much of it JAX may use",
        ],
        Cause::ServerShare => &[
            "Raise gpu_memory_utilization if the GPU is free, lower max_model_len or max_num_seqs, choose \
             fewer CUDA graphs (enforce_eager), or take more GPUs (tensor_parallel_size)",
            "To try these without a GPU: python -m gmlake predict --serve",
        ],
        Cause::HostMemory => &[
            "Use fewer DataLoader workers, load less at a time, or request more memory for the job (on \
             Windows, a larger page file)",
        ],
        Cause::Unknown => &[],
    };
    let graphs = (cause == Cause::Fragmentation && has_graphs).then_some(GRAPHS);
    texts.iter().copied().chain(graphs).collect()
}
