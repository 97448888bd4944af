"""The host's pace: how much faster or slower than this machine the host of a real GPU is.

Where a prediction depends on time, it depends on how far the host is ahead of the GPU. The time
of the GPU is estimated for a real one (`src/virtual_gpu/duration.rs`); that of the host is what the
script uses of this machine's processor, which may be slower, or shared with other work. So both
machines run the same loop, here at the beginning of each job and after its steps. What the driver
of a real GPU takes the host for each call comes on top (`duration.rs`).
"""

import ctypes
import time
from collections import deque

ROUNDS = 150_000
LOOP = compile(f"def f(a): return a\nfor i in range({ROUNDS}): f(i)", "loop", "exec")

# On the host of an H200, in nanoseconds a round. A loop of calls takes Python 3.10 to 3.13 alike, within
# 8 %; one of sums takes 3.12 a third longer than 3.11.
REFERENCE_NS = 52.7

# The last runs of the loop, and when the latest one began, in seconds.
_runs, _begin = deque(maxlen=3), float("-inf")


def measure():
    """Time that a real GPU's host needs, for each unit of this machine's processor time."""
    _runs.append(run())
    while len(_runs) < _runs.maxlen:
        _runs.append(run())
    return REFERENCE_NS * ROUNDS / max(1, min(_runs))


def run():
    """Processor time of the loop here, in nanoseconds."""
    begin = time.process_time_ns()
    exec(LOOP, {})
    return time.process_time_ns() - begin


def tell():
    """Measures the pace, and tells the library, where there is one.

    Called at the beginning and after every step, it does so once a second at most: other work on this
    machine comes and goes. The loop is left out of the script's time.
    """
    global _begin
    if time.monotonic() < _begin + 1:
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "gmlake_gpu_host_pace"):
        return
    _begin, used = time.monotonic(), time.thread_time_ns()
    library.gmlake_gpu_host_pace.argtypes = [ctypes.c_double]
    library.gmlake_gpu_leave_out.argtypes = [ctypes.c_uint64]
    library.gmlake_gpu_host_pace(measure())
    library.gmlake_gpu_leave_out(time.thread_time_ns() - used)
