"""Sparse tensors: how many entries `coalesce` leaves, which its kernel counts and reads back.

Optimizers coalesce the gradients of `Embedding(sparse=True)`, and the backward pass of a product coalesces the
transposed matrix. Where the places of the entries are known, so is their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import host
from .shadow import ASSUMED, prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from . import Values

NAME, KEY = "aten::_coalesce", "SparseCUDA"
COUNT = 4  # bytes that the kernel reads back


def replace(values: Values, library: torch.library.Library) -> None:
    """Replaces `coalesce` of sparse tensors on the device."""
    library.impl(NAME, Coalesce(values), KEY)


class Coalesce:
    """A call of `coalesce`: entries at the same place become one, in the order of places."""

    def __init__(self, values: Values) -> None:
        self.kernel = torch.library.get_kernel(NAME, KEY).call_boxed
        self.keys = torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCUDA)
        self.values, self.shadow = values, values.shadow

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor coalesced, with as many entries as on a GPU."""
        if tensor._nnz() < 2 or self.values.is_noticed() or torch._C._cuda_isCurrentStreamCapturing():
            return self.device(tensor)
        indices = tensor._indices()
        doubt = self.shadow.doubt(indices)
        # Places that rest on an assumption are those of zeros; runs with other values have as many as there may be.
        is_known = self.shadow.known(indices) and (doubt != ASSUMED or self.values.assumption.kind == "zeros")
        places = host.call(merged, (host.view(indices), tensor.shape), {}) if is_known else None
        count = places.shape[1] if places is not None else self.assumed(tensor)
        if doubt:
            self.values.noted(doubt, COUNT, "size of coalesce")
        with self.values.noticed(), self.values.library.answer(COUNT, count):
            out = self.device(tensor)
        if places is not None:
            self.learn(out._indices(), places, doubt)
        return out

    def device(self, tensor: Tensor) -> Tensor:
        """Calls the CUDA kernel."""
        found: Tensor = self.kernel(self.keys, tensor)
        return found

    def assumed(self, tensor: Tensor) -> int:
        """How many entries are taken to be left: all, as if their places differed, or one if ones are assumed."""
        return 1 if self.values.assumption.kind == "ones" else tensor._nnz()

    def learn(self, indices: Tensor, places: Tensor, doubt: int) -> None:
        """Writes the places into the memory of the device's indices."""
        prepare([indices])
        host.view(indices).copy_(places)
        self.shadow.learn(indices, doubt)


def merged(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Each place once, in order: a row for each sparse dimension, a column for each place."""
    values = torch.ones(indices.shape[1], dtype=torch.bool, device="cpu")
    return torch.sparse_coo_tensor(indices, values, sizes[: len(indices)]).coalesce().indices()
