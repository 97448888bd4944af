"""The script: what one random program asks of PyTorch's allocator, and the settings that it runs under.

It is made from a seed alone, before anything runs, so that a cell is known by its number.
"""

import random
from collections import namedtuple

MIB = 1 << 20

# `steps` are tuples whose first element names the call; `fraction` is a share of the device, which the settings say
# or, if `calls` is true, a call.
Script = namedtuple("Script", "seed settings fraction calls steps")

FRACTIONS = [0.15, 0.4, 0.7]

# Sizes at which the allocator decides otherwise, and their neighbours.
EDGES = [512, 1024, MIB // 2, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB, 64 * MIB]


# What a MemPool may be made with, other than nothing.
POOL_OPTIONS = [(), (), ("use_on_oom",), ("no_split",), ("use_on_oom", "no_split")]


def script(seed, version, memory, segment, reserve, initial):
    """A script for PyTorch 2.`version` on a device of `memory` bytes, whose large segments have `segment` MiB.

    `reserve` is what expandable segments get of the addresses, `initial` the fraction that the process began with.
    """
    own = random.Random(seed)
    sizes = palette(own, memory)
    steps = [step(own, sizes) for _ in range(own.choice([60, 200, 500]))]
    limited = own.random() < 0.3
    fraction = own.choice(FRACTIONS) if limited else 1.0
    text = settings(own, version, limited, segment)
    if initial:
        fraction = initial
        text += f",per_process_memory_fraction:{initial}"
    if version >= 12:
        # Both settings at run time, and no limit: what is too much is rejected, which no entry tells.
        rejects = not initial and not limited and own.random() < 0.3
        text += f",per_process_memory_fraction:{own.choice(FRACTIONS)}" if rejects else ""
        text += f",throw_on_cudamalloc_oom:{rejects or own.random() < 0.5}"
    if version >= 15:
        text += f",expandable_segments_reserve:{reserve}"
    return Script(seed, text, fraction, not initial, steps)


def palette(own, memory):
    """A few sizes, so that blocks of equal size are common."""
    largest = min(memory // 6, 300 * MIB)
    found = []
    for _ in range(own.randrange(3, 12)):
        kind = own.random()
        if kind < 0.3:
            found.append(own.choice(EDGES) + own.choice([-512, -1, 0, 1, 512]))
        elif kind < 0.6:
            found.append(int(2 ** own.uniform(0, 20)))
        else:
            found.append(int(2 ** own.uniform(20, largest.bit_length())))
    return [min(max(size, 1), largest) for size in found]


def step(own, sizes):
    kind = own.random()
    size = own.choice(sizes) if own.random() < 0.8 else int(own.choice(sizes) * own.uniform(0.5, 1.5)) + 1
    stream = own.choice([0, 0, 0, 1, 2])
    if kind < 0.52:
        return ("malloc", size, stream)
    if kind < 0.86:
        return ("free", own.random())
    if kind < 0.92:
        return ("free_used", own.random(), own.choice([1, 2]))
    if kind < 0.94:
        return ("synchronize",)
    if kind < 0.955:
        return ("empty_cache",)
    if kind < 0.965:
        return ("enter_pool", own.random(), own.choice(POOL_OPTIONS))
    if kind < 0.97:
        return ("begin_capture", own.random())
    if kind < 0.99:
        return ("leave",)
    if kind < 0.997:
        return ("drop_pool", own.random())
    return ("drop_graph", own.random())


def settings(own, version, limited, segment):
    """A text for PYTORCH_CUDA_ALLOC_CONF; what a later call would keep is always said."""
    expandable = own.random() < 0.35
    parts = [f"expandable_segments:{expandable}"]
    if version >= 11:
        parts.append(f"large_segment_size_mb:{segment}")
    if 6 <= version < 11:
        parts.append(f"max_non_split_rounding_mb:{own.choice([21, 40, 100])}")
    if own.random() < 0.25:
        most = own.choice([segment + 1, 32, 64, 128])
        if version > 4 or not expandable:  # 2.4 fails an assertion, or gives back memory in use
            parts.append(f"max_split_size_mb:{most}")
        if version >= 11 and own.random() < 0.5:
            parts.append(f"max_non_split_rounding_mb:{own.choice([segment + 1, 40, 100])}")
    if limited and own.random() < 0.6:
        parts.append(f"garbage_collection_threshold:{own.choice([0.3, 0.6, 0.8])}")
    if own.random() < 0.2:
        parts.append(f"roundup_power2_divisions:{own.choice(DIVISIONS)}")
    return ",".join(parts)


DIVISIONS = ["2", "4", "8", "[1:2,4:4,32:8,>:2]", "[256:1,512:2,1024:4,>:8]"]
