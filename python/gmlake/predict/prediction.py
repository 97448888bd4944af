"""The prediction: what the ranks of one configuration hold, each as an interval with a best guess.

When memory that another stream has used becomes free again depends on how far the GPU is. Events
of the virtual GPU complete by a clock; the best guess. If that run says that its answers depended
on the clock, two more runs, on a GPU 3 times as fast as estimated and on one 1.4 times as slow, bound
it. If values that only a kernel could know decided a size or a condition, runs with other values do.
What comes of all this is put together in `interval`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from . import interval, simulator
from .facts import ENDED_BY_SIGNAL, Facts, Need, Rank
from .order import ASSUMED, COMPUTED, INTEGERS
from .outputs import Unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .order import Order, Task
    from .run import Files, Workshop

# A run that bounds may take so much longer than the best guess: a program may wait for the GPU
# in a way that never ends on another one.
PATIENCE = 5

# What tokens may choose, of which two bound the answer. Ranks that run together need some choice: without tokens, one
# may wait for another for ever. That of a router that was not trained: of the recording `h100-experts` live memory is
# within 0.3 % with it, and within 1.7 % with `balanced`.
ROUTINGS = ["balanced", "skew:2", "W4"]
TOGETHER = "skew:2"


def predict(workshop: Workshop, task: Task, files: Files) -> list[Rank]:
    """Every rank's numbers, as they stand in the JSON, in the order of the ranks."""
    ranks, is_interval = task.ranks, task.events == "interval"
    if ranks.together and task.order.routing is None:
        task = replace(task, order=replace(task.order, routing=TOGETHER))
    best = workshop.run(replace(task, events="clock") if is_interval else task, files)
    if any(map(is_doomed, best)) and not ranks.launched:
        task, best = otherwise_run(workshop, task, files, best)
    with tempfile.TemporaryDirectory(dir=workshop.folder) as folder:
        others = Bounds([], [])
        if is_interval:
            others = bounds(workshop, task, best, folder)
        found = []
        for index, (rank, facts) in enumerate(zip(ranks.ranks, best)):
            found += processes_of(rank, facts, Bounds(*([run[index] for run in runs] for runs in others)))
        return found


def processes_of(rank: int, facts: Facts, others: Bounds) -> list[Rank]:
    """The numbers of a rank's process and of its children that used the GPU; of these alone where it did not itself."""
    found = [] if facts.processes and not facts.requests and not facts.error else [rank_of(rank, facts, others)]
    for number, child in enumerate(facts.processes):
        own = Bounds(*([run.processes[number] for run in runs if len(run.processes) > number] for runs in others))
        found.append(replace(rank_of(rank, child, own), process=number + 1, command=child.command))
    return found


def is_doomed(facts: Facts) -> bool:
    """Whether a process failed that had read values which nobody computed."""
    failed = (each for each in [facts, *facts.processes] if each.error is not None and each.ended not in ENDED_BY_SIGNAL)
    return any(each.oom_step is None and each.unknown_reads for each in failed)


def otherwise_run(workshop: Workshop, task: Task, files: Files, failed: list[Facts]) -> tuple[Task, list[Facts]]:
    """The task with values with which its script comes to its end, and what it holds then; otherwise as it failed."""
    events = "clock" if task.events == "interval" else task.events
    for assume in ASSUMED:
        if assume == task.order.assume:
            continue
        print(f"gmlake: the script failed after it had read unknown values as {task.order.assume}; again with {assume}",
              file=sys.stderr, flush=True)
        other = replace(task, order=replace(task.order, assume=assume))
        folder = tempfile.mkdtemp(dir=workshop.folder)
        with open(os.devnull, "w") as nowhere:
            unseen = Unseen(f"{folder}/again", nowhere)
            found = workshop.run(replace(other, events=events), unseen)
        if not any(each.error for facts in found for each in [facts, *facts.processes]):
            for rank, facts in zip(task.ranks.ranks, found):
                for each in [facts, *facts.processes]:
                    move(each, unseen.stem(rank), files.stem(rank))
            return other, found
    return task, failed


def move(facts: Facts, stem: str, to: str) -> None:
    """Puts a snapshot where those of the first run are."""
    if facts.snapshot and os.path.exists(facts.snapshot):
        place = to + facts.snapshot.removeprefix(stem)
        shutil.copyfile(facts.snapshot, place)
        facts.snapshot = place


class Bounds(NamedTuple):
    """Runs that bound the best guess: on other GPUs, and with other values."""

    clock: list[Any]
    values: list[Any]


def is_contested(facts: Facts) -> bool:
    """Whether the answer to a question of the script's depended on time. Where memory runs out in a backward pass, the
    thread that it ran out on gives back what it held while the script goes on."""
    every = [facts, *facts.processes]
    return any(each.library.get("contested", 0) > 0 or each.oom_step is not None and each.error is None for each in every)


def is_decided(facts: Facts) -> bool:
    """Whether values that are not sure may have decided what was requested."""
    every = [facts, *facts.processes]
    return facts.error is None and any(any(interval.deciders(each)) for each in every)


