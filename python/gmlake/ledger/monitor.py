"""NVML, the driver's monitor: what a card has, what is in use, and by which processes. Opens no context on the card."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
MOST = 1024  # processes
TRIES = 5  # until two answers are of one moment


class NoMonitor(RuntimeError):
    """There is no NVML, or it does not answer; the text says why."""


class Memory(ctypes.Structure):
    """`nvmlMemory_v2_t`"""

    _fields_ = [
        ("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong),
    ]


class Running(ctypes.Structure):
    """`nvmlProcessInfo_t`"""

    _fields_ = [
        ("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


@dataclass(frozen=True)
class Process:
    """A process on a card, with its bytes; None where the monitor does not tell (WSL, some containers)."""

    pid: int
    name: str
    bytes: int | None


@dataclass(frozen=True)
class Reading:
    """A card at one moment, in bytes. `reserved` is the driver's and no program's; it is not in `used`."""

    index: int
    name: str
    uuid: str
    total: int
    reserved: int
    used: int
    free: int
    processes: tuple[Process, ...]


@functools.lru_cache(maxsize=1)
def library() -> Any:
    """NVML, loaded and begun."""
    try:
        found = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NoMonitor("gmlake: there is no NVIDIA driver here (libnvidia-ml.so.1)") from error
    code = found.nvmlInit_v2()
    if code:
        raise NoMonitor(f"gmlake: NVML does not start (error {code})")
    return found


def ask(name: str, *arguments: Any) -> None:
    """Calls a function that returns an error code."""
    code = getattr(library(), name)(*arguments)
    if code:
        raise NoMonitor(f"gmlake: {name} failed (NVML error {code})")


def count() -> int:
    """How many cards there are."""
    found = ctypes.c_uint()
    ask("nvmlDeviceGetCount_v2", ctypes.byref(found))
    return found.value


def by_bus(bus: str) -> Any:
    """The card at a PCI address, as CUDA writes it: CUDA may number cards in another order."""
    handle = ctypes.c_void_p()
    ask("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), ctypes.byref(handle))
    return handle


def by_index(index: int) -> Any:
    """The card of this number in nvidia-smi."""
    handle = ctypes.c_void_p()
    ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
    return handle


def read(handle: Any) -> Reading:
    """The card now."""
    for _ in range(TRIES):
        memory, found = memory_of(handle), processes(handle)
        if memory_of(handle).used == memory.used:
            break  # else the processes are of another moment
    index = ctypes.c_uint()
    ask("nvmlDeviceGetIndex", handle, ctypes.byref(index))
    return Reading(
        index.value, text("nvmlDeviceGetName", handle), text("nvmlDeviceGetUUID", handle), memory.total,
        memory.reserved, memory.used, memory.free, found,
    )


def memory_of(handle: Any) -> Memory:
    """The card's memory."""
    memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
    ask("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
    return memory


def text(function: str, handle: Any) -> str:
    """A text that a function writes."""
    room = 256
    found = ctypes.create_string_buffer(room)
    ask(function, handle, found, room)
    return found.value.decode()


def processes(handle: Any) -> tuple[Process, ...]:
    """Processes that compute on a card, those with most memory first."""
    found, size = (Running * MOST)(), ctypes.c_uint(MOST)
    ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(size), found)
    unknown = ctypes.c_ulonglong(-1).value
    rows = [
        Process(one.pid, command(one.pid), None if one.used == unknown else one.used) for one in found[: size.value]
    ]
    return tuple(sorted(rows, key=lambda row: (-(row.bytes or 0), row.pid)))


def command(pid: int) -> str:
    """What a process runs, in a few words; `?` where the system does not tell."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "?"
    shown = [word.rpartition("/")[2] for word in words if word and (word == "-c" or not word.startswith("-"))]
    return " ".join(shown[:2])[:60] or "?"
