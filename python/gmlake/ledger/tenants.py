"""Tenants of a card inside this process: PyTorch's allocator, libraries, and what the driver needs for both."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import TYPE_CHECKING, Any

from . import watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .sheet import Entry

# Files that ask for PyTorch's allocator, whose bytes PyTorch tells itself.
OF_PYTORCH = ("libc10_cuda", "libtorch_cuda", "libtorch_python", "libgmlake_mount", "libgmlake_torch")
NCCL = "libnccl"

NAMES = {
    "libcublas": "cuBLAS", "libcudnn": "cuDNN", "libcusolver": "cuSOLVER", "libcufft": "cuFFT",
    "libcusparse": "cuSPARSE", NCCL: "NCCL", "libnvshmem": "NVSHMEM",
}

# What cannot be counted from here is taken as this, at most: threads that use a library, and nodes of a graph.
THREADS = 4
NODES = 1000


def bus_of(torch: Any, device: int) -> str:
    """The PCI address of a device of PyTorch's."""
    found = torch.cuda.get_device_properties(device)
    parts = [getattr(found, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    if any(parts) and None not in parts:
        domain, bus, slot = (int(part or 0) for part in parts)
        return f"{domain:08x}:{bus:02x}:{slot:02x}.0"
    text = ctypes.create_string_buffer(64)  # before PyTorch 2.8, and on the virtual GPU
    ctypes.CDLL(None).cudaDeviceGetPCIBusId(text, 64, device)
    return text.value.decode()


def pytorch(torch: Any, device: int) -> Entry:
    """PyTorch's allocator: what it reserved, by live and cached and by pool."""
    from .sheet import Entry

    reserved, live = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    pools: dict[str, int] = {}
    for segment in torch.cuda.memory_snapshot():
        if segment["device"] == device:
            pool = pool_of(segment)
            pools[pool] = pools.get(pool, 0) + segment["total_size"]
    parts = [Entry("live", live), Entry("cached", reserved - live)]
    if len(pools) > 1:
        rows = sorted(pools.items(), key=lambda row: -row[1])
        parts.append(Entry("by pool", reserved, "", [Entry(name, size) for name, size in rows]))
    return Entry("PyTorch's allocator", reserved, "PyTorch", parts)


def pool_of(segment: dict[str, Any]) -> str:
    """The pool of a segment, in words."""
    private = tuple(segment.get("segment_pool_id", (0, 0)))
    stream = "" if not segment["stream"] else f", stream {segment['stream']:#x}"
    if private != (0, 0):
        return f"private pool {private[0]}.{private[1]}{stream}"
    return f"{segment['segment_type']} blocks{stream}"


def libraries(torch: Any) -> Iterator[Entry]:
    """What libraries took of the driver by themselves, if that is watched, the largest first."""
    from .sheet import Entry

    found: dict[str, int] = {}
    for file, size in (watching.watched() or {}).items():
        if not file.startswith(OF_PYTORCH):
            name = next((name for start, name in NAMES.items() if file.startswith(start)), file)
            found[name] = found.get(name, 0) + size
    for name, size in sorted(found.items(), key=lambda row: -row[1]):
        if size:
            yield Entry(name, size, "asked the driver", list(communicators(torch)) if name == "NCCL" else [])


def groups(torch: Any) -> Iterator[tuple[str, Any]]:
    """Names of PyTorch's process groups that have a communicator of NCCL, each with its backend."""
    distributed = getattr(torch, "distributed", None)
    if not distributed or not distributed.is_available() or not distributed.is_initialized():
        return
    world = distributed.distributed_c10d._world
    for group in list(world.pg_map):
        try:
            backend = group._get_backend(torch.device("cuda"))
        except RuntimeError:
            continue
        if type(backend).__name__ == "ProcessGroupNCCL":
            yield f"group {world.pg_names.get(group, '?')}, {group.size()} ranks", backend


def communicators(torch: Any) -> Iterator[Entry]:
    """The communicators: with their bytes where NCCL tells them (2.29.7 and later), or where there is only one."""
    from .sheet import Entry

    for name, backend in groups(torch):
        ask = getattr(backend, "memory_stats", None)
        stats = ask() if ask else {}
        sizes = [value for key, value in dict(stats).items() if "total" in str(key).lower()]
        yield Entry(name, int(max(sizes, default=0)), "NCCL" if sizes else "this NCCL does not tell its share")


class Seen:
    """What this process has done with the GPU, and what cannot be asked afterwards."""

    graphs: weakref.WeakSet[Any] | None = None
    nccl = False


def follow_graphs(torch: Any) -> None:
    """Notes from now on each CUDA graph that is captured.

    Objects of Python are not searched for them: a tuple that another thread is making would be broken by that.
    """
    if Seen.graphs is not None:
        return
    graphs = Seen.graphs = weakref.WeakSet()
    usual = torch.cuda.CUDAGraph.capture_end

    @functools.wraps(usual)
    def capture_end(graph: Any) -> Any:
        graphs.add(graph)
        return usual(graph)

    torch.cuda.CUDAGraph.capture_end = capture_end


def uses(torch: Any) -> dict[str, int]:
    """What this process may have done, by the names in beside.csv, at most: for the upper end of what is expected."""
    follow_graphs(torch)
    pools = {tuple(segment.get("segment_pool_id", (0, 0))) for segment in torch.cuda.memory_snapshot()}
    graphs = max(len(Seen.graphs or ()), len(pools - {(0, 0)}))
    count = sum(1 for _ in groups(torch))
    # NCCL's kernels stay loaded when its groups are gone.
    Seen.nccl |= count > 0 or any(file.startswith(NCCL) for file in watching.watched() or {})
    found = {"context": 1, "gpu": torch.cuda.device_count() - 1, "kernel": 1, "stream": 1}
    found.update(graph=graphs, graph_node=graphs * NODES)
    found.update(nccl=int(Seen.nccl), messages=int(Seen.nccl))
    if watching.watched() is None:
        found.update(cublasCreate_v2=THREADS, cudnnCreate=THREADS, cusolverDnCreate=1, cufftCreate=1)
        found.update(communicator=count, ring=count)
    return found


def expectation(card: str) -> dict[str, Any]:
    """What the driver is expected to keep for this process on a card, and libraries too where nobody watches them."""
    import torch

    return watching.expected(card, uses(torch))
