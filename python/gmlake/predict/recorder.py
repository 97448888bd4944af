"""The recorder: PyTorch's own memory history, from before the first request to the script's end.

It starts when PyTorch first uses the GPU, not earlier, so that a script can still choose its
allocator's settings. Scripts record as well; what they start or stop must not touch this
recording, so their calls have no effect, and what they dump is what is recorded here. What they
dump never replaces a file of a real GPU's: whoever predicts a job that died still needs its snapshot.
"""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import sys
import time
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Callable

from .. import _plugin
from . import library, visible
from .pools import Pools

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from .categories import Categories
    from .facts import Recorded


class Unrecorded(BaseException):
    """What serves the script's requests cannot be recorded; the text says why. No `except Exception` catches this."""


class Recorder:
    """PyTorch's history of this process."""

    def __init__(
        self, torch: ModuleType, stacks: bool, on_oom: Callable[[], object], categories: Categories | None = None
    ) -> None:
        """Starts with the GPU; `on_oom()` is called whenever memory runs out."""
        self._torch, self._categories = torch, categories
        self._began = 0.0
        self._pools = Pools(torch)
        start = torch.cuda.memory._record_memory_history
        torch.cuda.memory._record_memory_history = _no_effect
        # What the script dumps says of itself, too, that it was made on the virtual GPU.
        snapshot = torch.cuda.memory._snapshot
        torch.cuda.memory._snapshot = lambda *given, **named: library.mark(snapshot(*given, **named))
        dump = torch.cuda.memory._dump_snapshot
        torch.cuda.memory._dump_snapshot = lambda filename="dump_snapshot.pickle", *given, **named: dump(
            library.spared(filename), *given, **named
        )

        def begin() -> None:
            context = "all" if stacks else None
            # From PyTorch 2.14 on, for `gmlake-sim compare --host`.
            host = "record_pinned_host_memory"
            pinned = {host: True} if host in inspect.signature(start).parameters else {}
            if why := unrecorded(torch):
                raise Unrecorded(why)
            start(enabled="all", context=context, stacks="python", max_entries=sys.maxsize, **pinned)
            torch._C._cuda_attach_out_of_memory_observer(lambda *_: on_oom())
            self._began = time.time()

        torch.cuda._lazy_call(begin)

    def write(self, path: str, then: Callable[[Any], object]) -> Recorded:
        """Writes the snapshot, calls `then` with it, and returns what can be counted in it."""
        if not self._torch.cuda.is_initialized():
            return {"requests": 0, "devices": []}
        if self._categories:
            self._categories.end()
        gc.disable()  # the script has ended; and among so many objects each search for garbage takes long
        snapshot = self._torch.cuda.memory._snapshot()
        self._pools.label(snapshot)
        traces = snapshot["device_traces"]
        counts = [Counter(map(itemgetter("action"), trace)) for trace in traces]
        devices = [index for index, trace in enumerate(traces) if trace]
        if self._categories:
            self._categories.label(traces)
        with open(path + ".part", "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        os.replace(path + ".part", path)
        then(snapshot)
        found: Recorded = {
            "requests": sum(count["alloc"] for count in counts), "devices": devices, "allocator": allocator_of(counts),
            "gpus": visible.gpus(devices, library.report()), "gpu_use_s": [self._began, time.time()],
        }
        device = devices[0] if devices else 0
        if device < self._torch.cuda.device_count():  # a script may hide its GPUs in the end
            card = self._torch.cuda.get_device_properties(device)
            found["device"], found["device_memory_bytes"] = card.name, card.total_memory
        return found


def allocator_of(entries: Iterable[Counter[str]]) -> str | None:
    """What served a script whose entries are of these kinds: an allocator of ours, or PyTorch's. None: one after another."""
    if _plugin.enabled():
        return str(_plugin.stats()[0]["allocator"])
    whole = sum(entries, Counter[str]())
    if whole["segment_map"] and whole["segment_alloc"]:
        return None
    return "expandable" if whole["segment_map"] else "caching"


# The variable with which PyTorch asks the driver for each tensor.
UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def unrecorded(torch: ModuleType) -> str | None:
    """Why PyTorch records nothing of what serves the script; None if it does."""
    backend = torch.cuda.memory.get_allocator_backend()
    if _plugin.mounted() == "pluggable":
        return "predict records gmlake.enable() only with the full mount, which python -m gmlake mount builds"
    if backend == "cudaMallocAsync":
        return "predict cannot record backend:cudaMallocAsync; predict without it (gmlake-sim simulates it as cuda-async)"
    if backend == "pluggable":
        return "predict cannot record an allocator from outside (CUDAPluggableAllocator); predict without it"
    if UNCACHED in os.environ:
        return f"predict cannot record PyTorch without its cache; unset {UNCACHED}"
    return None


def _no_effect(*_arguments: object, **_options: object) -> None:
    """What a script's own calls of `_record_memory_history` do."""
