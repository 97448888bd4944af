//! Values of the paper's figures, which are nowhere printed as numbers.
//!
//! Guo et al., "GMLake", ASPLOS 2024. The plots that were published with it were digitised: frame lines located to
//! sub-pixel, bar tops by colour, marker centres by centroid. That is good to about 0.5 GB and 0.004 of utilization.

/// One pair of bars.
pub(crate) struct Published {
    /// The recording that comes nearest, by its name in the traces' folder.
    pub(crate) trace: &'static str,
    /// What the paper ran.
    pub(crate) workload: &'static str,
    /// Peak reserved memory of PyTorch and of GMLake in GB; `None` for out of memory.
    pub(crate) reserved: [Option<f64>; 2],
    /// Utilization, of PyTorch and of GMLake.
    pub(crate) utilization: [f64; 2],
}

const fn bars(
    trace: &'static str,
    workload: &'static str,
    reserved: [f64; 2],
    utilization: [f64; 2],
) -> Published {
    let reserved = [Some(reserved[0]), Some(reserved[1])];
    Published { trace, workload, reserved, utilization }
}

/// Memory-saving strategies, OPT-1.3B on four GPUs (`stra-opt-1.3b`; the figure of section 2.3).
pub(crate) const STRATEGIES: [Published; 5] = [
    bars("opt-1.3b-N", "OPT-1.3B, N", [58.7, 56.2], [0.927, 0.965]),
    bars("opt-1.3b-R", "OPT-1.3B, R", [64.6, 48.8], [0.662, 0.881]),
    bars("opt-1.3b-LR", "OPT-1.3B, LR", [61.1, 43.8], [0.640, 0.891]),
    bars("opt-1.3b-RO", "OPT-1.3B, RO", [59.7, 42.8], [0.635, 0.881]),
    bars("opt-1.3b-LRO", "OPT-1.3B, LRO", [59.2, 42.3], [0.635, 0.876]),
];

/// The same with ZeRO-3 on four GPUs, as the paper's were; our recordings have a batch of 24.
pub(crate) const STRATEGIES_ZERO3: [Published; 3] = [
    bars("zero3-opt-1.3b-N-w4.b24.r0", "OPT-1.3B, N", [58.7, 56.2], [0.927, 0.965]),
    bars("zero3-opt-1.3b-R-w4.b24.r0", "OPT-1.3B, R", [64.6, 48.8], [0.662, 0.881]),
    bars("zero3-opt-1.3b-LRO-w4.b24.r0", "OPT-1.3B, LRO", [59.2, 42.3], [0.635, 0.876]),
];

/// GPU scale-out, OPT-13B with LR under ZeRO-3 (`scale-opt-13b`; the scale-out figure of section 5).
pub(crate) const SCALE_OUT: [Published; 3] = [
    bars("zero3-opt-13b-LR-w1.r0", "OPT-13B, 1 GPU", [70.9, 64.4], [0.876, 0.969]),
    bars("zero3-opt-13b-LR-w2.r0", "OPT-13B, 2 GPUs", [60.4, 53.0], [0.777, 0.898]),
    bars("zero3-opt-13b-LR-w4.r0", "OPT-13B, 4 GPUs", [59.0, 52.0], [0.787, 0.900]),
];

/// Platforms on four GPUs, LR (`platforms`; the platform figure of section 5). The models under FSDP differ: the
/// paper's is GLM-10B.
pub(crate) const PLATFORMS: [Published; 3] = [
    bars("zero3-opt-13b-LR-w4.r0", "OPT-13B, DeepSpeed", [70.5, 52.1], [0.783, 0.901]),
    bars("fsdp1-opt-13b-LR-w4.r0", "GLM-10B, FSDP", [65.4, 58.7], [0.685, 0.785]),
    bars("fsdp2-gpt-neox-20b-LR-w4.r0", "GLM-10B, FSDP", [65.4, 58.7], [0.685, 0.785]),
];

/// Batch sizes, OPT-1.3B with LR under ZeRO-3 on four GPUs (`batch-opt-1.3b`; the end-to-end figure of section 5).
pub(crate) const BATCHES: [Published; 3] = [
    bars("zero3-opt-1.3b-LR-w4.b32.r0", "OPT-1.3B, batch 32", [17.1, 13.6], [0.657, 0.838]),
    bars("zero3-opt-1.3b-LR-w4.r0", "OPT-1.3B, batch 64", [30.0, 22.5], [0.647, 0.866]),
    bars("zero3-opt-1.3b-LR-w4.b160.r0", "OPT-1.3B, batch 160", [67.1, 48.8], [0.642, 0.883]),
];

/// Where the paper's PyTorch first ran out of memory on 80 GB: the same figure at its right end.
pub(crate) const FIRST_OOM: Published = Published {
    trace: "",
    workload: "OPT-1.3B, batch 248",
    reserved: [None, Some(73.0)],
    utilization: [0.771, 0.879],
};
