"""The assumption: what an unknown value is taken for, where a decision of the program depends on it.

zeros: as the memory reads. ones: one, true; and `argmax` and `argmin` are the last index. random: floats normally
distributed, booleans even, with a fixed seed, so that routing is balanced and sampling spreads. Unknown integers are zero
under each, since they are mostly indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import host

if TYPE_CHECKING:
    from collections.abc import Sequence


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
            return self.booleans(tensor.shape, 0.5)
        one = self.kind == "ones" and (
            tensor.dtype == torch.bool or tensor.dtype not in host.INTEGERS
        )
        return torch.full((), int(one), dtype=tensor.dtype, device="cpu").expand(tensor.shape)

    def booleans(self, shape: Sequence[int], share: float) -> torch.Tensor:
        """A CPU tensor of booleans, this share of them true."""
        if share in (0, 1):
            return torch.full((), bool(share), device="cpu").expand(shape)
        return torch.empty(shape, dtype=torch.bool, device="cpu").bernoulli_(share, generator=self.generator)

    def sample(self, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        """A CPU tensor of a few values in place of many. They are no indices: integers vary, too."""
        if dtype == torch.bool or dtype not in host.INTEGERS:
            return self.like(torch.empty(shape, dtype=dtype, device="cpu"))
        if self.kind != "random":
            return torch.full(shape, int(self.kind == "ones"), dtype=dtype, device="cpu")
        return torch.randint(100, shape, generator=self.generator, device="cpu").to(dtype)

    def weights(self, tensor: torch.Tensor) -> torch.Tensor:
        """As `like`, for weights to draw by: not negative, and equal instead of zero."""
        assumed = self.like(tensor).abs()
        return assumed if self.kind == "random" else torch.ones_like(assumed)

    def write(self, tensor: torch.Tensor) -> None:
        """Puts the assumed values into the tensor's memory. Zero is what it reads as already."""
        if self.kind != "zeros":
            host.view(tensor).copy_(self.like(tensor))
