"""The assumption: what an unknown value is taken for, where a decision of the program depends on it.

zeros: as the memory reads. ones: one, true; and `argmax` and `argmin` are the last index. random: floats normally
distributed, booleans even, with a fixed seed, so that routing is balanced and sampling spreads. Unknown integers are zero
under each, since they are mostly indices.
"""

from __future__ import annotations

import torch

from . import host


class Assumption:
    """One of zeros, ones, random."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.is_last = kind == "ones"  # of indices of unknown values, which are the first where all are equal
        self.generator = torch.Generator("cpu").manual_seed(0)

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor of the same shape with assumed values. Constant ones take no memory."""
        if self.kind == "random" and tensor.is_floating_point():
            drawn = torch.empty(tensor.shape, dtype=torch.float32, device="cpu")
            return drawn.normal_(generator=self.generator).to(tensor.dtype)
        if self.kind == "random" and tensor.dtype == torch.bool:
            drawn = torch.empty(tensor.shape, dtype=torch.bool, device="cpu")
            return drawn.bernoulli_(0.5, generator=self.generator)
        one = self.kind == "ones" and (
            tensor.dtype == torch.bool or tensor.dtype not in host.INTEGERS
        )
        return torch.full((), int(one), dtype=tensor.dtype, device="cpu").expand(tensor.shape)

    def weights(self, tensor: torch.Tensor) -> torch.Tensor:
        """As `like`, for weights to draw by: not negative, and equal instead of zero."""
        assumed = self.like(tensor).abs()
        return assumed if self.kind == "random" else torch.ones_like(assumed)

    def write(self, tensor: torch.Tensor) -> None:
        """Puts the assumed values into the tensor's memory. Zero is what it reads as already."""
        if self.kind != "zeros":
            host.view(tensor).copy_(self.like(tensor))
