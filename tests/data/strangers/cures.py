"""One out-of-memory of each kind in PyTorch, and what cures it, on a GPU of 8 GiB:

python -m gmlake predict --memory 8GiB tests/data/strangers/cures.py KIND
"""

import ctypes
import sys

import torch


def mib(size):
    return torch.empty(size << 20, dtype=torch.uint8, device="cuda")


def fragmentation():
    # A large block leaves a segment, which small blocks then share. Every second one goes.
    gone = mib(6000)
    del gone
    kept = [mib(100) for _ in range(60)]
    del kept[::2]
    mib(3000)


def limit(fraction=0.25):
    torch.cuda.set_per_process_memory_fraction(fraction)
    mib(3000)


def too_much():
    kept = [mib(1000) for _ in range(7)]
    mib(2000)
    del kept


def pool(empty=False):
    gone = mib(6000)
    del gone
    if empty:
        torch.cuda.empty_cache()
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        mib(5000)


def others(end=False):
    # Memory that is not PyTorch's, as that of another process.
    driver, at = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4000 << 20)) == 0
    if end:
        assert driver.cuMemFree_v2(at) == 0
    mib(5000)


KINDS = {
    "fragmentation": fragmentation,
    "limit": limit,
    "limit-raised": lambda: limit(0.5),
    "too-much": too_much,
    "pool": pool,
    "pool-emptied": lambda: pool(True),
    "others": others,
    "others-ended": lambda: others(True),
}

mib(1)
try:
    KINDS[sys.argv[1]]()
    print(sys.argv[1], "is served")
except torch.OutOfMemoryError as error:
    print(sys.argv[1], "fails:", error)
