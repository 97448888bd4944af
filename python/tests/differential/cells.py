"""The cells: random scripts, run on PyTorch's own allocator, each recorded by PyTorch itself.

    python cells.py FOLDER FIRST COUNT

runs in a process on the virtual GPU and leaves NUMBER.pickle and NUMBER.json for each script: the
recording, and the counters at its end. Up to 2.11 a recording does not say of which pool an entry
is; the script knows, and says it as later versions do.
"""

import inspect
import json
import os
import pickle
import sys
import warnings

import torch
from script import script

VERSION = int(torch.__version__.split(".")[1])
COUNTERS = ["reserved_bytes", "active_bytes", "allocated_bytes", "requested_bytes"]
DEFAULT = (0, 0)
CAPTURED = 1  # the stream on which graphs are captured
# The fraction in the settings that the process began with; later ones do not change it.
INITIAL = float(os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ":").split(":")[1] or 0)
FORGETS_LATE = VERSION < 11  # a pool with use_on_oom is still asked when it is gone, which fails an assertion
HAS_POOLS = hasattr(torch.cuda, "MemPool")
POOL_OPTIONS = inspect.signature(torch.cuda.MemPool.__init__).parameters if HAS_POOLS else ()


class Cell:
    """One run of a script."""

    def __init__(self, own, streams):
        self.script, self.streams = own, streams
        self.live = []  # (tensor, the pool that it is in)
        self.pools, self.graphs = [], []
        self.serving = set()  # pools that other requests may use, too
        self.whole = []  # ids of pools that are not split
        self.inside = None  # a pool, or a graph that is captured
        self.context = None  # what ends that
        self.snapshots = []  # for each snapshot, None or the entry that it stands for
        self.served = []  # (address, pool id) of each request; the address is None where memory ran out

    def run(self):
        for step in self.script.steps:
            getattr(self, step[0])(*step[1:])
        self.leave()

    def end(self):
        """Gives everything back."""
        self.live.clear()
        self.pools.clear()
        self.graphs.clear()

    def is_capturing(self):
        return isinstance(self.inside, torch.cuda.CUDAGraph)

    def pool_id(self):
        if self.is_capturing():
            return None  # not known before the end of the capture
        return tuple(self.inside.id) if self.inside else DEFAULT

    def malloc(self, size, stream):
        stream = CAPTURED if self.is_capturing() else stream
        try:
            with torch.cuda.stream(self.streams[stream]):
                tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            self.served.append((None, self.pool_id()))
            if "preemptively rejected" in str(error):
                self.note_rejection(size, stream)
            return False
        self.live.append((tensor, self.inside))
        self.served.append((tensor.data_ptr(), self.pool_id()))
        return True

    def note_rejection(self, size, stream):
        """PyTorch records no rejection; the entry of a snapshot, which it does record, stands for one."""
        handle = self.streams[stream].cuda_stream
        self.snapshots.append({"action": "oom", "device_free": 0, "size": size, "stream": handle})
        torch.cuda.memory_snapshot()

    def free(self, which):
        if self.live:
            self.live.pop(int(which * len(self.live)))

    def free_used(self, which, stream):
        """Frees a tensor that another stream has used."""
        if self.live:
            tensor, _ = self.live[int(which * len(self.live))]
            tensor.record_stream(self.streams[stream])
            del tensor
            self.free(which)

    def synchronize(self):
        if not self.is_capturing():
            torch.cuda.synchronize()

    def between(self, call):
        """Makes a call between a malloc and a free, so that what it gives back is not mixed with what they do."""
        if self.inside and VERSION < 6:
            return  # fails an assertion
        if not self.is_capturing() and self.malloc(512, 0):
            call()
            self.live.pop()

    def empty_cache(self):
        self.between(torch.cuda.empty_cache)

    def enter_pool(self, which, options):
        if self.inside or not HAS_POOLS:
            return
        if VERSION == 7 and "expandable_segments:True" in self.script.settings:
            return  # PyTorch refuses such a request
        at = int(which * 3)
        if at >= len(self.pools):
            self.pools.append(self.new_pool([name for name in options if name in POOL_OPTIONS]))
            at = -1
        self.inside = self.pools[at]
        self.context = torch.cuda.use_mem_pool(self.inside)
        self.context.__enter__()

    def new_pool(self, options):
        pool = torch.cuda.MemPool(**dict.fromkeys(options, True))
        if "use_on_oom" in options:
            self.serving.add(id(pool))
        if "no_split" in options:
            self.whole.append(tuple(pool.id))
        return pool

    def begin_capture(self, which):
        """Captures a graph, in a pool of its own or in that of the last one."""
        if self.inside:
            return
        # It takes two small tensors for the random numbers, and must not fail halfway.
        kept = len(self.live)
        has_room = all(self.malloc(512, stream) for stream in (0, 0, CAPTURED, CAPTURED))
        del self.live[kept:]
        if not has_room:
            return
        torch.cuda.synchronize()
        self.context = torch.cuda.stream(self.streams[CAPTURED])
        self.context.__enter__()
        graph = torch.cuda.CUDAGraph()
        pool = self.graphs[-1].pool() if self.graphs and which < 0.3 else None
        graph.capture_begin(*([pool] if pool else []), capture_error_mode="relaxed")
        self.inside = graph
        self.graphs.append(graph)

    def leave(self):
        if self.is_capturing():
            self.inside.capture_end()
            pool = tuple(self.inside.pool())
            self.served = [(address, known or pool) for address, known in self.served]
        if self.context:
            self.context.__exit__(None, None, None)
        self.inside = self.context = None

    def drop_pool(self, which):
        self.drop(self.pools, which)

    def drop_graph(self, which):
        self.drop(self.graphs, which)

    def drop(self, owners, which):
        """Drops a pool or a graph whose memory is free; PyTorch 2.11 fails if a pool's is not."""
        used = [id(owner) for _, owner in self.live]
        empty = [at for at, owner in enumerate(owners) if id(owner) not in used and not self.has_served(owner)]
        if empty and not self.inside:
            at = empty[int(which * len(empty))]
            self.serving.discard(id(owners[at]))
            self.between(lambda: owners.pop(at))

    def has_served(self, owner):
        """Whether memory of a pool is in use that was not asked of it; or the pool must not be dropped at all."""
        if id(owner) not in self.serving:
            return False
        if FORGETS_LATE:
            return True
        self.snapshots.append(None)
        own = [part for part in torch.cuda.memory_snapshot() if tuple(part["segment_pool_id"]) == tuple(owner.id)]
        return any(part["active_size"] for part in own)


