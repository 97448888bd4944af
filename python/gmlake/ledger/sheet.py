"""The sheet: owners of a card's memory with their bytes, which add up to what NVML calls used."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .._sizes import show
from . import monitor, tenants, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .monitor import Process, Reading

DRIVER = "CUDA context, kernels, graphs"
UNSPLIT = "CUDA context, kernels, graphs, libraries"
UNEXPLAINED = "unexplained"
PATIENCE, PAUSE = 0.5, 0.01  # seconds
STEP = 8 << 20  # bytes that may be unexplained anew without a second look
OF_A_PROCESS = 9 << 20  # bytes for which NVML names no process: beside.csv, driver


@dataclass(frozen=True)
class Entry:
    """An owner with its bytes, how that is known, and what they consist of."""

    owner: str
    bytes: int
    how: str = ""
    parts: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Card:
    """A card at one moment: sizes in bytes, and the owners of `used_bytes`."""

    index: int
    name: str
    uuid: str
    total_bytes: int
    reserved_bytes: int
    used_bytes: int
    free_bytes: int
    entries: list[Entry]
    processes: list[Process]

    @property
    def named_bytes(self) -> int:
        """Bytes in use whose owner is known."""
        return self.used_bytes - sum(entry.bytes for entry in self.entries if entry.owner == UNEXPLAINED)

    def to_json(self) -> dict[str, Any]:
        """As it stands in files."""
        return {**asdict(self), "named_bytes": self.named_bytes}

    def __str__(self) -> str:
        share = self.named_bytes / self.used_bytes if self.used_bytes else 1
        used = f"{show(self.used_bytes)} of {show(self.total_bytes - self.reserved_bytes)} in use"
        lines = [f"GPU {self.index}, {self.name}: {used}, {share:.1%} of it named", ""]
        for entry in self.entries:
            lines += lines_of(entry, 0)
        return "\n".join([*lines, lines_of(Entry("free", self.free_bytes), 0)[0]])


def lines_of(entry: Entry, depth: int) -> list[str]:
    """An entry and its parts, a line each."""
    label = "  " * depth + entry.owner
    line = f"{label:<44} {show(entry.bytes):>10}   {entry.how}".rstrip()
    return [line, *(line for part in entry.parts for line in lines_of(part, depth + 1))]


def card(device: Any = None) -> Card:
    """The memory of a GPU by owner: of this program's current one, or of `device`, as PyTorch names GPUs.

    Without PyTorch, or before it has used the GPU, `device` is the number in nvidia-smi, and owners are processes.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return outside(monitor.read(monitor.by_index(int(device or 0))))
    index = torch.cuda._utils._get_device_index(device, optional=True)
    handle = monitor.by_bus(tenants.bus_of(torch, index))

    def look() -> tuple[Card, bool]:
        before = torch.cuda.memory_reserved(index)
        found = inside(torch, index, monitor.read(handle))
        # Else another thread made PyTorch grow or shrink between two questions.
        return found, torch.cuda.memory_reserved(index) == before

    return settled(index, look)


unexplained: dict[int, int] = {}  # by device: bytes at the last look


def settled(device: int, look: Callable[[], tuple[Card, bool]]) -> Card:
    """The card when nothing is on its way: `look` also says whether it saw one moment.

    What a library asks for is in use before it is the process's, and before its call has ended: NCCL's kernels and
    buffers for some time. So if more is unexplained than before, the card is looked at again, for PATIENCE seconds at most.
    """
    end = time.monotonic() + PATIENCE
    while True:
        found, is_still = look()
        left = found.used_bytes - found.named_bytes
        if is_still and left <= unexplained.get(device, 0) + STEP or time.monotonic() >= end:
            unexplained[device] = left
            return found
        time.sleep(PAUSE)


def outside(reading: Reading) -> Card:
    """What can be said of a card by one who has nothing on it."""
    return sheet(reading, [of_process(process) for process in reading.processes if process.bytes is not None])


def inside(torch: Any, device: int, reading: Reading) -> Card:
    """What can be said by the process whose memory it is."""
    others = [process for process in reading.processes if process.pid != os.getpid()]
    own = next((process.bytes for process in reading.processes if process.pid == os.getpid()), None)
    held = tenants.pytorch(torch, device)
    entries = [held, *tenants.libraries(torch)]
    known = sum(entry.bytes for entry in entries)
    if own is None:
        # The monitor names no process of ours, as in some containers: what is expected has to do.
        expected = tenants.expectation(reading.name)
        own = min(known + expected["bytes"], reading.used - sum(process.bytes or 0 for process in others))
    return sheet(reading, [*entries, *driver(reading, own - known), *map(of_process, others)])


def driver(reading: Reading, left: int) -> Iterator[Entry]:
    """What the driver keeps for this process; what is more than the table expects is unexplained."""
    found = tenants.expectation(reading.name)
    name = UNSPLIT if watching.watched() is None else DRIVER
    high = found["high_bytes"]
    source = "" if found["is_measured"] else "; not measured on this card"
    yield Entry(name, min(left, high), f"what is left; at most {show(high)} expected{source}")
    if left > high:
        yield Entry(UNEXPLAINED, left - high, "of this process, more than expected")


def of_process(process: Process) -> Entry:
    """Another process."""
    how = "NVML" if process.bytes is not None else "NVML does not tell"
    return Entry(f"process {process.pid}: {process.name}", process.bytes or 0, how)


def sheet(reading: Reading, entries: list[Entry]) -> Card:
    """The entries, with the driver's share for each process and what is left over."""
    left = reading.used - sum(entry.bytes for entry in entries)
    own = max(0, min(left, OF_A_PROCESS * max(1, len(reading.processes))))
    entries = [*entries, Entry("the driver, for its processes", own, "NVML's sum less its processes")] if own else entries
    unexplained = [Entry(UNEXPLAINED, left - own, "of no process that NVML names")] if left - own > 0 else []
    return Card(
        reading.index, reading.name, reading.uuid, reading.total, reading.reserved, reading.used, reading.free,
        [*entries, *unexplained], list(reading.processes),
    )
