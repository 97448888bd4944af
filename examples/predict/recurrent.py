"""What cuDNN asks for recurrent layers, on a GPU: workspace and reserve of some 2,700 networks, as CSV.

usage: recurrent.py OUT.csv

Nothing is computed: cuDNN is asked through its C interface, in PyTorch's way (`cudnnGetRNNTempSpaceSizes`).
First one thing is varied at a time, then all of them at random. `crates/virtual-gpu/src/workspace/recurrent.rs` was
chosen on an H200's answers with another seed, and judged on the random ones of this.
"""

import csv
import ctypes
import itertools
import random
import sys

import torch

KINDS = {"f32": (0, 0), "f16": (2, 1), "bf16": (9, 1)}  # cuDNN's numbers of the type and of its math
CELLS = {"tanh": 1, "lstm": 2, "gru": 3}
BASE = {"cell": "lstm", "layers": 2, "both_ways": 0, "input": 256, "hidden": 512, "batch": 32, "steps": 100,
        "kind": "bf16", "packed": 0, "dropout": 0.0, "varied": 0}
VALUES = {
    "layers": [1, 2, 3, 4, 5, 6, 8],
    "both_ways": [0, 1],
    "input": [64, 80, 256, 512, 1024],
    "hidden": [64, 128, 256, 384, 512, 768, 1024, 2048],
    "batch": [1, 4, 8, 16, 32, 64, 128, 256],
    "steps": [1, 2, 5, 10, 50, 100, 200, 500, 1000, 2000],
    "kind": list(KINDS),
    "packed": [0, 1],
    "dropout": [0.0, 0.1],
    "cell": list(CELLS),
    "varied": [0, 1],
}


def main(path):
    cudnn, handle, states = begin()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*BASE, "tokens", "workspace", "reserve"])
        for network in networks():
            answer = ask(cudnn, handle, states, **network)
            if answer:
                writer.writerow([*network.values(), *answer])


def networks():
    """Each network once, its settings in the order of BASE."""
    found = {}
    for cell, both_ways, layers, kind in itertools.product(CELLS, (0, 1), (1, 2, 5), ("bf16", "f32")):
        base = {**BASE, "cell": cell, "both_ways": both_ways, "layers": layers, "kind": kind}
        for name, values in VALUES.items():
            for value in values:
                network = {**base, name: value}
                found[tuple(network.values())] = network
    draw = random.Random(2)
    for _ in range(1500):
        network = {name: draw.choice(VALUES[name]) for name in BASE}
        network |= {"input": draw.randrange(8, 2000), "hidden": 8 * draw.randrange(4, 256)}
        network |= {"batch": draw.randrange(1, 200), "steps": draw.randrange(1, 1500)}
        found[tuple(network.values())] = network
    return found.values()


def begin():
    """The library, its handle, and the states of dropout."""
    torch.zeros(1, device="cuda")
    cudnn = ctypes.CDLL("libcudnn.so.9")
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    check(cudnn.cudnnCreate(ctypes.byref(handle)))
    check(cudnn.cudnnDropoutGetStatesSize(handle, ctypes.byref(size)))
    return cudnn, handle, torch.empty(size.value, dtype=torch.uint8, device="cuda")


def ask(cudnn, handle, states, *, cell, layers, both_ways, input, hidden, batch, steps, kind, packed, dropout, varied):
    """Steps of all sequences, and the bytes of workspace and reserve; None if cuDNN refuses."""
    number, math = KINDS[kind]
    network, data, drop = (ctypes.c_void_p() for _ in range(3))
    check(cudnn.cudnnCreateRNNDescriptor(ctypes.byref(network)))
    check(cudnn.cudnnCreateDropoutDescriptor(ctypes.byref(drop)))
    check(cudnn.cudnnCreateRNNDataDescriptor(ctypes.byref(data)))
    check(cudnn.cudnnSetDropoutDescriptor(drop, handle, ctypes.c_float(dropout), ctypes.c_void_p(states.data_ptr()),
                                          ctypes.c_size_t(states.numel()), ctypes.c_ulonglong(1)))
    check(cudnn.cudnnSetRNNDescriptor_v8(network, 0, CELLS[cell], 2, both_ways, 0, number, 0, math, input, hidden,
                                         hidden, layers, drop, 0 if packed else 1))
    draw = random.Random(batch * 7919 + steps)
    lengths = [draw.randint(1, steps) if varied and place else steps for place in range(batch)]
    lengths.sort(reverse=True)
    check(cudnn.cudnnSetRNNDataDescriptor(data, number, packed, steps, batch, input, (ctypes.c_int * batch)(*lengths),
                                          None))
    workspace, reserve = ctypes.c_size_t(), ctypes.c_size_t()
    status = cudnn.cudnnGetRNNTempSpaceSizes(handle, network, 1, data, ctypes.byref(workspace), ctypes.byref(reserve))
    cudnn.cudnnDestroyRNNDataDescriptor(data)
    cudnn.cudnnDestroyRNNDescriptor(network)
    cudnn.cudnnDestroyDropoutDescriptor(drop)
    return None if status else (sum(lengths), workspace.value, reserve.value)


def check(status):
    if status:
        sys.exit(f"recurrent.py: cuDNN answered with its error {status}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: recurrent.py OUT.csv")
    main(sys.argv[1])
