"""What is presumed: conditions on floats that are too many to be computed, such as `torch.isfinite(x).all()`.

Memory that no kernel wrote reads as false, and a program that asserts a condition would end. So each step of the condition
is computed for one assumed value in place of all. Where that is true, the whole result is presumed to be; its memory is
not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .assumption import Assumption
    from .shadow import Shadow

# Conditions, what connects them, and what asks for all or any of them.
NAMES = frozenset(
    "eq ne lt le gt ge isnan isposinf isneginf logical_not logical_and logical_or logical_xor"
    " bitwise_not bitwise_and bitwise_or bitwise_xor mul all any".split()
)


def is_true(overload: Any, args: Sequence[Any], assumption: Assumption, shadow: Shadow) -> bool:
    """Whether an operator gives true for one assumed value of each tensor."""

    def one(tensor: torch.Tensor) -> torch.Tensor:
        shape = [1] * tensor.dim()
        if shadow.is_presumed(tensor):
            return torch.ones(shape, dtype=torch.bool, device="cpu")
        return assumption.like(torch.empty(shape, dtype=tensor.dtype, device="cpu"))

    found = host.call(overload, host.map_tensors(one, args), {})
    return found.dtype == torch.bool and found.numel() == 1 and bool(found)
