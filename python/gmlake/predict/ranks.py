"""The ranks: one process of a job that has many.

A rank alone runs as if the others were there. Collectives give it what it sends (the library does
that); what is left is the store, by which processes find each other before the first collective.
Here it answers for the others: what another rank would have written is there at once, as zeros.

Ranks that run together meet in PyTorch's own store, and nothing is changed.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Callable

from .._imports import WhenImported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Bytes of an answer for another rank: an id of NCCL is as long, and other readers take less.
ANSWER = bytes(128)

# What must live as long as the process.
KEPT: list[object] = []


def prepare(alone: bool) -> None:
    """To be called before the script; `alone` says that no other rank runs next to this one."""
    # Threads that watch for ranks that hang, by the store; nothing hangs here.
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    if alone:
        import torch.distributed as dist

        if dist.is_available():
            meet_nobody(dist)
        WhenImported("deepspeed.runtime.zero.utils", compare_with_oneself)


def meet_nobody(dist: Any) -> None:
    """Lets every way to find the other ranks end in a store of this rank's own."""
    from torch.distributed import distributed_c10d

    # `torch.distributed.rendezvous` is a function that hides its module.
    rendezvous = importlib.import_module("torch.distributed.rendezvous")

    # One for all groups, which put their names before their keys. C++ holds it without its Python
    # part, so it must live as long as the process.
    store = own_store(dist)
    KEPT.append(store)

    def handler(_url: str, **_options: Any) -> Iterator[tuple[Any, int, int]]:
        yield store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    for scheme in ("env", "tcp", "file"):
        rendezvous._rendezvous_handlers[scheme] = handler
    dist.TCPStore = distributed_c10d.TCPStore = lambda *_arguments, **_options: store
    if hasattr(distributed_c10d, "ProcessGroupGloo"):
        # It would connect to every other rank; its groups carry data of the host.
        distributed_c10d.ProcessGroupGloo = lonely_groups()
    for name, function in {**objects(dist), **received(distributed_c10d)}.items():
        setattr(dist, name, function)
        setattr(distributed_c10d, name, function)


def objects(dist: Any) -> dict[str, Callable[..., Any]]:
    """The collectives of Python objects, by name: every rank has what this one has.

    PyTorch sends an object's length first, and receives it into memory that it has not written. Nothing arrives there.
    """

    def broadcast_object_list(object_list: list[Any], *_arguments: Any, **_options: Any) -> None:
        pass

    def all_gather_object(object_list: list[Any], obj: Any, *_arguments: Any, **_options: Any) -> None:
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj: Any, object_gather_list: list[Any] | None = None, *_arguments: Any, **_options: Any) -> None:
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(
        output: list[Any],
        inputs: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        output[0] = inputs[dist.get_rank(group)] if inputs else None

    def send_object_list(object_list: list[Any], *_arguments: Any, **_options: Any) -> None:
        pass

    def recv_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        *_arguments: Any,
        group_src: int | None = None,
        **_options: Any,
    ) -> int:
        return src if src is not None else group_src or 0

    return {name: each for name, each in locals().items() if name != "dist"}


def received(module: Any) -> dict[str, Callable[..., Any]]:
    """What receives a tensor of the host from another rank, by name: it receives zeros, not what memory held before."""
    broadcast_usual, recv_usual = module.broadcast, module.recv

    def broadcast(
        tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
    ) -> Any:
        sender = group_src if src is None else src
        own = module.get_rank(group) if src is None else module.get_rank()
        if sender != own and tensor.device.type == "cpu":
            tensor.zero_()
        return broadcast_usual(tensor, src, group, async_op, group_src)

    def recv(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if tensor.device.type == "cpu":
            tensor.zero_()
        return recv_usual(tensor, *arguments, **options)

    return {"broadcast": broadcast, "recv": recv}


def compare_with_oneself(module: Any) -> None:
    """DeepSpeed checks that a rank has what rank 0 sends; here it receives what it sends itself."""
    module.dist = AsRankZero(module.dist)


class AsRankZero:
    """A module of collectives to which this rank is number 0."""

    def __init__(self, dist: Any) -> None:
        self._dist = dist

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dist, name)

    def get_rank(self, group: Any = None) -> int:
        return 0


def lonely_groups() -> type:
    """What stands for the class of groups for data of the host; their collectives leave everything as it is."""
    from torch._C._distributed_c10d import FakeProcessGroup

    class Lonely(type):
        """The class of a class: PyTorch asks whether a group that it made is of the class that it called."""

        def __call__(cls, _store: Any, rank: int, size: int, *_arguments: Any, **_options: Any) -> Any:
            return getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)(rank, size)

        def __instancecheck__(cls, group: Any) -> bool:
            return isinstance(group, FakeProcessGroup)

    # Up to PyTorch 2.13 such a group refuses a question that is asked of every group of the host.
    FakeProcessGroup._set_sequence_number_for_group = lambda _group: None
    return Lonely("LonelyGroup", (), {})


def own_store(dist: Any) -> Any:  # noqa: C901 - a class, whose methods are counted as branches
    """A store in which the other ranks have written zeros."""

    class OwnStore(dist.Store):
        """What this rank wrote, and zeros for all else."""

        def __init__(self) -> None:
            super().__init__()
            self._values: dict[str, bytes] = {}

        def set(self, key: str, value: str | bytes) -> None:
            self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

        def get(self, key: str) -> bytes:
            return self._values.get(key, ANSWER)

        def add(self, key: str, amount: int) -> int:
            # Counts are waited for until all ranks have counted: this one counts for all.
            world = int(os.environ["WORLD_SIZE"])
            count = int(self._values.get(key, b"0")) + amount * world
            self._values[key] = str(count).encode()
            return count

        def compare_set(self, key: str, _expected: Any, desired: bytes) -> bytes:
            self._values.setdefault(key, desired)
            return self._values[key]

        def check(self, keys: Iterable[str]) -> bool:
            return all(key in self._values for key in keys)

        def wait(self, keys: Any, timeout: Any = None) -> None:
            pass

        def delete_key(self, key: str) -> bool:
            return self._values.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self._values)

        def set_timeout(self, timeout: Any) -> None:
            pass

        def clone(self) -> Any:
            # Asked for where a group is split, as by `init_device_mesh`.
            return self

    return OwnStore()
