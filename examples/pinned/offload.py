"""Offload to pinned memory: the optimizer's state of GPT-NeoX-20B, a quarter on each of four ranks.

    python offload.py [SNAPSHOT]
    python offload.py kv            # 24 tensors of vLLM's KV cache instead, as in kv-offload.csv

Each parameter's shard (fp32, with two moments) is pinned by itself, as FSDP2 and ZeRO do. In every step the
gradients come from the GPU through pinned buffers, on a stream of their own. A snapshot needs PyTorch 2.14 or later.
It was run on the virtual GPU, where memory that nothing touches takes none.
"""

import pickle
import sys

import torch

HIDDEN, LAYERS, WORDS, RANKS, STEPS = 6144, 44, 50432, 4, 3
SQUARE = HIDDEN * HIDDEN
LAYER = [3 * SQUARE, 3 * HIDDEN, SQUARE, HIDDEN, 4 * SQUARE, 4 * HIDDEN, 4 * SQUARE, HIDDEN, *[HIDDEN] * 4]
PARAMETERS = [WORDS * HIDDEN, *LAYER * LAYERS, HIDDEN, HIDDEN, WORDS * HIDDEN]


def pinned(count, dtype=torch.float32):
    return torch.empty(count, dtype=dtype, pin_memory=True)


def train():
    shards = [count // RANKS for count in PARAMETERS]
    state = [[pinned(count) for _ in ("weight", "mean", "variance")] for count in shards]
    gradient, stream = torch.empty(1, dtype=torch.bfloat16, device="cuda"), torch.cuda.Stream()
    for _ in range(STEPS):
        for number, count in enumerate(reversed(shards)):
            buffer = pinned(count, torch.bfloat16)
            with torch.cuda.stream(stream):
                buffer[:1].copy_(gradient, non_blocking=True)
            if number % 8 == 7:
                stream.synchronize()
        torch.cuda.synchronize()
    return state


def write(path):
    snapshot = torch.cuda.memory._snapshot()
    blocks = [block for segment in snapshot["host_segments"] for block in segment["blocks"]]
    for part in [*snapshot["host_traces"], *snapshot["host_segments"], *blocks]:
        part.pop("frames", None)
    with open(path, "wb") as file:
        pickle.dump(snapshot, file)


def main(what=None):
    if what == "kv":
        torch.zeros(1, device="cuda")
        kept = [pinned(2053 * 1_089_536, torch.uint8) for _ in range(24)]
    else:
        if what:
            torch.cuda.memory._record_memory_history(stacks="python", record_cuda=False, record_pinned_host_memory=True)
        kept = train()
        if what:
            write(what)
    numbers = torch.cuda.host_memory_stats()
    peak = numbers.get("reserved_bytes.peak", numbers["allocated_bytes.peak"])  # its name up to 2.9, and from 2.10 on
    print(f"pinned at most {peak / 2**30:.2f} GiB, in {numbers['num_host_alloc']:,} calls")
    return kept


if __name__ == "__main__":
    kept = main(*sys.argv[1:])
