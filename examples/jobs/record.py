"""Recorder: runs a training script unchanged on a GPU and writes what PyTorch's allocator did.

usage: record.py SCRIPT OUT ARGS...
       torchrun --nproc-per-node 2 record.py SCRIPT OUT ARGS...

`OUT.pickle` is the snapshot (`OUT.r0.pickle`, `OUT.r1.pickle` ... under torchrun), with the history
from before the first allocation and without stacks. `OUT.stats.json` next to it holds PyTorch's own
counters, the device, the time at which each optimizer step ended, and the message where memory ran
out. Both are written also if the script fails, whose exit code then stays.
"""

import json
import os
import runpy
import sys
import time
import traceback

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def main(script, out, arguments):
    """Runs the script as `python SCRIPT ARGS...` would, and writes the files."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context=None, max_entries=20_000_000)
    steps = step_times()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    start = time.time()
    failure, code = run(script)
    torch.cuda.synchronize()
    facts = {
        "script": os.path.basename(script),
        "arguments": arguments,
        "seconds": round(time.time() - start, 2),
        "step_end_us": steps,
        "oom": failure[:400] if "out of memory" in failure else None,
        "failure": failure[:400] or None,
        **surroundings(),
    }
    write(out + rank_suffix(), facts)
    return code


def run(script):
    """What went wrong (or nothing), and the exit code."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return "" if code == 0 else f"exit code {code}", code
    except BaseException as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}", 1
    return "", 0


def step_times():
    """A list that grows by the time of every optimizer step, in microseconds."""
    times = []
    register_optimizer_step_post_hook(lambda *_: times.append(time.time_ns() // 1000))
    return times


def surroundings():
    """The versions, the device, and PyTorch's counters."""
    device = torch.cuda.current_device()
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device),
        "total_memory": torch.cuda.get_device_properties(device).total_memory,
        "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "rank": int(os.environ.get("RANK", 0)),
        "world": int(os.environ.get("WORLD_SIZE", 1)),
        "stats": dict(torch.cuda.memory_stats(device)),
    }


def rank_suffix():
    """Each rank writes files of its own."""
    return f".r{os.environ['RANK']}" if "RANK" in os.environ else ""


def write(stem, facts):
    """The snapshot, the counters, and a line that says the peaks."""
    os.makedirs(os.path.dirname(os.path.abspath(stem)), exist_ok=True)
    torch.cuda.memory._dump_snapshot(stem + ".pickle")
    with open(stem + ".stats.json", "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
    stats = facts["stats"]
    reserved, active = stats["reserved_bytes.all.peak"], stats["active_bytes.all.peak"]
    print(
        f"{os.path.basename(stem)}: reserved {reserved / 2**30:.3f} GiB, active "
        f"{active / 2**30:.3f} GiB, {stats['allocation.all.allocated']} requests, "
        f"{facts['seconds']} s{', ' + facts['failure'] if facts['failure'] else ''}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: record.py SCRIPT OUT ARGS...")
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
