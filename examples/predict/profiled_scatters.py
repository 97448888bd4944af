"""Reduce-scatters in a profile: when they begin after the work that they wait for, and how long they take.

    with torch.profiler.profile() as profile:      # around one step of `dist_workloads.py` on two GPUs, rank 0
        step()
    profile.export_chrome_trace("trace.json")

    python profiled_scatters.py trace.json

Prints the deciles in microseconds: from the end of the work that was launched before it to its beginning (which has what
prepares it), its duration, and both together.
"""

import collections
import json
import statistics
import sys


def scatters(events):
    """Beginning, duration and end of each, from the end of the work before."""
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    kernels = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]

    def launch(kernel):
        return launched.get(kernel["args"]["correlation"], kernel["ts"])

    busy = collections.Counter()
    for kernel in kernels:
        if "nccl" not in kernel["name"]:
            busy[kernel["args"]["stream"]] += kernel["dur"]
    main = busy.most_common(1)[0][0]
    computed = [kernel for kernel in kernels if kernel["args"]["stream"] == main]
    for scatter in (kernel for kernel in kernels if "ReduceScatter" in kernel["name"]):
        at = launch(scatter)
        ends = [kernel["ts"] + kernel["dur"] for kernel in computed if launch(kernel) < at]
        begin = scatter["ts"] - max([at, *ends])
        yield begin, scatter["dur"], begin + scatter["dur"]


def main(path):
    with open(path) as file:
        found = list(scatters(json.load(file)["traceEvents"]))
    print(f"{len(found)} reduce-scatters")
    for name, times in zip(("begins after", "takes", "together"), zip(*found)):
        deciles = " ".join(f"{time:.0f}" for time in statistics.quantiles(times, n=10))
        print(f"{name:13} {deciles}, at most {max(times):.0f}")


if __name__ == "__main__":
    main(sys.argv[1])
