"""Sharing: processes of a script that are on one GPU at the same time, whose needs add up.

    process 1   ├──────── 30 GiB ────────┤
    process 2            ├──────── 30 GiB ────────┤     60 GiB at most: their peaks may not coincide
    process 3                              ├─ 8 GiB ─┤

Each process is predicted as if it had the GPU for itself. Ranks that run alone here run together there.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import simulator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .facts import Rank
    from .order import Ranks


@dataclass(frozen=True)
class Shared:
    """A GPU of a node with several processes: what they need together at most, and the smallest card for that."""

    node: int
    gpu: int
    processes: list[str]
    reserved_peak_bytes: int
    beside_pytorch_bytes: int
    smallest_card: str | None


def found(every: Iterable[Rank], ranks: Ranks) -> list[Shared]:
    """The GPUs that several processes use at the same time. Of processes that failed nothing is known."""
    users: defaultdict[tuple[int, int], list[Rank]] = defaultdict(list)
    for rank in every:
        for gpu in rank.gpus:
            users[rank.rank // ranks.per_node, gpu].append(rank)
    return [it for (node, gpu), those in sorted(users.items()) for it in of_gpu(node, gpu, those)]


def of_gpu(node: int, gpu: int, users: Sequence[Rank]) -> Iterator[Shared]:
    """What the users of one GPU need together, if there are several at a time."""
    most = max((together(one, users) for one in users), key=lambda those: sum(map(need, those)))
    if len(most) < 2 or any(rank.error or rank.oom_step is not None for rank in most):
        return
    reserved = sum(rank.reserved_peak_bytes or 0 for rank in most)
    beside = sum(rank.beside_pytorch_bytes or 0 for rank in most)
    yield Shared(node, gpu, [rank.name for rank in most], reserved, beside, card(reserved + beside, most[0]))


def need(rank: Rank) -> int:
    """Bytes of the card that a process takes at most."""
    return (rank.reserved_peak_bytes or 0) + (rank.beside_pytorch_bytes or 0)


def together(one: Rank, users: Iterable[Rank]) -> list[Rank]:
    """Those that are on the GPU when this one comes. Processes of different ranks always are."""
    begin = one.gpu_use_s[0]
    return [it for it in users if it is one or it.rank != one.rank or it.gpu_use_s[0] <= begin < it.gpu_use_s[1]]


def card(size: int, first: Rank) -> str | None:
    """The smallest card with so many bytes, of which one process's are those that every card leaves to it."""
    own = first.beside_pytorch_bytes or 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sum.csv")
        with open(path, "w") as file:
            file.write(simulator.recording_of(size - own))
        return simulator.smallest(path, first.beside_pytorch)
