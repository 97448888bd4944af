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
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Callable

from .. import _plugin
from . import library

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from .categories import Categories
    from .facts import Recorded


class Recorder:
    """PyTorch's history of this process."""

    def __init__(
        self, torch: ModuleType, stacks: bool, on_oom: Callable[[], object], categories: Categories | None = None
    ) -> None:
        """Starts with the GPU; `on_oom()` is called whenever memory runs out."""
        self._torch, self._categories = torch, categories
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
            start(enabled="all", context=context, stacks="python", max_entries=sys.maxsize, **pinned)
            torch._C._cuda_attach_out_of_memory_observer(lambda *_: on_oom())

        torch.cuda._lazy_call(begin)

    def write(self, path: str, then: Callable[[Any], object]) -> Recorded:
        """Writes the snapshot, calls `then` with it, and returns what can be counted in it."""
        if not self._torch.cuda.is_initialized():
            return {"requests": 0, "devices": []}
        if self._categories:
            self._categories.end()
        gc.disable()  # the script has ended; and among so many objects each search for garbage takes long
        snapshot = self._torch.cuda.memory._snapshot()
        traces = snapshot["device_traces"]
        counts = [Counter(map(itemgetter("action"), trace)) for trace in traces]
        devices = [index for index, trace in enumerate(traces) if trace]
        if self._categories:
            self._categories.label(traces)
        with open(path + ".part", "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        os.replace(path + ".part", path)
        then(snapshot)
        card = self._torch.cuda.get_device_properties(devices[0] if devices else 0)
        return {
            "requests": sum(count["alloc"] for count in counts), "devices": devices, "allocator": allocator_of(counts),
            "device": card.name, "device_memory_bytes": card.total_memory,
        }


def allocator_of(entries: Iterable[Counter[str]]) -> str | None:
    """What served a script whose entries are of these kinds: an allocator of ours, or PyTorch's. None: one after another."""
    if _plugin.enabled():
        return str(_plugin.stats()[0]["allocator"])
    whole = sum(entries, Counter[str]())
    if whole["segment_map"] and whole["segment_alloc"]:
        return None
    return "expandable" if whole["segment_map"] else "caching"


def _no_effect(*_arguments: object, **_options: object) -> None:
    """What a script's own calls of `_record_memory_history` do."""
