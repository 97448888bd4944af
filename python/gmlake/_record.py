"""PyTorch's own recorder, for those who want a trace and nothing else."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import shlex
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ledger.history import History
    from .predict.categories import Categories


class record(contextlib.ContextDecorator):
    """Records what the block does with GPU memory, and writes the trace to `path`.

        with gmlake.record("run.pickle"):
            train()

    `gmlake-sim compare run.pickle` then says what other allocators would have made of it. Begin before the first use of
    the GPU for an exact trace. `frames` adds Python stacks, which makes the file much larger. `categories` notes what each
    block is for (parameters, gradients, activations ...), for `gmlake-sim blame --by category`. `card` writes what
    the whole card is used for, other processes included, to `<path>.card.jsonl`, every second or so many. The trace is also
    written if the block fails, out of memory among other things, and if the program ends within it. On the virtual GPU it
    replaces no file of a real GPU's. Raises OSError if nothing can be written to `path`.

    PyTorch has one history. Where it is on already, by a block around this one or by the program's own call, it goes on as
    it was begun (`max_entries` and `frames` have no effect), and this file also has what came before the block.
    """

    _open = 0  # blocks that are open
    _begun = False  # whether the first of them began the history

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_entries: int = sys.maxsize,
        frames: bool = False,
        categories: bool = False,
        card: bool | float = False,
    ) -> None:
        self.path, self.max_entries, self.frames = path, max_entries, frames
        self.with_categories, self.card = categories, card
        self.history: History | None = None
        self.noted: Categories | None = None
        self.torch: Any = None
        self.shown = self.place = os.fspath(path)  # where it is written, as given and as a whole path

    def __enter__(self) -> record:
        from . import _files, _plugin
        from .predict import library
        from .predict.categories import Categories

        if _plugin.mounted() == "pluggable":
            raise _plugin.NotEnabled("gmlake: PyTorch's recorder does not see another allocator; use gmlake.snapshot")
        import torch

        if not torch.cuda.is_available():
            raise _plugin.NotEnabled("gmlake: this machine has no GPU to record")
        # A block may go to another folder.
        self.shown = library.spared(self.path)
        self.place = os.path.abspath(self.shown)
        if why := _files.refusal(self.place):
            raise OSError(f"gmlake: {self.shown}: {why}")
        torch.cuda.init()
        self.torch = torch
        self.noted = Categories(torch) if self.with_categories else None
        context = "alloc" if self.frames else None
        if self.card:
            from .ledger.history import History

            self.history = History(torch, self.place, float(self.card))
        if not record._open:
            record._begun = not torch._C._cuda_isHistoryEnabled()
        if record._open or not record._begun:
            self._tell_of_more()
        else:
            torch.cuda.memory._record_memory_history("all", context, "python", self.max_entries)
        record._open += 1
        # A block that is never left, such as that of an ExitStack which is not closed, ends with the program.
        atexit.register(self._end)
        return self

    def __exit__(self, *failure: object) -> None:
        atexit.unregister(self._end)
        self._end()

    def _tell_of_more(self) -> None:
        """Says that the history was on already; where a script is predicted it always is."""
        from .predict.children import TOLD

        if TOLD not in os.environ:
            print(f"gmlake: PyTorch's history was on already; {self.shown} also has what came before", file=sys.stderr)

    def _end(self) -> None:
        try:
            self._write()
        finally:
            record._open -= 1
            if record._begun and not record._open:
                self.torch.cuda.memory._record_memory_history(enabled=None)

    def _write(self) -> None:
        from .predict.library import mark

        if self.history:
            self.history.close()
        if self.noted:
            self.noted.end()
        content = mark(self.torch.cuda.memory._snapshot())
        if self.noted:
            self.noted.label(content["device_traces"])
        # Protocol 4 whatever this Python's default is: PyTorch's viewer does not read 5.
        with open(self.place, "wb") as file:
            pickle.dump(content, file, protocol=4)
        command = "blame" if self.frames else "compare"
        print(f"gmlake: next: gmlake-sim {command} {shlex.quote(self.shown)}", file=sys.stderr)
