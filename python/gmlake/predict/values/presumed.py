"""What is presumed: conditions on values that are too many to be computed, such as `torch.isfinite(x).all()`.

Memory that no kernel wrote reads as false, and a program that asserts a condition would end. So each step of the condition
is computed for a few values in place of all. As large a share of the whole result is presumed to be true; its memory is not
written. What an operator counts among too many values (`x[x > 0]`) is a share, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable

import torch

from . import host
from .readbacks import READBACKS, most

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .assumption import Assumption
    from .operators import Operator
    from .shadow import Shadow

# Conditions, what connects them, and what asks for all or any of them.
NAMES = frozenset(
    "eq ne lt le gt ge isnan isposinf isneginf logical_not logical_and logical_or logical_xor"
    " bitwise_not bitwise_and bitwise_or bitwise_xor mul all any".split()
)

FEW = 4096  # values in place of all


def share(operator: Operator, args: Sequence[Any]) -> float:
    """For which share of a few values in place of all an operator gives true; NaN if it is no condition."""
    few = sample_of(args, operator.values.assumption, operator.shadow)
    found = host.call(operator.overload, host.map_tensors(few, args), {})
    return found.float().mean().item() if found.dtype == torch.bool else math.nan


def count(operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, int]:
    """What an operator reads back, as in `readbacks`: of a few values it keeps the same share as of all."""
    few = host.map_tensors(sample_of(args, operator.values.assumption, operator.shadow), args)
    size, value = READBACKS[operator.name](few, host.call(operator.overload, few, kwargs))
    return size, value if value <= 1 else round(value * most(operator.name, args) / most(operator.name, few))


def sample_of(args: Sequence[Any], assumption: Assumption, shadow: Shadow) -> Callable[[torch.Tensor], torch.Tensor]:
    """Makes of each tensor a CPU tensor with a few of its values: of a dimension, some that lie evenly."""
    dimensions = max((tensor.dim() for tensor in host.tensors(args)), default=1)
    longest = round(FEW ** (1 / max(dimensions, 1)))

    def few(tensor: torch.Tensor) -> torch.Tensor:
        steps = [-(-size // longest) or 1 for size in tensor.shape]
        if not tensor.is_cuda or shadow.known(tensor):
            return host.view(tensor)[tuple(slice(None, None, step) for step in steps)]
        shape = [-(-size // step) for size, step in zip(tensor.shape, steps)]
        share = shadow.presumed_share(tensor)
        return assumption.sample(tensor.dtype, shape) if share is None else assumption.booleans(shape, share)

    return few
