"""The exchange: tensors that ranks which run together really send each other, where all values are computed.

The library exchanges what is small. With `--values forward` or `real` the values of large tensors count, too. They go
through files in the folder where the ranks meet, around PyTorch's own collective, which may write over what is sent:

    rank 0   writes x.GROUP.17.0 ─┐  PyTorch's own   ┌─ reads x.GROUP.17.1      17: the group's 17th exchange
    rank 1   writes x.GROUP.17.1 ─┴─ collective      ┴─ reads x.GROUP.17.0

A rank that has read all files of a call knows that all have read those of the call before, and deletes its own of that
call. What a rank does not know itself it sends as nothing, and the result is unknown to all.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import host

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from torch import Tensor

    from .shadow import Shadow

    Around = Generator[None, None, None]
    Swap = Generator[None, None, list[Tensor] | None]
    Collective = Callable[..., Around]

SMALL = 1 << 20  # bytes, up to which the library exchanges data
PATIENCE = 3600  # seconds that another rank may compute
CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)


class Exchange:
    """The collectives of this rank among others, from its making until it is closed."""

    def __init__(self, folder: str, shadow: Shadow) -> None:
        self._folder, self._shadow, self._call = folder, shadow, 0
        self._numbers: Counter[str] = Counter()
        self._written: dict[str, list[tuple[int, Path]]] = {}  # this rank's files that others may still read, by group
        self._wait = shadow.library.gmlake_gpu_wait
        self._wait.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
        self._registered = torch.library.Library("c10d", "IMPL")
        for name, function in COLLECTIVES.items():
            self._replace(name, function)

    def _replace(self, name: str, function: Collective) -> None:
        kernel = torch.library.get_kernel(f"c10d::{name}", "CUDA").call_boxed

        def call(*args: Any) -> Any:
            self._call += 1
            around = function(self, *map(unboxed, args))
            next(around)
            found = kernel(CUDA, *args)
            next(around, None)
            return found

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._registered.impl(name, call, "CUDA")

    def close(self) -> None:
        """PyTorch's own collectives again."""
        self._registered._destroy()

    def swap(self, group: Any, own: Tensor, splits: Sequence[int] = ()) -> Swap:
        """What each rank of the group sends to this one, as flat tensors of the host; none where one does not know it.

        Of a tensor with `splits`, each rank gets its own part of the rows.
        """
        name, rank, ranks = group.group_name, group.rank(), group.size()
        self._numbers[name] += 1
        number, call = self._numbers[name], self._call
        known = self._shadow.known(own) or not own.numel()
        parts = host.view(own).split(list(splits)) if splits else [host.view(own)] * ranks
        for other in range(ranks) if splits else [rank]:
            sent = parts[other].contiguous().view(-1).view(torch.uint8).numpy() if known else None
            path = self._path(name, number, rank, other if splits else None)
            self._write(path, sent)
            self._written.setdefault(name, []).append((call, path))
        yield
        found = [self._read(self._path(name, number, each, rank if splits else None), each, own.dtype) for each in range(ranks)]
        for _, path in (old for old in self._written[name] if old[0] < call):
            path.unlink()
        self._written[name] = [new for new in self._written[name] if new[0] >= call]
        whole = [each for each in found if each is not None]
        return whole if len(whole) == ranks else None

    def give(self, tensor: Tensor, arrived: Tensor | None) -> None:
        """Writes what arrived into the device's memory."""
        if arrived is None or arrived.numel() != tensor.numel():
            self._shadow.forget(tensor)
        elif tensor.numel():
            host.view(tensor).copy_(arrived.view(tensor.shape))
            self._shadow.learn(tensor)

    def _path(self, name: str, number: int, rank: int, other: int | None) -> Path:
        return Path(self._folder, f"x.{name}.{number}.{rank}" + ("" if other is None else f".{other}"))

    def _write(self, path: Path, data: Any) -> None:
        """The first byte says whether the rest is known."""
        part = path.with_name(path.name + ".part")
        with open(part, "wb") as file:
            file.write(bytes(8) if data is None else b"\1" * 8)
            if data is not None:
                data.tofile(file)
        os.replace(part, path)

    def _read(self, path: Path, rank: int, dtype: torch.dtype) -> Tensor | None:
        if not self._wait(os.fsencode(path), rank, PATIENCE):
            raise TimeoutError(f"rank {rank} sends nothing")
        content = bytearray(path.read_bytes())
        if not content[0]:
            return None
        data = memoryview(content)[8:]
        return torch.frombuffer(data, dtype=dtype) if len(data) else torch.empty(0, dtype=dtype, device="cpu")


def unboxed(value: Any) -> Any:
    """A group as Python has it."""
    group = torch.distributed.ProcessGroup
    return group.unbox(value) if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()) else value


# A collective: what it does before PyTorch's own, and behind `yield` what it does afterwards.


def all_to_all(it: Exchange, output: Tensor, own: Tensor, group: Any, _out: Any, splits: Sequence[int], *_: Any) -> Around:
    """Each rank gets a part of what each sends."""
    ranks = group.size()
    arrived = yield from it.swap(group, own, list(splits) or [len(own) // ranks] * ranks)
    it.give(output, None if arrived is None else torch.cat(arrived))


def all_gather(it: Exchange, output: Tensor, own: Tensor, group: Any, *_: Any) -> Around:
    """Each rank gets what all have."""
    arrived = yield from it.swap(group, own)
    it.give(output, None if arrived is None else torch.cat(arrived))


def all_reduce(it: Exchange, tensors: Sequence[Tensor], *_: Any) -> Around:
    """How to reduce cannot be seen from here: what is large is unknown from now on, and the library does the rest."""
    yield
    for tensor in tensors:
        if tensor.nbytes > SMALL:
            it.give(tensor, None)


def reduce_scatter(it: Exchange, output: Tensor, own: Tensor, *_: Any) -> Around:
    """As `all_reduce`."""
    yield
    if own.nbytes > SMALL:
        it.give(output, None)


def broadcast(it: Exchange, tensors: Sequence[Tensor], group: Any, root: int, at: int, *_: Any) -> Around:
    """Each rank gets what one has."""
    arrived = yield from it.swap(group, tensors[at])
    it.give(tensors[at], None if arrived is None else arrived[root])


def each(one: Collective) -> Collective:
    """The collective of many tensors together, each by itself."""

    def many(it: Exchange, outputs: Sequence[Tensor], inputs: Sequence[Tensor], *rest: Any) -> Around:
        every = [one(it, output, own, *rest) for output, own in zip(outputs, inputs)]
        for around in every:
            next(around)
        yield
        for around in every:
            next(around, None)

    return many


COLLECTIVES: dict[str, Collective] = {
    "alltoall_base_": all_to_all, "allreduce_": all_reduce, "allreduce_coalesced_": all_reduce,
    "_allgather_base_": all_gather, "allgather_into_tensor_coalesced_": each(all_gather),
    "_reduce_scatter_base_": reduce_scatter, "reduce_scatter_tensor_coalesced_": each(reduce_scatter),
    "broadcast_": broadcast,
}
