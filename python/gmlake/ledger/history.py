"""The card over time, beside a recording: a line of JSON for each look, and one when memory runs out."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from . import monitor, tenants
from .sheet import Card, card, outside

ENDING = ".card.jsonl"  # of the file beside a snapshot; gmlake-sim reads it


class History:
    """Looks at the card every `seconds`, and whenever PyTorch runs out of memory, until it is closed."""

    def __init__(self, torch: Any, path: str, seconds: float) -> None:
        self._device, self._seconds = torch.cuda.current_device(), seconds
        self._handle = monitor.by_bus(tenants.bus_of(torch, self._device))
        first = card(self._device)  # if NVML is missing, that is said before there is a file
        self._file = open(path + ENDING, "w")
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._write("begin", first)
        torch._C._cuda_attach_out_of_memory_observer(self._out_of_memory)
        self._thread = threading.Thread(target=self._watch, name="gmlake-card", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Looks once more, and ends."""
        self._closed.set()
        self._thread.join()
        self._write("end", card(self._device))
        with self._lock:
            self._file.close()

    def _watch(self) -> None:
        while not self._closed.wait(self._seconds):
            self._write("time", card(self._device))

    def _out_of_memory(self, device: int, *_: int) -> None:
        # NVML alone, which is quick and waits for no lock of PyTorch's: it knows what other processes hold.
        if device == self._device and not self._closed.is_set():
            self._write("oom", outside(monitor.read(self._handle)))

    def _write(self, why: str, found: Card) -> None:
        moment = {"at": why, "time_us": time.time_ns() // 1000, "device": self._device}
        line = json.dumps({**moment, **others_of(found), **found.to_json()})
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()


def others_of(found: Card) -> dict[str, Any]:
    """What other processes hold of a card, by the view of this one."""
    held = sum(process.bytes or 0 for process in found.processes if process.pid != os.getpid())
    return {"pid": os.getpid(), "held_by_others_bytes": held}
