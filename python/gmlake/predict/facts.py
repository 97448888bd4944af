"""The facts: what is known of a rank when its script has ended, and what the answer says of it.

    job ──Facts, as JSON──▶ run ──▶ prediction, with gmlake-sim's numbers ──Rank──▶ answer: table, JSON
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, TypedDict

# What a library copies to the host inside an operator: mostly a count, which is zero whatever is assumed.
COPIED = "a copy to the host"
# These end what was read where the user's code decides by it: by a branch, or by a whole number, such as a size.
COMPARED, WHOLE = ", compared", ", made a whole number"

# How a process ends: at its last line, after the steps asked for, by sys.exit, by an exception, by one that comes of memory
# that ran out, with another program in its place; by SIGTERM, sent by the script, or by us after the script's end.
DONE, FINISHED, EXITED, FAILED, RAN_OUT, REPLACED = "done", "finished", "exited", "failed", "out_of_memory", "replaced"
TERMINATED, ASKED = ENDED_BY_SIGNAL = "terminated", "asked"


class Ending(NamedTuple):
    """How a script ended, and what went wrong: by itself, or for want of a module to run."""

    ended: str
    error: str | None = None
    problem: str | None = None


class UnknownRead(TypedDict):
    """Reads of values that were never computed, at one place of the program."""

    count: int
    bytes: int
    place: str
    what: str


# A workspace that is not known: what for, bytes, the least, the most, how many of a hundred take less, how many more,
# and the number of its family.
Guess = tuple[str, int, int, int, int, int, int]


class Part(TypedDict):
    """What one kind of use takes of a card besides PyTorch's allocator."""

    use: str
    count: int
    bytes: int


class Beside(TypedDict):
    """What a process takes of a card besides PyTorch's allocator, as crates/core/src/beside.rs has it."""

    bytes: int
    low_bytes: int
    high_bytes: int
    is_measured: bool
    parts: list[Part]


class LibraryReport(TypedDict, total=False):
    """What the virtual GPU counted; empty where the process came to no end."""

    contested: int  # answers to the script that depended on time
    devices: int  # that the machine has
    visible: list[int]  # which of them the process sees
    visible_devices: str | None  # the variable that said so
    unwritten: list[str]  # functions that the virtual GPU does not have
    estimated_kinds: dict[str, int]  # how many workspaces of each kind may be wrong
    estimated: list[str]  # the operations that were not measured, as in `measure`
    guesses: list[Guess]
    guesses_used: list[tuple[int, int]]  # microseconds, and which
    workspaces_of_others: int  # lines of tables that are of another card or version
    host_peak_bytes: dict[str, int]
    beside: Beside
    host_pace: float | None  # seconds of a real GPU's host for one here


class Recorded(TypedDict, total=False):
    """What can be counted in a snapshot."""

    requests: int
    devices: list[int]
    gpus: list[int]
    gpu_use_s: list[float]
    allocator: str | None
    device: str
    device_memory_bytes: int


class Stepped(TypedDict):
    """Optimizer steps: how many, the estimated seconds of each, and when each ended by the clock of the snapshot."""

    steps: int
    step_seconds: list[float]
    step_end_us: list[int]


class Imported(TypedDict):
    """Libraries that use a GPU and that `predict` cannot see."""

    own_runtimes: list[str]
    frameworks: list[str]


class Ended:
    """A process at its end."""

    ended: str | None
    error: str | None
    oom_step: int | None

    @property
    def died_of_memory(self) -> bool:
        """Whether the script failed since memory ran out; one may go on after that, and fail for another reason."""
        return self.oom_step is not None and bool(self.error) and self.ended not in (FAILED, *ENDED_BY_SIGNAL)


