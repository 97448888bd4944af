"""Do kernels run as fast through stitched memory, and what does a wait between streams cost?

usage: stitched.py OUT        the tables are in OUT/stitched.md. Needs cupy and cuda-bindings, and 5 GiB of GPU memory

1 GiB is mapped in handles of one size, once in the order in which they were made and once shuffled, and the same work is
done in it as in a cuMemAlloc: a copy from and to it, and a matrix product. Medians over interleaved rounds.
"""

import random
import statistics
import sys
import time
from pathlib import Path

import cupy
from cuda.bindings import driver

GIB, MIB = 1 << 30, 1 << 20
SIZE, ROUNDS, WIDTH = GIB, 15, 8192


def call(function, *arguments):
    code, *rest = function(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {code}")
    return rest[0] if len(rest) == 1 else rest


def location():
    place = driver.CUmemLocation()
    place.type, place.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    return place


def stitched(chunk, shuffled):
    """Address of 1 GiB made of handles of `chunk` bytes; it stays until the end of the process."""
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location = location()
    handles = [call(driver.cuMemCreate, chunk, wanted, 0) for _ in range(SIZE // chunk)]
    if shuffled:
        random.Random(1).shuffle(handles)
    at = call(driver.cuMemAddressReserve, SIZE, 0, 0, 0)
    for index, handle in enumerate(handles):
        call(driver.cuMemMap, int(at) + index * chunk, chunk, 0, handle, 0)
        call(driver.cuMemRelease, handle)
    access = driver.CUmemAccessDesc()
    access.location, access.flags = location(), driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    call(driver.cuMemSetAccess, at, SIZE, [access], 1)
    return int(at)


def array(at, count, kind):
    memory = cupy.cuda.UnownedMemory(at, SIZE, None)
    return cupy.ndarray(count, dtype=kind, memptr=cupy.cuda.MemoryPointer(memory, 0))


def timed(work):
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end)


def bandwidths():
    places = {"cuMemAlloc": int(call(driver.cuMemAlloc, SIZE))}
    for chunk in (2 * MIB, 16 * MIB, 128 * MIB):
        for shuffled in (False, True):
            name = f"handles of {chunk // MIB} MiB, {'shuffled' if shuffled else 'in order'}"
            places[name] = stitched(chunk, shuffled)
    other = cupy.zeros(SIZE // 4, dtype="f4")
    factor = cupy.ones((WIDTH, WIDTH), dtype="f2")
    times = {name: ([], [], []) for name in places}
    for turn in range(ROUNDS + 2):
        for name, at in places.items():
            flat, square = array(at, (SIZE // 4,), "f4"), array(at, (WIDTH, WIDTH), "f2")
            result = array(at + SIZE // 2, (WIDTH, WIDTH), "f2")
            works = (
                lambda: cupy.copyto(flat, other),
                lambda: cupy.copyto(other, flat),
                lambda: cupy.matmul(square, factor, out=result),
            )
            flat.fill(0)
            for work, kept in zip(works, times[name]):
                ms = timed(work)
                if turn >= 2:  # warm by then
                    kept.append(ms)
    for name, kept in times.items():
        write, read, product = (statistics.median(each) for each in kept)
        yield name, 2 * SIZE / write / 1e6, 2 * SIZE / read / 1e6, 2 * WIDTH**3 / product / 1e9


def waits():
    """Microseconds of the host for a fence and a wait, with the first stream idle and busy."""
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    buffer = cupy.zeros(GIB // 4, dtype="f4")
    event = cupy.cuda.Event(disable_timing=True)
    for busy in (False, True):
        record, wait = [], []
        for _ in range(200):
            if busy:
                with first:
                    buffer.fill(1)
            start = time.perf_counter_ns()
            event.record(first)
            middle = time.perf_counter_ns()
            second.wait_event(event)
            record.append(middle - start)
            wait.append(time.perf_counter_ns() - middle)
        cupy.cuda.Device().synchronize()
        yield "busy" if busy else "idle", statistics.median(record) / 1e3, statistics.median(wait) / 1e3


def main():
    cupy.zeros(1)  # makes the context, which the driver's calls need
    lines = ["| 1 GiB of | written, GB/s | read, GB/s | matrix product, TFLOP/s |", "|---|---:|---:|---:|"]
    lines += [f"| {name} | {w:.0f} | {r:.0f} | {f:.0f} |" for name, w, r, f in bandwidths()]
    lines += ["", "| first stream | cuEventRecord, us | cuStreamWaitEvent, us |", "|---|---:|---:|"]
    lines += [f"| {name} | {record:.2f} | {wait:.2f} |" for name, record, wait in waits()]
    text = "\n".join(lines) + "\n"
    (Path(sys.argv[1]) / "stitched.md").write_text(text)
    print(text)


main()
