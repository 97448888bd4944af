"""The kinds of operations that can be measured, and how.

What PyTorch's operators request for a moment is read off its allocator; what a library says when asked in PyTorch's way
is taken as it is (`calls`). `crates/virtual-gpu/src/workspace/question.rs` has the same list.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from . import calls
from .calls import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    Arguments = dict[str, str]

__all__ = ["KINDS", "Refused", "arguments", "versions"]


def arguments(text: str) -> Arguments:
    """The arguments of a line, by their names."""
    return dict(pair.split("=", 1) for pair in text.split(" "))


def versions() -> dict[str, int]:
    """Versions of the libraries: cuFFT, cuSOLVER and cuSPARSE belong to a version of CUDA."""
    import torch

    major, minor = map(int, (torch.version.cuda or "0.0").split(".")[:2])
    return {"cudnn": int(torch.backends.cudnn.version() or 0), "cuda": 1000 * major + 10 * minor}


def convolution(given: Arguments) -> int:
    """What cuDNN takes while a convolution, or one of its gradients, runs."""
    import torch

    order, kind = layout(given["channels_last"], given["input"]), getattr(torch, given["type"])

    def zeros(name: str) -> Any:
        return torch.zeros(sizes(given[name]), device="cuda", dtype=kind).to(memory_format=order)

    x, weight = zeros("input"), zeros("weight")
    stride, padding, dilation = (sizes(given[name]) for name in ("stride", "padding", "dilation"))
    groups = x.shape[1] // weight.shape[1]
    rest = (stride, padding, dilation, False, [0] * len(stride), groups)
    if given["direction"] == "forward":
        return momentary(lambda: torch.ops.aten.convolution(x, weight, None, *rest))
    gradient = zeros("output")
    wanted = [given["direction"] == "data", given["direction"] == "weight", False]
    return momentary(lambda: torch.ops.aten.convolution_backward(gradient, x, weight, None, *rest, wanted))


def batch_norm(given: Arguments) -> int:
    """What cuDNN takes, or keeps, for a batch normalization with channels last."""
    import torch

    kind = {"0": torch.float32, "1": torch.float64, "2": torch.float16, "9": torch.bfloat16}[given["type"]]
    x = torch.zeros(sizes(given["sizes"]), device="cuda", dtype=kind).to(memory_format=layout("1", given["sizes"]))
    ones = torch.ones(x.shape[1], device="cuda", dtype=torch.float64 if kind == torch.float64 else torch.float32)
    operations, mean, variance = torch.ops.aten, ones.clone(), ones.clone()

    def forward() -> Any:
        return operations.cudnn_batch_norm(x, ones, ones, mean, variance, True, 0.1, 1e-5)

    if given["what"] == "forward":
        return momentary(forward)
    _, saved_mean, saved_variance, kept = forward()
    if given["what"] == "kept":
        return int(kept.numel() * kept.element_size())
    gradient = torch.zeros_like(x)
    return momentary(lambda: operations.cudnn_batch_norm_backward(
        x, gradient, ones, mean, variance, saved_mean, saved_variance, 1e-5, kept))


def ctc_loss(given: Arguments) -> int:
    """What cuDNN takes for a CTC loss: by lengths on the host, or by tensors where those of labels are not told."""
    import torch

    steps, batch, alphabet, longest, labels = (
        int(given[name]) for name in ("steps", "batch", "alphabet", "longest", "labels"))
    scores = torch.zeros(steps, batch, alphabet, device="cuda").log_softmax(2)
    rest = (0, given["algorithm"] == "1", False)
    if longest < 0:
        lengths = torch.ones(2, batch, dtype=torch.int32, device="cuda")
        lengths[0] = steps
        targets = torch.ones(batch, dtype=torch.int32, device="cuda")
        return momentary(lambda: torch.ops.aten._cudnn_ctc_loss(scores, targets, lengths[0], lengths[1], *rest))
    each = calls.lengths(labels, longest, batch)
    targets = torch.ones(labels, dtype=torch.int32)
    return momentary(lambda: torch.ops.aten._cudnn_ctc_loss(scores, targets, [steps] * batch, each, *rest))


class Kind(NamedTuple):
    """How a kind is measured, and whose version decides."""

    library: str
    measure: Callable[[Arguments], int]


KINDS = {
    "convolution": Kind("cudnn", convolution),
    "recurrent": Kind("cudnn", calls.recurrent),
    "batch_norm": Kind("cudnn", batch_norm),
    "ctc_loss": Kind("cudnn", ctc_loss),
    "fourier": Kind("cuda", calls.fourier),
    "decomposition": Kind("cuda", calls.asked),
    "sparse": Kind("cuda", calls.asked),
}


def sizes(text: str) -> list[int]:
    """Sizes that are joined by x."""
    if not re.fullmatch(r"\d{1,12}(x\d{1,12})*", text):
        raise ValueError(f"{text!r} are no sizes")
    return [int(size) for size in text.split("x")]


def layout(is_channels_last: str, of: str) -> Any:
    """The memory format of a tensor of these sizes."""
    import torch

    orders = {4: torch.channels_last, 5: torch.channels_last_3d}
    return orders[len(sizes(of))] if is_channels_last == "1" else torch.contiguous_format


def momentary(run: Callable[[], object]) -> int:
    """Bytes that were requested during a call and given back before its end."""
    import torch

    torch.cuda.reset_peak_memory_stats()
    result = run()
    stats = torch.cuda.memory_stats()
    del result
    return int(stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"])
