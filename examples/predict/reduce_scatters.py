"""Reduce-scatters: how long they take next to other kernels, out of a recording of FSDP1.

    python reduce_scatters.py fsdp1-opt-13b-LR-w4.r0.pickle.xz

FSDP1's rate limiter lets the host wait until a layer's gradients are there. The buffer of their reduce-scatter is free
again when that is done, which PyTorch asks at each allocation: so the time from the end of the wait is known between
two allocations. Prints the deciles of both bounds, in milliseconds.
"""

import lzma
import pickle
import statistics
import sys

WAIT_US = 30_000  # the host waited, and not for something small


def bounds(entries, size):
    """For each buffer of `size` bytes: when it was last known to be in use and first to be free, after the wait."""
    freed, wait_end, waited, last = {}, None, 0, 0
    for before, entry in zip(entries, entries[1:]):
        now, action = entry["time_us"], entry["action"]
        if now - before["time_us"] > 10_000:
            wait_end, waited = now, now - before["time_us"]
        if action == "free_requested" and entry["size"] == size:
            freed[entry["addr"]] = now
        elif action == "free_completed" and entry["size"] == size:
            pending = now - freed.pop(entry["addr"], now)
            if wait_end and waited > WAIT_US and pending > 20_000 and now - wait_end < 20_000:
                yield last - wait_end, now - wait_end
        elif action == "alloc":
            last = now


def main(path):
    with lzma.open(path) as file:
        entries = max(pickle.load(file)["device_traces"], key=len)
    sizes = [entry["size"] for entry in entries if entry["action"] == "free_completed" and entry["stream"]]
    found = list(bounds(entries, statistics.mode(size for size in sizes if size > 1 << 29)))
    print(f"{len(found)} reduce-scatters")
    for name, times in zip(("longer than", "shorter than"), zip(*found)):
        deciles = " ".join(f"{time / 1000:.2f}" for time in statistics.quantiles(times, n=10))
        print(f"{name:13} {deciles}, at most {max(times) / 1000:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
