"""Spared memory: arithmetic of the host on large tensors that hold zeros only.

An optimizer that is offloaded to the host works on many gigabytes there. What it works on comes from kernels that do
nothing, so it is zeros, behind which the system has put no memory. To write zeros over them would need all of it, and
minutes. So from the first large copy to the host on, operators that make zeros of zeros leave them as they are, piece by
piece. The values are the same.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import warnings
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch import Tensor

from . import scalars

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGE = 8 << 20  # bytes of a tensor; as much as the library needs to give the program's own pages back
PIECE = 1 << 20  # elements that are looked at together
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

# Operands that must be zeros, by position, for a result of zeros.
IN_PLACE = {
    "zero_": (), "copy_": (1,), "mul_.Tensor": (0,), "div_.Tensor": (0,), "lerp_.Scalar": (0, 1), "addcmul_": (0, 1, 2),
    "addcdiv_": (0, 1),
}
NEW = {"sqrt": (0,), "div.Tensor": (0,)}


def replacements(library: Any) -> torch.library.Library:
    """Replaces the host's kernels of these operators, for as long as the result lives."""
    registered = torch.library.Library("aten", "IMPL")
    spared = Spared(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, operands in {**IN_PLACE, **NEW}.items():
            registered.impl(name, spared.replacement(name, operands), "CPU")
    return registered


class Spared:
    """What the library knows of the host's memory, and the operators that ask for it."""

    def __init__(self, library: Any) -> None:
        self._zeros, self._discard = library.gmlake_gpu_host_zeros, library.gmlake_gpu_host_discard
        self._zeros.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p]
        self._discard.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._zeros.restype = self._discard.restype = ctypes.c_int

    def replacement(self, name: str, operands: Sequence[int]) -> Callable[..., Any]:
        """The function in place of a kernel: that kernel, but for stretches whose result is zeros anyway."""
        kernel = functools.partial(scalars.call, torch.library.get_kernel(f"aten::{name}", "CPU").call_boxed, CPU)

        def call(first: Tensor, *args: Any, **kwargs: Any) -> Any:
            given = (first, *args)
            zeros = self.common(given, operands) if is_large(first) else b""
            if b"\1" not in zeros:
                return kernel(given, kwargs)
            result = torch.empty_like(first) if name in NEW else first
            lines = [each.reshape(-1) if is_cut(each, first) else each for each in given]
            for begin, end in stretches(zeros):
                part = [line[begin:end] if is_cut(each, first) else each for each, line in zip(given, lines)]
                into = result.view(-1)[begin:end]
                is_zero = zeros[begin // PIECE] and keeps_zeros(name, part, kwargs)
                if not (is_zero and self._discard(into.data_ptr(), into.nbytes)):
                    made = kernel(part, kwargs)
                    if name in NEW:
                        into.copy_(made)
            return result

        return call

    def common(self, given: Sequence[Any], operands: Sequence[int]) -> bytes:
        """For each piece whether all of these hold only zeros in it; nothing where the call cannot be cut into pieces."""
        first = given[0]
        if not all(is_cut(each, first) or is_number(each) for each in given):
            return b""
        found = [self.zeros(given[i]) for i in operands] or [b"\1" * -(-first.numel() // PIECE)]
        return bytes(map(min, zip(*found)))

    def zeros(self, tensor: Any) -> bytes:
        """For each piece of a tensor whether it holds only zeros. A number does not."""
        if not isinstance(tensor, Tensor) or not tensor.is_contiguous():
            return b""
        flags = ctypes.create_string_buffer(-(-tensor.numel() // PIECE))
        self._zeros(tensor.data_ptr(), tensor.nbytes, PIECE * tensor.itemsize, flags)
        return flags.raw


def is_large(tensor: Tensor) -> bool:
    """Whether it is worth a look at the memory, in which all elements lie one after another."""
    return tensor.is_floating_point() and tensor.nbytes >= LARGE and tensor.is_contiguous()


def is_cut(operand: Any, first: Tensor) -> bool:
    """Whether it is a tensor whose elements belong to those of the first one by one."""
    return isinstance(operand, Tensor) and operand.shape == first.shape


def is_number(operand: Any) -> bool:
    """Whether it is a number or a tensor with one element, and no other tensor."""
    return not isinstance(operand, Tensor) or operand.numel() == 1


def stretches(zeros: bytes) -> Iterator[tuple[int, int]]:
    """Elements from which to which all pieces are alike."""
    begin = 0
    for _, pieces in itertools.groupby(zeros):
        end = begin + PIECE * len(list(pieces))
        yield begin, end
        begin = end


def keeps_zeros(name: str, given: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether what the zeros meet leaves them zeros."""
    if not math.isfinite(kwargs.get("value", 1)):
        return False
    if name == "addcdiv_":
        return bool(given[2].all())
    if name in ("mul_.Tensor", "div_.Tensor", "div.Tensor"):
        other = given[1]
        return is_number(other) and math.isfinite(other) and (name == "mul_.Tensor" or bool(other))
    return True
