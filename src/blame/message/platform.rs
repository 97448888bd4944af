//! Platforms: an answer about a GPU of AMD, Intel or Apple names their programs and modules in place of NVIDIA's.

const HIP: [(&str, &str); 5] = [
    ("a container or MIG limit", "a container's limit"),
    ("MIG and other processes", "other processes"),
    ("nvidia-smi", "amd-smi"),
    ("CUDA context", "HIP context"),
    ("CUDA graph", "HIP graph"),
];
const XPU: [(&str, &str); 7] = [
    ("a container or MIG limit", "a container's limit"),
    ("MIG and other processes", "other processes"),
    ("nvidia-smi", "xpu-smi"),
    ("CUDA context", "XPU context"),
    ("CUDA graph", "graph"),
    // The module of Intel's GPUs has the same functions; those that record came in 2.11.
    ("record a snapshot: call", "record a snapshot (from PyTorch 2.11 on): call"),
    ("torch.cuda.", "torch.xpu."),
];
const MPS: [(&str, &str); 3] = [
    ("nvidia-smi", "the Activity Monitor"),
    ("or per_process_memory_fraction in PYTORCH_ALLOC_CONF", "or PYTORCH_MPS_HIGH_WATERMARK_RATIO"),
    ("torch.cuda.", "torch.mps."),
];

/// A text about CUDA, in the words of the backend that sent the message.
pub(super) fn in_words_of(backend: Option<&str>, text: String) -> String {
    let words: &[(&str, &str)] = match backend {
        Some("HIP") => &HIP,
        Some("XPU") => &XPU,
        Some("MPS") => &MPS,
        _ => &[],
    };
    words.iter().fold(text, |text, (of_cuda, theirs)| text.replace(of_cuda, theirs))
}
