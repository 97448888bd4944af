"""The cells: random scripts, run on PyTorch's own allocator, each recorded by PyTorch itself.

    python cells.py FOLDER FIRST COUNT

runs in a process on the virtual GPU and leaves NUMBER.pickle and NUMBER.json for each script: the
recording, and the counters at its end. Up to 2.11 a recording does not say of which pool an entry
is; the script knows, and says it as later versions do.
"""

import gc
import json
import os
import pickle
import sys

import torch

from script import script

VERSION = int(torch.__version__.split(".")[1])
COUNTERS = ["reserved_bytes", "active_bytes", "allocated_bytes", "requested_bytes"]
DEFAULT = (0, 0)


class Cell:
    """One run of a script."""

    def __init__(self, own, streams):
        self.script, self.streams = own, streams
        self.live, self.pools, self.inside = [], [], None  # live: (tensor, pool)
        self.served = []  # (address, pool) of each allocation

    def run(self):
        for step in self.script.steps:
            getattr(self, step[0])(*step[1:])
        self.leave_pool()

    def end(self):
        """Gives everything back."""
        self.leave_pool()
        self.live.clear()
        self.pools.clear()

    def malloc(self, size, stream):
        pool = tuple(self.inside[0].id) if self.inside else DEFAULT
        try:
            with torch.cuda.stream(self.streams[stream]):
                tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            self.served.append((None, pool))
            return
        self.live.append((tensor, self.inside and self.inside[0]))
        self.served.append((tensor.data_ptr(), pool))

    def free(self, which):
        if self.live:
            self.live.pop(int(which * len(self.live)))

    def free_used(self, which, stream):
        """Frees a tensor that another stream has used."""
        if self.live:
            self.live[int(which * len(self.live))][0].record_stream(self.streams[stream])
            self.free(which)

    def synchronize(self):
        torch.cuda.synchronize()

    def between(self, call):
        """Makes a call between a malloc and a free, so that what it gives back is told from what they do."""
        self.malloc(512, 0)
        before = len(self.live)
        call()
        if self.served[-1][0] is not None:
            assert len(self.live) == before
            self.live.pop()

    def empty_cache(self):
        self.between(torch.cuda.empty_cache)

    def enter_pool(self, which):
        if self.inside:
            return
        at = int(which * 3)
        if at >= len(self.pools):
            self.pools.append(torch.cuda.MemPool())
            at = -1
        pool = self.pools[at]
        context = torch.cuda.use_mem_pool(pool)
        context.__enter__()
        self.inside = (pool, context)

    def leave_pool(self):
        if self.inside:
            self.inside[1].__exit__(None, None, None)
            self.inside = None

    def drop_pool(self, which):
        """Drops a pool in which nothing is live; PyTorch 2.11 fails where something is."""
        used = [id(pool) for _, pool in self.live]
        empty = [at for at, pool in enumerate(self.pools) if id(pool) not in used]
        if empty and not self.inside:
            at = empty[int(which * len(empty))]
            self.between(lambda: self.pools.pop(at))


def configure(settings):
    torch.cuda.memory._set_allocator_settings(settings)


def clean():
    """Nothing is held any more."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.empty_cache()


def counters():
    found = torch.cuda.memory_stats()
    own = {f"{name}.{what}": found[f"{name}.all.{what}"] for name in COUNTERS for what in ("peak", "current")}
    return own | {name: found[name] for name in ("num_alloc_retries", "num_ooms")}


def one(number, folder, streams, memory):
    own = script(number, VERSION, memory)
    clean()
    assert torch.cuda.memory_reserved() == 0, "the last script left something"
    configure(own.settings)
    torch.cuda.set_per_process_memory_fraction(own.fraction)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = counters()
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=1 << 22)
    cell = Cell(own, streams)
    cell.run()
    snapshot, after = torch.cuda.memory._snapshot(), counters()
    torch.cuda.memory._record_memory_history(enabled=None)
    for name in ("num_alloc_retries", "num_ooms"):
        after[name] -= before[name]
    snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = own.settings
    say_pools(snapshot["device_traces"][0], cell.served)
    with open(f"{folder}/{number}.pickle", "wb") as file:
        pickle.dump(snapshot, file)
    with open(f"{folder}/{number}.json", "w") as file:
        json.dump({"settings": own.settings, "fraction": own.fraction, "counters": after}, file)
    cell.end()


def say_pools(entries, served):
    """Says of which pool each entry is, where PyTorch does not, from what the script asked for."""
    for entry, pool in zip(requests(entries), matched(entries, served)):
        if VERSION < 12 or entry["action"] == "oom":
            entry["pool_id"] = pool
    if VERSION < 12:
        say_pools_of_segments(entries)


def requests(entries):
    return (entry for entry in entries if entry["action"] in ("alloc", "oom"))


def matched(entries, served):
    """The pool of each request; PyTorch makes some of its own, in the default one."""
    served = iter([*served, (0, DEFAULT)])
    expected = next(served)
    for entry in requests(entries):
        if (None if entry["action"] == "oom" else entry["addr"]) == expected[0]:
            yield expected[1]
            expected = next(served)
        else:
            yield DEFAULT


def say_pools_of_segments(entries):
    """A segment is of the pool of the request that it was made for."""
    segments, fresh = {}, []
    for entry in entries:
        action = entry["action"]
        if action in ("segment_alloc", "segment_map"):
            fresh.append(entry)
        elif action in ("alloc", "oom"):
            for part in fresh:
                part["pool_id"] = entry["pool_id"]
                segments[part["addr"]] = (part["addr"] + part["size"], entry["pool_id"])
            fresh.clear()
        elif action in ("segment_free", "segment_unmap"):
            around = [pool for at, (end, pool) in segments.items() if at <= entry["addr"] < end]
            entry["pool_id"] = around[0] if around else DEFAULT
        else:
            entry.setdefault("pool_id", DEFAULT)
    assert not fresh, "memory that nothing asked for"


def main(folder, first, count):
    memory = torch.cuda.get_device_properties(0).total_memory
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    for number in range(first, first + count):
        one(number, folder, streams, memory)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
