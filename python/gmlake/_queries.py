"""The questions of torch.cuda.memory, answered from our numbers: PyTorch raises for an allocator from outside.

PyTorch splits most of its numbers by its two pools, for small and for large blocks. Our allocators have other parts, so
there are the sums alone, and a summary of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from ._sizes import show

if TYPE_CHECKING:
    from types import ModuleType

BYTES = ("requested", "allocated", "active", "reserved")

# What the library says of one GPU, by name: numbers, and numbers by name.
Stats = dict[str, Any]
# A GPU as PyTorch's functions take it: a number, a name, a torch.device; None is the current one.
Device = Any


def answer(
    torch: ModuleType, stats: Callable[[int], Stats | None], reset_peak: Callable[[int], object],
    segments: Callable[[], list[dict[str, Any]]],
) -> None:
    """Puts functions that ask `stats`, `reset_peak` and `segments` in place of PyTorch's.

    memory_allocated, memory_reserved, their maxima and memory_stats all look at `memory_stats_as_nested_dict`.
    """
    memory = torch.cuda.memory

    def index(device: Device) -> int:
        return int(memory._get_device_index(device, optional=True))

    def known(device: Device) -> Stats | None:
        return stats(index(device)) if torch.cuda.is_initialized() else None

    def nested(device: Device = None) -> Stats:
        found = known(device)
        return as_pytorch(found) if found else {}

    def summary(device: Device = None, abbreviated: bool = False) -> str:
        found = known(device)
        return as_text(found, abbreviated) if found else "gmlake: no GPU memory was requested yet"

    def reset(device: Device = None) -> None:
        reset_peak(index(device))

    def snapshot(mempool_id: tuple[int, int] | None = None, **_traces: object) -> list[dict[str, Any]]:
        every = segments() if torch.cuda.is_initialized() else []
        return [each for each in every if mempool_id in (None, each["segment_pool_id"])]

    functions: dict[str, Callable[..., object]] = {
        "memory_stats_as_nested_dict": nested,
        "memory_summary": summary,
        "memory_snapshot": snapshot,
        "reset_peak_memory_stats": reset,
        "reset_max_memory_allocated": reset,
        "reset_max_memory_cached": reset,
    }
    for name, function in functions.items():
        setattr(memory, name, function)
        setattr(torch.cuda, name, function)


def as_pytorch(found: Stats) -> Stats:
    """Our numbers under the names of torch.cuda.memory_stats."""
    current, peak = found["current"], found["peak"]
    nested: Stats = {f"{name}_bytes": {"all": {"current": current[name], "peak": peak[name]}} for name in BYTES}
    nested["allocated_bytes"]["all"].update(
        allocated=found["requested_bytes_total"], freed=found["freed_bytes_total"]
    )
    nested["allocation"] = {
        "all": {"current": found["live_blocks"], "allocated": found["mallocs"], "freed": found["frees"]}
    }
    nested["num_alloc_retries"], nested["num_ooms"] = found["num_alloc_retries"], found["num_ooms"]
    return nested


def as_text(found: Stats, abbreviated: bool = False) -> str:
    """The table of torch.cuda.memory_summary; without its driver calls if it is to be short."""
    lines = [
        f"GPU {found['device']}, memory by gmlake ({found['allocator']})",
        f"{'':<12}{'now':>12}{'at most':>12}",
        *(f"{name:<12}{show(found['current'][name]):>12}{show(found['peak'][name]):>12}" for name in BYTES),
        f"blocks: {found['live_blocks']} now, {found['mallocs']} handed out, {found['frees']} freed, "
        f"{found['pending_blocks']} waiting for a stream",
        f"out of memory: {found['num_ooms']} times; flushes and retries: {found['num_alloc_retries']}",
    ]
    if not abbreviated:
        lines += [f"{'driver call':<24}{'calls':>12}{'time':>12}"]
        calls, times = found["driver_calls"], found["driver_ns"]
        lines += [f"{name:<24}{calls[name]:>12}{times[name] / 1e6:>9.1f} ms" for name in calls]
    return "\n".join(lines)
