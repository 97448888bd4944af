"""Readbacks: operators that read a value from the device, mostly since the size of their result depends on it.

Inside such an operator a kernel counts, and a copy brings the count to the host, which then asks for memory. The kernel
does nothing on a virtual GPU, so the count is found on the host first, and the library is asked to deliver it with the
next copy of that many bytes. How many bytes each operator reads was found by watching the copies of PyTorch's.

Operators that are made of others (`index` by a mask, `repeat_interleave`, `bincount`, `one_hot`) need nothing here: the
operators inside come by one at a time.

Each function here has the operator's arguments and its result on the host, and returns what is read: (bytes, value).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def rows(arguments: Sequence[Any], result: Any) -> tuple[int, int]:
    """32 bits: the number of rows of the result."""
    return 4, result.shape[0]


def rows_along(arguments: Sequence[Any], result: Any) -> tuple[int, int]:
    """32 bits: the number of slices along the dimension that was asked for."""
    return 4, result[0].shape[arguments[1]]


def values(arguments: Sequence[Any], result: Any) -> tuple[int, int]:
    """64 bits: the number of values. Of booleans, 32 bits: how many are true."""
    if arguments[0].dtype == torch.bool:
        return 4, int(arguments[0].sum())
    return 8, result[0].shape[0]


def stretches(arguments: Sequence[Any], result: Any) -> tuple[int, int]:
    """64 bits: the number of stretches of equal values; along a dimension, 32 bits."""
    if len(arguments) > 3 and arguments[3] is not None:
        return 4, result[0].shape[arguments[3]]
    return 8, result[0].shape[0]


def verdict(arguments: Sequence[Any], result: Any) -> tuple[int, int]:
    """A byte: whether it is true."""
    return 1, int(result)


def most(name: str, arguments: Sequence[Any]) -> int:
    """How many an operator may find: slices along the dimension that was asked for, or else elements."""
    at = {"unique_dim": 1, "unique_dim_consecutive": 1, "unique_consecutive": 3}.get(name, len(arguments))
    if at < len(arguments) and arguments[at] is not None:
        return int(arguments[0].shape[arguments[at]])
    return max(argument.numel() for argument in arguments if isinstance(argument, torch.Tensor))


READBACKS = {
    "equal": verdict,
    "nonzero": rows,  # which `transfers` counts by itself
    "masked_select": rows,
    "nms": rows,  # of torchvision, by a masked_select inside
    "_unique": values,
    "_unique2": values,
    "unique_consecutive": stretches,
    "unique_dim": rows_along,
    "unique_dim_consecutive": rows_along,
}
