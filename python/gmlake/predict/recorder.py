"""The recorder: PyTorch's own memory history, from before the first request to the script's end.

It starts when PyTorch first uses the GPU, not earlier, so that a script can still choose its
allocator's settings. Scripts record as well; what they start or stop must not touch this
recording, so their calls have no effect, and what they dump is what is recorded here.
"""

import os
import pickle
import sys


class Recorder:
    """PyTorch's history of this process."""

    def __init__(self, torch, stacks, on_oom, categories=None):
        """Starts with the GPU; `on_oom()` is called whenever memory runs out."""
        self._torch, self._categories = torch, categories
        start = torch.cuda.memory._record_memory_history
        torch.cuda.memory._record_memory_history = _no_effect

        def begin():
            context = "all" if stacks else None
            start(enabled="all", context=context, stacks="python", max_entries=sys.maxsize)
            torch._C._cuda_attach_out_of_memory_observer(lambda *_: on_oom())

        torch.cuda._lazy_call(begin)

    def write(self, path):
        """Writes the snapshot, and returns what can be counted in it."""
        if not self._torch.cuda.is_initialized():
            return {"requests": 0, "devices": [], "counters": {}}
        if self._categories:
            self._categories.end()
        snapshot = self._torch.cuda.memory._snapshot()
        traces = snapshot["device_traces"]
        requests = [sum(entry["action"] == "alloc" for entry in trace) for trace in traces]
        devices = [index for index, trace in enumerate(traces) if trace]
        if self._categories:
            self._categories.label(traces)
        with open(path + ".part", "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        os.replace(path + ".part", path)
        counters = {device: self._counters(device) for device in devices}
        facts = {"requests": sum(requests), "devices": devices, "counters": counters}
        card = self._torch.cuda.get_device_properties(devices[0] if devices else 0)
        return {**facts, "device": card.name, "device_memory_bytes": card.total_memory}

    def _counters(self, device):
        """PyTorch's own peaks, as the script left them: it may have reset them."""
        names = ["reserved_bytes.all.peak", "active_bytes.all.peak", "num_ooms"]
        stats = self._torch.cuda.memory_stats(device)
        return {name: stats.get(name) for name in names}


def _no_effect(*_arguments, **_options):
    """What a script's own calls of `_record_memory_history` do."""
