"""PyTorch's own recorder, for those who want a trace and nothing else."""

import contextlib
import pickle


@contextlib.contextmanager
def record(path, max_entries=20_000_000, frames=False, categories=False):
    """Records what the block does with GPU memory, on stock PyTorch, and writes the trace to `path`.

        with gmlake.record("run.pickle"):
            train()

    `gmlake-sim compare run.pickle` then says what other allocators would have made of it. Begin before the first use of
    the GPU for an exact trace. `frames` adds Python stacks, which makes the file much larger. `categories` notes what each
    block is for (parameters, gradients, activations ...), for `gmlake-sim blame --by category`. The trace is also
    written if the block fails, out of memory among other things.
    """
    from . import _plugin
    from .predict.categories import Categories

    if _plugin.enabled():
        raise _plugin.NotEnabled("gmlake: PyTorch's recorder sees nothing of another allocator; use gmlake.snapshot")
    import torch

    if not torch.cuda.is_available():
        raise _plugin.NotEnabled("gmlake: there is no GPU whose memory could be recorded")
    torch.cuda.init()
    noted = Categories(torch) if categories else None
    history = torch.cuda.memory._record_memory_history
    history(enabled="all", context="alloc" if frames else None, stacks="python", max_entries=max_entries)
    try:
        yield
    finally:
        if noted:
            noted.end()
        content = torch.cuda.memory._snapshot()
        if noted:
            noted.label(content["device_traces"])
        # Protocol 4 whatever this Python's default is: PyTorch's viewer does not read 5.
        with open(path, "wb") as file:
            pickle.dump(content, file, protocol=4)
        history(enabled=None)
