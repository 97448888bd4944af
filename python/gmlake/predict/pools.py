"""Pools: what memory belonged to a `MemPool` that the script has dropped before its end.

PyTorch notes the pool of each entry from 2.12 on. Before, only the segments of the final state have one, and a pool that is
gone has no segments. So each is looked at as it goes, and entries get their pools as in 2.12:

    entries     segment_alloc A ─ alloc ─ free ──────── segment_free A ─ segment_alloc A ─ alloc
    looks                                       ▲ pool 3 has A
    pools       3               3       3               3               0                0
"""

from __future__ import annotations

import inspect
import time
from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Any, NamedTuple

from . import pytorch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

DEFAULT = (0, 0)
BEGINS, ENDS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
NEVER = float("inf")
NOTED = (2, 12)  # the PyTorch from which on entries have pools
APART = 50  # microseconds that the clocks may differ by


class Look(NamedTuple):
    """A segment of a pool, as seen at a time in microseconds."""

    at: float
    device: int
    begin: int
    end: int
    pool: tuple[int, int]


class Pools:
    """Looks at the pools that a script drops."""

    def __init__(self, torch: ModuleType) -> None:
        self._looks: list[Look] = []
        self._times: list[tuple[float, float]] = []  # in microseconds, from when to when it was looked
        self._is_closed = pytorch.numbers(torch.__version__) >= NOTED
        look = torch.cuda.memory.memory_snapshot
        more = {"include_traces": False} if "include_traces" in inspect.signature(look).parameters else {}

        def gone(pool: Any) -> None:
            if not self._is_closed and torch.cuda.is_initialized():
                begin = time.time() * 1e6
                segments = look(pool.id, **more)
                self._times.append((begin - APART, time.time() * 1e6 + APART))
                self._looks += looks(segments, begin)

        if hasattr(torch.cuda, "MemPool") and not self._is_closed:
            torch.cuda.MemPool.__del__ = gone

    def label(self, snapshot: Mapping[str, Any]) -> None:
        """Gives each entry its pool, if a pool with memory is gone and PyTorch has not noted it."""
        self._is_closed = True
        traces = snapshot["device_traces"]
        for trace in traces if self._times else []:
            trace[:] = [entry for entry in trace if entry["action"] != "snapshot" or not self._is_ours(entry["time_us"])]
        if not self._looks:
            return
        final = list(looks(snapshot["segments"], NEVER))
        for device, trace in enumerate(traces):
            pools = pools_of(trace, [look for look in [*self._looks, *final] if look.device == device])
            for entry, pool in zip(trace, pools):
                entry["pool_id"] = pool

    def _is_ours(self, at: float) -> bool:
        """Whether it was looked at this time, which PyTorch notes as a snapshot of the script's."""
        return any(begin <= at <= end for begin, end in self._times)


def looks(segments: Iterable[Mapping[str, Any]], at: float) -> Iterator[Look]:
    """The segments of private pools as they are now."""
    for it in segments:
        if it["segment_pool_id"] != DEFAULT:
            yield Look(at, it["device"], it["address"], it["address"] + it["total_size"], it["segment_pool_id"])


def pools_of(trace: Sequence[Mapping[str, Any]], seen: Sequence[Look]) -> Iterator[tuple[int, int]]:
    """The pool of each entry."""
    pools = pools_of_segments(trace, seen)
    begins: list[int] = []
    live: dict[int, tuple[int, tuple[int, int]]] = {}  # begin: end, pool
    for index, entry in enumerate(trace):
        address = entry["addr"]
        if entry["action"] in BEGINS:
            if address not in live:
                insort(begins, address)
            live[address] = address + entry["size"], pools.get(index, DEFAULT)
        place = bisect_right(begins, address) - 1
        end, pool = live[begins[place]] if place >= 0 else (0, DEFAULT)
        yield pool if address < end else DEFAULT
        if entry["action"] in ENDS and address in live:
            begins.remove(address)
            del live[address]


def pools_of_segments(trace: Sequence[Mapping[str, Any]], seen: Sequence[Look]) -> dict[int, tuple[int, int]]:
    """The pools of the entries with which segments begin: of each look, those that last began where it saw some."""
    found: dict[int, tuple[int, int]] = {}
    begun: dict[int, int] = {}  # address: entry
    waiting = sorted(seen, reverse=True)
    for index, entry in enumerate(trace):
        while waiting and waiting[-1].at < entry["time_us"]:
            mark(waiting.pop(), begun, found)
        if entry["action"] in BEGINS:
            begun[entry["addr"]] = index
        elif entry["action"] in ENDS:
            begun.pop(entry["addr"], None)
    for look in waiting:
        mark(look, begun, found)
    return found


def mark(look: Look, begun: Mapping[int, int], found: dict[int, tuple[int, int]]) -> None:
    """The segments that a look has seen are of its pool."""
    for address, index in begun.items():
        if look.begin <= address < look.end:
            found[index] = look.pool
