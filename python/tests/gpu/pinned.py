"""`gmlake.enable("stock", host=True)` on a real GPU: blocks in use by a stream, graphs, contents, times. Plain Python.

    python python/tests/gpu/pinned.py            # the test
    python python/tests/gpu/pinned.py plain      # the times of a stock PyTorch
"""

import sys
import time

import torch

import gmlake

MIB = 1 << 20


def pinned(size):
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def numbers():
    found = torch.cuda.host_memory_stats()
    return found["allocated_bytes.current"], found["allocated_bytes.peak"], found["num_host_alloc"], found["num_host_free"]


def check():
    source = torch.randint(0, 255, (576 * MIB,), dtype=torch.uint8, device="cuda")
    experts, stream = [pinned(size * MIB) for size in (2304, 1152, 576)], torch.cuda.Stream()
    assert numbers() == (4032 * MIB, 4032 * MIB, 3, 0) and experts[2].is_pinned(), numbers()
    experts[2].copy_(source)
    assert torch.equal(experts[2].cuda(), source)
    at, pins = experts[2].data_ptr(), numbers()[2]  # `item` pins, too
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(8_000_000_000)
        experts[2].copy_(source, non_blocking=True)
    del experts[2]
    busy = pinned(576 * MIB)
    assert not stream.query(), "this machine is too slow for this test"
    assert busy.data_ptr() != at and numbers()[2] == pins + 1, "a stream still writes to it"
    torch.cuda.synchronize()
    assert pinned(576 * MIB).data_ptr() == at and numbers()[2] == pins + 1

    target, before = torch.zeros(4 * MIB, dtype=torch.uint8, device="cuda"), pinned(4 * MIB)
    before.fill_(7)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        target.copy_(before, non_blocking=True)
        inside = pinned(4 * MIB)
        inside.copy_(target, non_blocking=True)
    graph.replay()
    torch.cuda.synchronize()
    assert int(inside.min()) == int(inside.max()) == 7
    del experts, busy, before
    torch._C._host_emptyCache()
    assert numbers()[0] <= 4 * MIB, numbers()


def step(source, sizes):
    buffers = [pinned(size) for size in sizes]
    for buffer in buffers:
        buffer.copy_(source[: len(buffer)], non_blocking=True)
    torch.cuda.synchronize()


def times():
    source = torch.zeros(300 * MIB, dtype=torch.uint8, device="cuda")
    sizes = [n * MIB + 12345 for n in (100, 150, 260, 17, 33, 290)]
    torch.cuda.reset_peak_host_memory_stats()
    begin = time.perf_counter()
    step(source, sizes)
    first, begin = time.perf_counter() - begin, time.perf_counter()
    for _ in range(20):
        step(source, sizes)
    later = (time.perf_counter() - begin) / 20
    print(f"{sum(sizes) / MIB:.0f} MiB copied: first step {first * 1e3:.1f} ms, later {later * 1e3:.2f} ms; "
          f"pinned {numbers()[1] / MIB:.0f} MiB")


if __name__ == "__main__":
    if "plain" not in sys.argv:
        gmlake.enable("stock", host=True)
        check()
        print("ok: contents, streams, graphs")
    times()
