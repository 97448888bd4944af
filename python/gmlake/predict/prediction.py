"""The prediction: what the ranks of one configuration hold, each as an interval with a best guess.

When memory that another stream has used becomes free again depends on how far the GPU is. Events
of the virtual GPU complete by a clock; the best guess. If that run says that its answers depended
on the clock, two more runs, on a GPU 3 times as fast as estimated and on one 1.4 times as slow, are
the ends of the interval.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

from . import simulator
from .facts import Facts, Rank
from .outputs import Unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .order import Task
    from .run import Files, Workshop

# A run that bounds may take so much longer than the best guess: a program may wait for the GPU
# in a way that never ends on another one.
PATIENCE = 5


def predict(workshop: Workshop, task: Task, files: Files) -> list[Rank]:
    """Every rank's numbers, as they stand in the JSON, in the order of the ranks."""
    ranks, is_interval = task.ranks, task.events == "interval"
    best = workshop.run(replace(task, events="clock") if is_interval else task, files)
    with tempfile.TemporaryDirectory(dir=workshop.folder) as folder:
        others: list[list[Facts]] = []
        if is_interval and (ranks.launched or any(map(is_contested, best))):
            limit = PATIENCE * (10 + max(facts.seconds for facts in best))
            others = bounds(workshop, task, folder, limit)
        return [
            rank_of(rank, facts, [run[index] for run in others])
            for index, (rank, facts) in enumerate(zip(ranks.ranks, best))
        ]


def is_contested(facts: Facts) -> bool:
    """Whether the answer to a question of the script's depended on time."""
    return facts.library.get("contested", 0) > 0


def bounds(workshop: Workshop, task: Task, folder: str, limit: float) -> list[list[Facts]]:
    """The runs on a faster and on a slower GPU; what they print is of no interest."""

    def run(events: str) -> list[Facts]:
        with open(os.devnull, "w") as nowhere:
            return workshop.run(replace(task, events=events), Unseen(f"{folder}/{events}", nowhere), limit)

    if task.ranks.launched:
        # All ranks must make the same runs in the same order.
        return [run("fast"), run("slow")]
    return workshop.each(run, ["fast", "slow"])


def rank_of(rank: int, facts: Facts, others: Sequence[Facts]) -> Rank:
    """One rank's numbers; `others` are the runs that bound it."""
    counted = facts.library
    host = counted.get("host_peak_bytes", {})
    found = Rank(
        rank, facts.snapshot,
        unwritten=counted.get("unwritten", []),
        estimated_workspaces=counted.get("estimated_workspaces", 0),
        estimated_convolutions=counted.get("estimated", []),
        workspaces_of_others=counted.get("workspaces_of_others", 0),
        pinned_peak_bytes=host.get("pinned"),
        managed_on_host_peak_bytes=host.get("managed_on_host"),
        managed_on_device_peak_bytes=host.get("managed_on_device"),
        host_pace=counted.get("host_pace"),
        seconds=round(facts.seconds, 2),
        **{name: getattr(facts, name) for name in SAME},
    )
    return with_peaks(found, facts, others) if facts.requests else found


# What a rank's numbers have as the facts have it.
SAME = [
    "requests", "error", "device", "device_memory_bytes", "steps", "step_seconds", "step_end_us", "oom_step",
    "unknown_reads", "host_memory_bytes", "own_runtimes", "frameworks",
]


def with_peaks(rank: Rank, facts: Facts, others: Sequence[Facts]) -> Rank:
    """The same with what the simulator says of a rank's snapshot, and of those that bound it."""
    # Nothing is known of what a script that failed would have asked for. What came after memory ran out is another
    # program's doing under another allocator.
    is_whole = facts.oom_step is None and facts.error is None
    best = simulator.held(facts, simulator.ALLOCATORS if is_whole else [])
    complete = [each for each in others if each.requests]
    reserved = [best.reserved, *(simulator.held(each).reserved for each in complete)]
    return replace(
        rank, reserved_peak_bytes=best.reserved, reserved_peak_bytes_low=min(reserved),
        reserved_peak_bytes_high=max(reserved), active_peak_bytes=best.active,
        open_ends=len(others) - len(complete), allocators=best.needs,
    )


def failed(rank: int, text: str) -> Rank:
    """The numbers of a rank that has none, and why."""
    return rank_of(rank, Facts(error=text), [])
