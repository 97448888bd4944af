"""Fetched values: what the host counts among many floats that a program has brought there and no kernel had computed.

    scores = model(x).cpu()          many floats that are not sure
    kept = scores[scores > 0.5]      `nonzero` on the host: as many as these values say

From the first such copy on, the host's operators whose result has a size that is a value are watched. What lies between
the copy and the count (a comparison, a sum over classes) is not followed: a count is of what was fetched where the sizes
agree.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch import Tensor

from . import host, scalars

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTING = ("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive")
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


class Fetched:
    """Sizes of what was fetched, and the operators that are watched."""

    def __init__(self, noted: Callable[[int, int, str], object]) -> None:
        """`noted(doubt, bytes, what)` is called for each count."""
        self._noted = noted
        self._doubts: dict[int, int] = {}  # how sure what was fetched is, by its sizes
        self._registered: torch.library.Library | None = None

    def add(self, tensor: Tensor, doubt: int) -> None:
        """The program fetches these floats."""
        for size in sizes(tensor):
            self._doubts[size] = max(doubt, self._doubts.get(size, 0))
        if self._registered is None:
            self._registered = torch.library.Library("aten", "IMPL")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name in COUNTING:
                    self._registered.impl(name, self._replacement(name), "CPU")

    def close(self) -> None:
        """Watches no more."""
        if self._registered is not None:
            self._registered._destroy()

    def _replacement(self, name: str) -> Callable[..., Any]:
        kernel = functools.partial(scalars.call, torch.library.get_kernel(f"aten::{name}", "CPU").call_boxed, CPU)

        def call(*args: Any, **kwargs: Any) -> Any:
            doubt = max((self._doubts.get(size, 0) for size in sizes(args[0])), default=0)
            if doubt and not host.is_busy():
                self._noted(doubt, args[0].nbytes, f"size of {name} on the host")
            return kernel(args, kwargs)

        return call


def sizes(tensor: Tensor) -> Iterator[int]:
    """The number of elements, and of rows."""
    if tensor.numel() > 1:
        yield tensor.numel()
        if tensor.shape[0] > 1:
            yield tensor.shape[0]
