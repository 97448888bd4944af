"""Numbers in place of tensors: `x - 1` reaches the kernel of `sub.Tensor` with a tensor that is marked as a number.

To a kernel that is written in Python, PyTorch hands the plain number; and it takes one back, for the CUDA kernel, only
while a switch of its C++ side is on, which no Python function sets. It is an exported class whose constructor sets the
switch for this thread and whose destructor puts it back.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any, Callable

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SWITCH = "_ZN5torch3jit29ToIValueAllowNumbersAsTensors"
TYPES = frozenset([int, float, bool, complex])

_python = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_python.so"))
_on = getattr(_python, SWITCH + "C1Eb")
_on.argtypes, _on.restype = [ctypes.c_void_p, ctypes.c_bool], None
_back = getattr(_python, SWITCH + "D1Ev")
_back.argtypes, _back.restype = [ctypes.c_void_p], None


def positions(schema: Any) -> list[int]:
    """Where a call may have a number in place of a tensor."""
    return [
        i
        for i, argument in enumerate(schema.arguments)
        if str(argument.type) == "Tensor"
        and argument.alias_info is None
        and not argument.kwarg_only
    ]


def call(kernel: Any, keys: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls a kernel with numbers among the tensors."""
    guard = ctypes.create_string_buffer(16)
    _on(guard, True)
    try:
        return kernel(keys, *args, **kwargs)
    finally:
        _back(guard)


@functools.lru_cache(None)
def on_cpu(overload: Any) -> Callable[..., Any]:
    """The overload's CPU kernel, which takes numbers in place of tensors."""
    kernel = torch.library.get_kernel(overload, "CPU").call_boxed
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda *args, **kwargs: call(kernel, keys, args, kwargs)