def configure(settings):
    torch.cuda.memory._set_allocator_settings(settings)


def counters():
    found = torch.cuda.memory_stats()
    own = {f"{name}.{what}": found[f"{name}.all.{what}"] for name in COUNTERS for what in ("peak", "current")}
    return own | {name: found[name] for name in ("num_alloc_retries", "num_ooms")}


def one(number, folder, streams, memory, segment, reserve):
    own = script(number, VERSION, memory, segment, reserve, INITIAL)
    configure(own.settings)
    if own.calls:
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
    say_rejections(snapshot["device_traces"][0], cell.snapshots)
    say_pools(snapshot["device_traces"][0], cell.served)
    with open(f"{folder}/{number}.pickle", "wb") as file:
        pickle.dump(snapshot, file)
    with open(f"{folder}/{number}.json", "w") as file:
        found = {"settings": own.settings, "fraction": own.fraction if own.calls else None}
        json.dump(found | {"counters": after, "no_split": cell.whole}, file)
    cell.end()


def say_rejections(entries, snapshots):
    """Puts rejections where snapshots stand for them."""
    found = (entry for entry in entries if entry["action"] == "snapshot")
    for entry, rejection in zip(found, snapshots):
        if rejection:
            entry.update(rejection)


def say_pools(entries, served):
    """Says of which pool each entry is, where PyTorch does not, from what the script asked for.

    The pool of a request is the one that was asked, even if another served it (`use_on_oom`).
    """
    for entry, pool in zip(requests(entries), matched(entries, served)):
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
                low, high = part["addr"], part["addr"] + part["size"]
                segments = {at: own for at, own in segments.items() if own[0] <= low or at >= high}
                segments[low] = (high, entry["pool_id"])
            fresh.clear()
        elif action in ("segment_free", "segment_unmap"):
            around = [pool for at, (end, pool) in segments.items() if at <= entry["addr"] < end]
            entry["pool_id"] = around[0] if around else DEFAULT
        else:
            entry.setdefault("pool_id", DEFAULT)
    assert not fresh, "memory that nothing asked for"


def main(folder, first, count):
    """Runs the scripts, each in a process of its own: PyTorch keeps some settings, pools and ranges of addresses."""
    failed = []
    for number in range(first, first + count):
        child = os.fork()
        if not child:
            run(folder, number)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            failed.append(number)
    if failed:
        sys.exit(f"scripts {failed} failed")


def run(folder, number):
    memory = torch.cuda.get_device_properties(0).total_memory
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    segment = [20, 12, 32][number % 3] if VERSION >= 11 else 20
    # Where memory is short, addresses may be taken of which the recording says nothing.
    reserve = [1.125, 0.3, "1G", 1.125][number // 3 % 4] if memory > 8 << 30 else 1.125
    one(number, folder, streams, memory, segment, reserve)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], *map(int, sys.argv[2:]))
