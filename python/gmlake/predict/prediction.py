"""The prediction: what the ranks of one configuration hold, each as an interval with a best guess.

When memory that another stream has used becomes free again depends on how far the GPU is. Events
of the virtual GPU complete by a clock; the best guess. If that run says that its answers depended
on the clock, two more runs, on a GPU 3 times as fast as estimated and on one 1.4 times as slow, are
the ends of the interval.
"""

import os
import tempfile

from . import simulator


# A run that bounds may take so much longer than the best guess: a program may wait for the GPU
# in a way that never ends on another one.
PATIENCE = 5


def predict(workshop, order, ranks, events, stem, output):
    """Every rank's numbers, as they stand in the JSON, in the order of the ranks.

    `stem(rank)` says where its snapshot is to be; `output(rank)` takes what the script prints.
    """
    first = "clock" if events == "interval" else events
    best = workshop.run(order, ranks, first, stem, output)
    with tempfile.TemporaryDirectory(dir=workshop.folder) as folder:
        others = []
        if events == "interval" and (ranks.launched or any(map(is_contested, best))):
            limit = PATIENCE * (10 + max(facts["seconds"] for facts in best))
            others = bounds(workshop, order, ranks, folder, limit)
        return [
            rank_of(rank, facts, [run[index] for run in others])
            for index, (rank, facts) in enumerate(zip(ranks.ranks, best))
        ]


def is_contested(facts):
    """Whether the answer to a question of the script's depended on time."""
    return facts.get("library", {}).get("contested", 0) > 0


def bounds(workshop, order, ranks, folder, limit):
    """The runs on a faster and on a slower GPU; what they print is of no interest."""
    def run(events):
        with open(os.devnull, "w") as nowhere:
            def stem(rank):
                return f"{folder}/{events}.{rank}"

            return workshop.run(order, ranks, events, stem, lambda _: nowhere, limit)

    if ranks.launched:
        # All ranks must make the same runs in the same order.
        return [run("fast"), run("slow")]
    return workshop.each(run, ["fast", "slow"])


def rank_of(rank, facts, others):
    """One rank's numbers."""
    answer = {"rank": rank, "snapshot": facts["snapshot"]}
    answer.update(dict.fromkeys(PEAKS), requests=facts["requests"], error=facts["error"])
    for name in FACTS:
        answer[name] = facts.get(name)
    counted = facts.get("library", {})
    answer.update(
        unwritten=counted.get("unwritten", []),  # functions that the virtual GPU does not have
        estimated_workspaces=counted.get("estimated_workspaces", 0),  # kinds of convolution
        # Of the real machine, not of this one.
        **{f"{kind}_peak_bytes": counted.get("host_peak_bytes", {}).get(kind) for kind in HOST_KINDS},
        host_pace=counted.get("host_pace"),  # seconds of a real GPU's host for one here
        seconds=round(facts["seconds"], 2), open_ends=0, allocators={},
    )
    if facts["requests"]:
        answer.update(held(facts, others))
    return answer


FACTS = [
    "device", "device_memory_bytes", "steps", "step_seconds", "step_end_us", "oom_step", "unknown_reads",
    "host_memory_bytes", "own_runtimes", "frameworks",
]
HOST_KINDS = ["pinned", "managed_on_host", "managed_on_device"]
PEAKS = [
    "reserved_peak_bytes", "reserved_peak_bytes_low", "reserved_peak_bytes_high",
    "active_peak_bytes",
]


def held(facts, others):
    """What the simulator says of a rank's snapshot, and of those that bound it."""
    peaks = simulator.peaks(facts)
    complete = [each for each in others if each["requests"]]
    runs = [peaks, *map(simulator.peaks, complete)]
    reserved = [run["reserved"] for run in runs]
    values = [peaks["reserved"], min(reserved), max(reserved), peaks["active"]]
    answer = {**dict(zip(PEAKS, values)), "open_ends": len(others) - len(complete)}
    if facts["oom_step"] is None and facts["error"] is None:
        # Nothing is known of what a script that failed would have asked for. What came after memory ran out is another
        # program's doing under another allocator.
        answer["allocators"] = simulator.needs(facts, peaks["device"])
    return answer


def failed(rank, text):
    """The numbers of a rank that has none, and why."""
    return rank_of(rank, {"snapshot": None, "requests": 0, "error": text, "seconds": 0}, [])
