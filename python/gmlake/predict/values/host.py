"""The host's view of a device tensor: a CPU tensor over the same memory, for operators to compute in.

The virtual GPU's memory is address space of this process at the addresses that PyTorch knows. One huge CPU tensor per
dtype covers all of it; a view of it, with the device tensor's shape and strides, costs about two microseconds and
allocates nothing.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

START = 4096  # of the covered addresses; a multiple of every element size, and not null
END = 1 << 47

INTEGERS = frozenset(
    [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint16, torch.uint32, torch.uint64,
    ]
)

# Threads of OpenMP wait for each other. Together with other predictions on the same cores that costs more than they bring.
_openmp = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
_threads = getattr(_openmp, "omp_get_max_threads", lambda: 1)
_set_threads = getattr(_openmp, "omp_set_num_threads", lambda _count: None)

# A real GPU computes this itself and not its host: the clock that estimates leaves the time out.
leave_out: Any = getattr(ctypes.CDLL(None), "gmlake_gpu_leave_out", lambda _nanoseconds: None)
if hasattr(leave_out, "argtypes"):
    leave_out.argtypes, leave_out.restype = [ctypes.c_uint64], None

# As PyTorch has them: DeepSpeed replaces them in the module while it builds a model.
_empty, _empty_strided = torch.empty, torch.empty_strided

# How many threads an operator takes.
most_threads = 1

_busy = threading.local()

_whole: dict[torch.dtype, torch.Tensor] = {}  # dtype: the tensor over all addresses


def view(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, as a CPU tensor. A CPU tensor is returned as it is."""
    if not tensor.is_cuda:
        return tensor
    dtype = tensor.dtype
    if not tensor.numel():
        return _empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device="cpu")
    offset = (tensor.data_ptr() - START) // tensor.element_size()
    return _all(dtype).as_strided(tensor.shape, tensor.stride(), offset)


def _all(dtype: torch.dtype) -> torch.Tensor:
    found = _whole.get(dtype)
    if found is None:
        storage = torch._C._construct_storage_from_data_pointer(
            START, torch.device("cpu"), END - START
        )
        found = _empty(0, dtype=dtype, device="cpu")
        found.set_(storage, 0, ((END - START) // dtype.itemsize,), (1,))
        _whole[dtype] = found
    return found


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The values as 64-bit floats, for kernels that the CPU has for floats only."""
    return view(tensor).double()


def call(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls an operator on CPU tensors, on few threads, unseen by the program's own modes."""
    threads, begin = _threads(), time.thread_time_ns()
    _set_threads(most_threads)
    before, _busy.on = is_busy(), True
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return overload(*args, **kwargs)
    finally:
        _busy.on = before
        _set_threads(threads)
        leave_out(time.thread_time_ns() - begin)


def is_busy() -> bool:
    """Whether this thread computes in place of a kernel, and not for the program."""
    return getattr(_busy, "on", False)


def available() -> int:
    """Bytes of memory that this machine has left."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) << 10


def map_tensors(change: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """The same arguments with every tensor replaced, in lists and tuples too."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(map_tensors(change, item) for item in value)
    if type(value) is dict:
        return {name: map_tensors(change, item) for name, item in value.items()}
    if type(value) is torch.device:
        return torch.device("cpu")
    return value


def tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """All tensors among arguments or results, lists searched."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif type(value) in (list, tuple):
            found += tensors(value)
    return found


def results(out: Any) -> list[torch.Tensor]:
    """All results of a call, with an empty tensor for each that is undefined."""
    if isinstance(out, torch.Tensor):
        return [out]
    found = []
    for value in out if type(out) in (list, tuple) else []:
        found += [torch.empty(0, device="cpu")] if value is None else results(value)
    return found


def writing(overload: Any) -> tuple[Any, list[str]]:
    """The overload that writes the same results into given tensors, and their names; None where there is none."""
    schema = overload._schema
    if schema.is_mutable:
        return None, []
    plain = [(argument.name, str(argument.type)) for argument in schema.arguments]
    packet = overload.overloadpacket
    for name in packet.overloads():
        found = getattr(packet, name)
        arguments = found._schema.arguments
        outs = [
            a.name
            for a in arguments
            if a.alias_info is not None and a.alias_info.is_write and a.kwarg_only
        ]
        rest = [(a.name, str(a.type)) for a in arguments if a.name not in outs]
        lists = [a for a in arguments if a.name in outs and str(a.type) != "Tensor"]
        if outs and not lists and rest == plain and len(outs) == len(schema.returns):
            return found, outs
    return None, []
