"""The programs of `pinned.py`, run on PyTorch's own allocator: python pinned_cell.py FOLDER MINOR FIRST COUNT

Each runs in a process of its own, since PyTorch keeps its settings and its thread. A line of JSON for each goes to
standard output: the steps, and after every step what PyTorch and the driver say. From 2.14 on the folder gets a
recording of each.
"""

import json
import os
import pickle
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from gmlake.predict import library

MIB = 1 << 20
EDGES = [1, 2, 512, 4096, MIB, 2 * MIB, 4 * MIB, 64 * MIB]
STREAMS = 3
FIELDS = ["current", "peak", "allocated", "freed"]
# What PyTorch calls its counters, from 2.10 on and before.
STATS = ["active_requests", "active_bytes", "allocations", "allocated_bytes"]
STATS_TO_2_9 = ["allocation", "allocated_bytes", "segment", "reserved_bytes"]


def main(folder, minor, first, count):
    failed = []
    for seed in range(first, first + count):
        child = os.fork()
        if not child:
            print(json.dumps(run(folder, minor, seed)), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            failed.append(seed)
    if failed:
        sys.exit(f"programs {failed} failed")


def run(folder, minor, seed):
    own = random.Random(seed)
    settings = choose_settings(own, minor)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
    largest = 4 * MIB if "register" in settings else 256 * MIB
    sizes = [choose_size(own, largest) for _ in range(own.randrange(2, 8))]
    cell = Cell(minor, "background" in settings)
    if minor >= 14:
        torch.cuda.memory._record_memory_history(context=None, record_pinned_host_memory=True)
    steps, seen = [], []
    for _ in range(own.choice([50, 100, 200])):
        step = choose_step(own, sizes, largest, cell)
        steps.append(" ".join(map(str, step)))
        seen.append(cell.do(*step))
    if minor >= 14:
        with open(f"{folder}/{seed}.pickle", "wb") as file:
            pickle.dump(torch.cuda.memory._snapshot(), file)
    return {"seed": seed, "settings": settings, "steps": steps, "seen": seen}


class Cell:
    """A program in the making."""

    def __init__(self, minor, has_thread):
        self.names = STATS_TO_2_9 if minor < 10 else STATS
        self.has_stats, self.has_thread = minor >= 7, has_thread
        self.streams = [torch.cuda.Stream() for _ in range(STREAMS)]
        self.target = torch.empty(1, dtype=torch.uint8, device="cuda")
        self.count, self.live, self.is_idle = 0, {}, True

    def do(self, kind, *numbers):
        """Takes a step, and says what PyTorch and the driver hold then."""
        address = getattr(self, kind)(*numbers)
        self.is_idle = kind == "done" and not numbers
        if self.has_thread:
            time.sleep(0.01)
        seen = {"address": address, "driver": library.report()["host_pinned"]}
        if self.has_stats:
            stats = torch.cuda.host_memory_stats()
            seen |= {name: [stats[f"{said}.{field}"] for field in FIELDS] for name, said in zip(STATS, self.names)}
        return seen

    def alloc(self, size):
        memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.live[self.count] = memory
        self.count += 1
        return memory.data_ptr()

    def use(self, which, stream):
        with torch.cuda.stream(self.streams[stream]):
            self.target.copy_(self.live[which][:1], non_blocking=True)

    def free(self, which):
        del self.live[which]

    def done(self, stream=None):
        (torch.cuda if stream is None else self.streams[stream]).synchronize()

    def empty(self):
        torch._C._host_emptyCache()


def choose_settings(own, minor):
    parts = []
    if minor >= 10 and own.random() < 0.25:  # before, requests race with the thread
        parts.append("pinned_use_background_threads:True")
    if own.random() < 0.2:
        parts.append("pinned_use_cuda_host_register:True,pinned_num_register_threads:2")
    if minor >= 10 and own.random() < 0.2:
        parts.append(f"pinned_reserve_segment_size_mb:{own.choice([1, 16, 300])}")
    for name in ("round_threshold", "cached_size"):
        if minor >= 13 and own.random() < 0.5:
            parts.append(f"pinned_max_{name}_mb:{own.choice([0, 1, 2, 64])}")
    return ",".join(parts)


def choose_size(own, largest):
    size = own.choice(EDGES) + own.choice([-1, 0, 1]) if own.random() < 0.4 else int(2 ** own.uniform(0, 28))
    return min(max(size, 1), largest)


def choose_step(own, sizes, largest, cell):
    kind = own.random()
    if kind < 0.4 or not cell.live:
        size = own.choice(sizes) if own.random() < 0.7 else int(own.choice(sizes) * own.uniform(0.5, 1.5)) + 1
        return "alloc", min(size, largest)
    which = own.choice(list(cell.live))
    if kind < 0.6:
        return "use", which, own.randrange(STREAMS)
    if kind < 0.9:
        return "free", which
    # While a thread looks at events, another that empties the cache passes over the one that it holds.
    can_empty = cell.is_idle or not cell.has_thread
    if kind < 0.96 and not (cell.is_idle and cell.has_thread):
        return "done", own.randrange(STREAMS)
    return ("empty",) if kind > 0.98 and can_empty or cell.is_idle else ("done",)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
