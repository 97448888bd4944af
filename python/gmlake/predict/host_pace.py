"""The host's pace: how much faster or slower than this machine the host of a real GPU is.

Where a prediction depends on time, it depends on how far the host is ahead of the GPU. The time
of the GPU is estimated for a real one (`src/virtual_gpu/duration.rs`); that of the host is what the
script uses of this machine's processor, which may be slower, or shared with other work. So both
machines run the same loop, here at the beginning of each job.
"""

import ctypes
import time

ROUNDS = 400_000
LOOP = compile(f"n = 0\nfor i in range({ROUNDS}): n += i", "loop", "exec")

# On the host of an H200 (Python 3.12), in nanoseconds a round. Another host was about 1.75 times as fast: a request of
# the recording `generate-7b`, where nothing waits for the GPU, took it 4.4 microseconds, and a machine 7.7 that is as fast
# as the first. The interval of a prediction, with GPUs 2.25 times as fast and as slow, has room for both.
REFERENCE_NS = 79.7


def measure():
    """Time that a real GPU's host needs, for each unit of this machine's processor time."""
    begin = time.process_time_ns()
    exec(LOOP, {})
    return REFERENCE_NS * ROUNDS / max(1, time.process_time_ns() - begin)


def tell():
    """Measures the pace, and tells the library, where there is one."""
    function = getattr(ctypes.CDLL(None), "gmlake_gpu_host_pace", None)
    if function:
        function.argtypes, function.restype = [ctypes.c_double], None
        function(measure())