def bounds(workshop: Workshop, task: Task, best: Sequence[Facts], folder: str) -> Bounds:
    """The runs on a faster and on a slower GPU, and those with other values; what they print is of no interest."""
    limit = PATIENCE * (10 + max(facts.seconds for facts in best))

    def run(other: Task) -> list[Facts]:
        name = f"{folder}/{other.events}-{other.order.assume}-{other.order.routing}".replace(":", "")
        with open(os.devnull, "w") as nowhere:
            return workshop.run(other, Unseen(name, nowhere), limit)

    clock, values = [], []
    if task.ranks.launched or any(map(is_contested, best)):
        clock = [replace(task, events=events) for events in ("fast", "slow")]
    if not task.ranks.launched and any(map(is_decided, best)):
        values = [replace(task, order=order, events="clock") for order in otherwise(task.order, best)]
    if task.ranks.launched:
        # All ranks must make the same runs in the same order.
        return Bounds([run(each) for each in clock], [])
    runs = workshop.each(run, [*clock, *values]) if clock or values else []
    return Bounds(runs[: len(clock)], runs[len(clock):])


def otherwise(order: Order, best: Sequence[Facts]) -> list[Order]:
    """The order with other values: where tokens choose experts, with other choices.

    The ends of what the host computed are those of the same program with nothing computed.
    """
    plain = replace(order, values=INTEGERS) if order.values in COMPUTED else order
    others: list[Order]
    if any(each.routed for facts in best for each in [facts, *facts.processes]):
        others = [replace(plain, routing=each) for each in ROUTINGS]
        return [each for each in others if each != order][:3 if plain != order else 2]
    return [each for each in (replace(plain, assume=each) for each in ASSUMED) if each != order]


def rank_of(rank: int, facts: Facts, others: Bounds) -> Rank:
    """One rank's numbers; `others` are the runs that bound it."""
    counted = facts.library
    host = counted.get("host_peak_bytes", {})
    beside = counted.get("beside")
    found = Rank(
        rank, facts.snapshot,
        beside_pytorch_bytes=beside and beside["bytes"],
        beside_pytorch_bytes_low=beside and beside["low_bytes"],
        beside_pytorch_bytes_high=beside and beside["high_bytes"],
        beside_pytorch=beside["parts"] if beside else [],
        is_beside_measured=beside is None or beside["is_measured"],
        visible_devices=counted.get("visible_devices"), visible_gpus=counted.get("visible"),
        visible_of=counted.get("devices"),
        unwritten=counted.get("unwritten", []),
        estimated_workspaces=counted.get("estimated_kinds", {}),
        estimated=counted.get("estimated", []),
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
    "requests", "ended", "error", "gpus", "gpu_use_s", "allocator", "device", "device_memory_bytes", "steps", "step_seconds",
    "step_end_us", "oom_step", "unknown_reads", "computed_reads", "assume", "timed_loop", "host_memory_bytes",
    "own_runtimes", "frameworks",
]


def with_peaks(rank: Rank, facts: Facts, others: Bounds) -> Rank:
    """The same with what the simulator says of a rank's snapshot, and of those that bound it."""
    # Nothing is known of what a script that failed would have asked for. What came after memory ran out is another
    # program's doing under another allocator.
    is_whole = facts.oom_step is None and facts.error is None
    names = simulator.allocators(facts.allocator) if is_whole else []
    best = simulator.held(facts, names)
    bounds = interval.Peaks(peaks_of(others.clock), simulator.played(facts), peaks_of(others.values))
    known = bounds if is_whole else bounds._replace(drawn=[], values=[])
    shares = interval.shares(best.reserved, best.active, facts, known) if facts.error is None else []
    needs = with_upper_cards(best.needs, interval.uppermost(best.reserved, bounds) if is_whole else [])
    for path in facts.drawings:
        os.unlink(path)
    low, high = interval.ends(best.reserved, shares)
    are_values_open = facts.error is None and (facts.unknown_reads is None or is_decided(facts))
    is_timed = facts.timed_loop is not None
    matter = {"clock": is_whole and (is_timed or is_contested(facts)), "values": are_values_open,
              "workspaces": facts.oom_step is not None and facts.error is None and bool(rank.estimated_workspaces)}
    differs = any(peak.facts.requests != facts.requests for peak in bounds.values)
    has_ends = next(interval.open_ended(facts, differs), None) is None
    has_ends_of = {"values": has_ends, "clock": not is_timed}
    bounded = {share.source for share in shares if has_ends_of.get(share.source, True)}
    return replace(
        rank, reserved_peak_bytes=best.reserved, reserved_peak_bytes_low=low,
        reserved_peak_bytes_high=high, active_peak_bytes=best.active,
        open_ends=sum(map(len, others)) - len(bounds.clock) - len(bounds.values), allocators=needs, interval=shares,
        unbounded=[source for source, matters in matter.items() if matters and source not in bounded],
    )


def peaks_of(runs: Sequence[Facts]) -> list[simulator.Peak]:
    """What the runs held, of those that came to their ends."""
    whole = (each for each in runs if each.requests and each.error is None)
    return [simulator.Peak(simulator.held(each).reserved, each) for each in whole]


def with_upper_cards(needs: dict[str, Need], uppermost: Sequence[Facts]) -> dict[str, Need]:
    """The same with the smallest card that also serves the upper end of the interval, by the runs that need most."""
    found = [simulator.cards(each, list(needs)) for each in uppermost]
    answers = {}
    for name, need in needs.items():
        card = need.smallest_card
        serving = [cards.get(name, []) for cards in found]
        if not all(card in cards for cards in serving):
            card = next((each for each in serving[0] if all(each in cards for cards in serving)), None)
        answers[name] = replace(need, smallest_card_high=card)
    return answers


def failed(rank: int, text: str) -> Rank:
    """The numbers of a rank that has none, and why."""
    return rank_of(rank, Facts(error=text), Bounds([], []))