@dataclass
class Facts(Ended):
    """What is known of a rank afterwards. A process that was killed leaves `error` alone."""

    problem: str | None = None  # that the user can put right: nothing was run
    ended: str | None = None
    error: str | None = None
    requests: int = 0
    devices: list[int] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)  # the devices as all processes number them
    gpu_use_s: list[float] = field(default_factory=list)  # when it first used a GPU, and when it ended: Unix time
    allocator: str | None = "caching"  # as gmlake-sim calls it; None: several
    device: str | None = None
    device_memory_bytes: int | None = None
    steps: int | None = None
    step_seconds: list[float] | None = None
    step_end_us: list[int] | None = None
    oom_step: int | None = None
    unknown_reads: list[UnknownRead] | None = None  # None: nothing was noticed
    computed_reads: list[UnknownRead] | None = None  # of what the host computed, whose rounding is not a GPU's
    assume: str | None = None  # what these got
    timed_loop: str | None = None  # the line of the script that loops until a time has gone by
    routed: int = 0  # choices of experts by scores that are not sure
    host_memory_bytes: int | None = None
    own_runtimes: list[str] | None = None
    frameworks: list[str] | None = None
    library: LibraryReport = field(default_factory=LibraryReport)
    drawings: list[str] = field(default_factory=list)  # the recording with other workspaces: `ends`
    torch: str | None = None
    command: str | None = None  # of a child of the script's
    # Of the process that waited for it:
    snapshot: str | None = None
    seconds: float = 0.0
    processes: list[Facts] = field(default_factory=list)  # children that used the GPU

    def write(self, path: str) -> None:
        """Writes the facts, whole or not at all."""
        with open(path + ".part", "w") as file:
            json.dump(asdict(self), file)
        os.replace(path + ".part", path)

    @classmethod
    def read(cls, path: str) -> Facts:
        """The facts in a file."""
        with open(path) as file:
            return cls(**json.load(file))


@dataclass(frozen=True)
class Need:
    """What a rank would hold under one allocator without a limit, and the smallest card that runs it.

    `smallest_card_high` is the one that serves the upper end of the interval, too.
    """

    reserved_peak_bytes: int | None = None
    smallest_card: str | None = None
    smallest_card_high: str | None = None


@dataclass(frozen=True)
class Share:
    """What one source of doubt adds to an interval: bytes below and above the best guess, and why."""

    source: str
    below: int
    above: int
    why: str


@dataclass
class Rank(Ended):
    """One rank's numbers, in the order in which they stand in the JSON."""

    rank: int
    snapshot: str | None
    process: int | None = None  # which child of the script's, from 1
    command: str | None = None
    reserved_peak_bytes: int | None = None
    reserved_peak_bytes_low: int | None = None
    reserved_peak_bytes_high: int | None = None
    active_peak_bytes: int | None = None
    # Of the card, besides PyTorch's allocator.
    beside_pytorch_bytes: int | None = None
    beside_pytorch_bytes_low: int | None = None
    beside_pytorch_bytes_high: int | None = None
    beside_pytorch: list[Part] = field(default_factory=list)
    is_beside_measured: bool = True
    requests: int = 0
    ended: str | None = None  # how; None: it was killed
    error: str | None = None
    gpus: list[int] = field(default_factory=list)
    gpu_use_s: list[float] = field(default_factory=list)
    visible_devices: str | None = None  # the CUDA_VISIBLE_DEVICES that the process set
    visible_gpus: list[int] | None = None  # what it sees by that
    visible_of: int | None = None  # how many GPUs the machine has
    allocator: str | None = None  # as in `allocators`
    device: str | None = None
    device_memory_bytes: int | None = None
    steps: int | None = None
    step_seconds: list[float] | None = None
    step_end_us: list[int] | None = None
    oom_step: int | None = None
    unknown_reads: list[UnknownRead] | None = None
    computed_reads: list[UnknownRead] | None = None
    assume: str | None = None
    timed_loop: str | None = None
    host_memory_bytes: int | None = None
    own_runtimes: list[str] | None = None
    frameworks: list[str] | None = None
    unwritten: list[str] = field(default_factory=list)
    estimated_workspaces: dict[str, int] = field(default_factory=dict)
    estimated: list[str] = field(default_factory=list)
    workspaces_of_others: int = 0
    # Of the real machine's host, not of this one.
    pinned_peak_bytes: int | None = None
    managed_on_host_peak_bytes: int | None = None
    managed_on_device_peak_bytes: int | None = None
    host_pace: float | None = None
    seconds: float = 0.0
    open_ends: int = 0
    interval: list[Share] = field(default_factory=list)
    unbounded: list[str] = field(default_factory=list)
    allocators: dict[str, Need] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its number, and behind a plus sign that of a process that the script started."""
        return str(self.rank) if self.process is None else f"{self.rank}+{self.process}"

    @property
    def failed(self) -> bool:
        """Whether the script failed, or used no GPU."""
        return bool(self.error) or not self.requests


@dataclass
class Configuration:
    """One point of a grid, and what was found there."""

    values: dict[str, str]
    arguments: list[str]
    ranks: list[Rank]
