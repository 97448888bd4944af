"""Who asks the driver for memory, as CUPTI hears it: on request, since a process has room for one that listens."""

from __future__ import annotations

import ctypes
import glob
import json
import os
import sys
from typing import Any

from .. import _plugin
from ..predict import library

BUSY = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED


class State:
    """Whether this process is watched, and what was there before."""

    on = False


def watch() -> None:
    """Counts from now on what each library of this process takes of the GPU's memory by itself.

    Call it before the GPU is used; `card` then names cuBLAS, NCCL and others with their bytes. It works by CUPTI, of
    which a process has one user: PyTorch's profiler sees no kernels after this. It takes 12 MiB of the GPU.
    """
    if State.on:
        return
    if library.is_virtual():
        print("gmlake: watch: there is nothing to watch on the virtual GPU; its answer counts what libraries request",
              file=sys.stderr, flush=True)
        return
    code = _plugin.library().gmlake_watch(cupti().encode())
    if code:
        why = "another tool uses CUPTI in this process" if code == BUSY else f"CUPTI error {code}"
        raise _plugin.NotEnabled(f"gmlake: cannot watch the driver: {why}")
    State.on = True
    if "torch" in sys.modules:
        from .tenants import follow_graphs

        follow_graphs(sys.modules["torch"])


def cupti() -> str:
    """The file of CUPTI that PyTorch has loaded, or would; its plain name where neither is known."""
    with open("/proc/self/maps") as file:
        loaded = {line.split()[-1] for line in file if "libcupti.so" in line}
    folders = [os.path.join(path, "nvidia", "*", "lib") for path in sys.path]
    found = sorted(loaded) or [path for folder in folders for path in glob.glob(f"{folder}/libcupti.so*")]
    return found[0] if found else "libcupti.so"


def watched() -> dict[str, int] | None:
    """Bytes that each library has taken, by the name of its file; None if nobody watches."""
    return {name: row["bytes"] for name, row in _json("gmlake_watched").items()} if State.on else None


def expected(card: str, uses: dict[str, int]) -> dict[str, Any]:
    """What the table of crates/core expects of these uses on a card, by the name that the driver gives it."""
    found: dict[str, Any] = _json("gmlake_beside", card.encode(), json.dumps(uses).encode())
    return found


def _json(name: str, *arguments: bytes) -> Any:
    function = getattr(_plugin.library(), name)
    function.restype = ctypes.c_size_t
    room = 1 << 16
    text = ctypes.create_string_buffer(room)
    function(*arguments, text, ctypes.c_size_t(room))
    return json.loads(text.value)
