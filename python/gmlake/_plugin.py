"""The shared library, and how PyTorch is made to use it."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, overload

from . import _queries
from . import mount as full

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

LIBRARY = Path(__file__).with_name("libgmlake_torch.so")


@dataclass
class State:
    """What is in place in this process: the library, what PyTorch holds of it, and the full mount."""

    library: ctypes.CDLL | None = None
    allocator: object = None
    mount: ctypes.CDLL | None = None


state = State()


class NotEnabled(RuntimeError):
    """The allocator cannot be, or was not, put in place; the text says why."""


def library() -> ctypes.CDLL:
    """The shared library, loaded once; ctypes keeps it for as long as the process lives."""
    if state.library is None:
        try:
            # For all to see: the full mount finds our functions by name.
            found = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise NotEnabled(f"gmlake: its library cannot be loaded: {error}; install the package with pip") from error
        text, size = ctypes.c_char_p, ctypes.c_size_t
        functions: dict[str, list[Any]] = {
            "gmlake_configure": [text, text, size],
            "gmlake_check": [ctypes.c_int, text, size],
            "gmlake_snapshot": [text, text, size],
            "gmlake_stats": [text, size],
        }
        for name, arguments in functions.items():
            function = getattr(found, name)
            function.argtypes, function.restype = arguments, size
        found.gmlake_reset_peak.argtypes, found.gmlake_reset_peak.restype = [ctypes.c_int], None
        found.gmlake_record.argtypes, found.gmlake_record.restype = [size], None
        state.library = found
    return state.library


def _error(function: Callable[..., Any], *arguments: object) -> str:
    """Calls a function that returns the length of an error message, and returns the message; empty if there is none."""
    room = 4096
    message = ctypes.create_string_buffer(room)
    return message.value.decode() if function(*arguments, message, room) else ""


def configuration(allocator: str | None, options: Mapping[str, object]) -> str:
    """GMLAKE_CONF with what was given here in place of what it says, in its syntax."""
    pieces: dict[str, str] = {}
    for piece in os.environ.get("GMLAKE_CONF", "").split(","):
        if piece.strip():
            name, _, value = piece.partition("=")
            pieces[name.strip()] = value.strip()
    if allocator is not None:
        if pieces.get("allocator", allocator) != allocator:
            # Another allocator's options mean nothing here; the plug-in's own do.
            pieces = {name: value for name, value in pieces.items() if name in ("record", "poison")}
        pieces["allocator"] = allocator
    for name, given in options.items():
        pieces[name] = ("on" if given else "off") if isinstance(given, bool) else str(given)
    return ",".join(f"{name}={value}" for name, value in pieces.items())


def check(device: int = 0) -> str:
    """Why a GPU cannot be used, in a sentence; an empty text if it can. Opens the GPU."""
    return _error(library().gmlake_check, device)


def enabled() -> bool:
    """Whether PyTorch's GPU memory comes from here."""
    return state.allocator is not None


def mounted() -> str | None:
    """How the allocator is in place: "full", "pluggable" (PyTorch asks it little), or None."""
    if not enabled():
        return None
    return "full" if state.mount else "pluggable"


# What nearly does the same as exact pinning where there is no full mount.
PINNED = "PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:1"


def put_in_place(configuration: str, check_first: bool) -> bool:
    """Lets PyTorch ask the library from now on; false if it does already. A GPU is opened only to look for one."""
    pieces = configuration.split(",")
    with_host, is_stock = "host=on" in pieces, "allocator=stock" in pieces
    rest = ",".join(piece for piece in pieces if piece not in ("host=on", "host=off", "allocator=stock"))
    problem = _error(library().gmlake_configure, rest.encode())
    if is_stock and not with_host:
        problem = "allocator stock is PyTorch's own, and goes with host=True only"
    if problem:
        raise ValueError(f"gmlake: {problem}")
    if enabled():
        return False
    torch = _torch()
    if torch.cuda.is_initialized() and not is_stock:
        raise NotEnabled("gmlake: PyTorch has used the GPU already; call gmlake.enable() before")
    problem = check(_first_device()) if check_first else ""
    if problem:
        raise NotEnabled(problem)
    mount, why = _mount(torch)
    if with_host:
        if mount is None:
            raise NotEnabled(f"gmlake: host=True: {why}; from PyTorch 2.13 on, {PINNED} does nearly the same")
        mount.gmlake_mount_host()
    if not is_stock:
        state.allocator = _install(torch, mount, why)
    return True


def _torch() -> ModuleType:
    """PyTorch, built with CUDA."""
    try:
        import torch
    except ImportError as error:
        raise NotEnabled(f"gmlake: PyTorch is not installed ({error})") from error
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise NotEnabled(f"gmlake: this PyTorch ({torch.__version__}) was built without CUDA")
    return torch


def _mount(torch: ModuleType) -> tuple[ctypes.CDLL | None, str]:
    """The library of the full mount, or why there is none for this PyTorch."""
    path, why = full.library(torch.__version__)
    if path is None:
        return None, why
    try:
        return ctypes.CDLL(str(path)), ""
    except OSError as error:
        raise NotEnabled(f"gmlake: {path.name} does not fit this PyTorch ({torch.__version__}): {error}") from error


def _install(torch: ModuleType, mount: ctypes.CDLL | None, why: str) -> object:
    """Puts the full mount in place, or, if there is none, says what is missing without it."""
    if mount is None:
        warnings.warn(f"gmlake: {why}: mounted as a pluggable allocator, without graph trees, MemPool and history", stacklevel=5)
        return _install_pluggable(torch)
    outcome = mount.gmlake_mount_install()
    if outcome == 1:
        raise NotEnabled("gmlake: PyTorch has used the GPU already; call gmlake.enable() before")
    if outcome == 2:
        raise NotEnabled("gmlake: PYTORCH_CUDA_ALLOC_CONF selects backend:cudaMallocAsync; remove that")
    state.mount = mount
    return mount


def _first_device() -> int:
    """The GPU that this process will use first, by the convention of the launchers."""
    local = os.environ.get("LOCAL_RANK", "0")
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return int(local) if local.isdecimal() and (not visible or int(local) < len(visible)) else 0


HOOKS = {
    # Names of PyTorch 2.3 and later, and ours.
    "set_init_fn": "gmlake_init",
    "set_reset_fn": "gmlake_reset",
    "set_memory_fraction_fn": "gmlake_memory_fraction",
    "set_base_alloc_fn": "gmlake_base",
    "set_record_stream_fn": "gmlake_record_stream",
    "set_begin_allocate_to_pool": "gmlake_begin_pool",
    "set_end_allocate_to_pool_fn": "gmlake_end_pool",
    "set_release_pool": "gmlake_release_pool",
}


def _install_pluggable(torch: ModuleType) -> object:
    plugin = torch.cuda.memory.CUDAPluggableAllocator(str(LIBRARY), "gmlake_malloc", "gmlake_free")
    inner = plugin.allocator()
    missing = []
    for setter, name in HOOKS.items():
        if hasattr(inner, setter):
            address = ctypes.cast(getattr(library(), name), ctypes.c_void_p).value
            getattr(inner, setter)(address)
        else:
            missing.append(setter)
    if "set_record_stream_fn" in missing:
        raise NotEnabled(f"gmlake: PyTorch {torch.__version__} is too old: it does not report record_stream")
    if missing:
        warnings.warn(f"gmlake: this PyTorch does not have {', '.join(missing)}", stacklevel=5)
    torch.cuda.memory.change_current_allocator(plugin)
    _queries.answer(torch, stats, reset_peak, _segments)
    return plugin


@overload
def stats(device: None = None) -> list[_queries.Stats]: ...
@overload
def stats(device: int) -> _queries.Stats | None: ...
def stats(device: int | None = None) -> list[_queries.Stats] | _queries.Stats | None:
    """What the allocator knows: a dict for one GPU, or a list with one for each GPU in use.

    Bytes now and at most (`current`, `peak`: requested, allocated, active, reserved), `driver_calls` and `driver_ns` by
    call, `counters` of the allocator's own doings (hits per state among them), and counts of requests.
    """
    function = library().gmlake_stats
    room = function(None, 0) + 1
    while True:
        text = ctypes.create_string_buffer(room)
        length = function(text, room)
        if length < room:
            break
        room = length + 4096  # it has grown meanwhile
    found: list[_queries.Stats] = json.loads(text.value)
    if device is None:
        return found
    return next((each for each in found if each["device"] == device), None)


def reset_peak(device: int | None = None) -> None:
    """Lets the peaks begin anew, of one GPU or of all in use."""
    devices = [each["device"] for each in stats()] if device is None else [device]
    for each in devices:
        library().gmlake_reset_peak(each)


def record_history(entries: int = 10_000_000) -> None:
    """Keeps this many of the last events from now on, for `snapshot`; 0 records no more."""
    library().gmlake_record(entries)


def snapshot(path: str | os.PathLike[str]) -> None:
    """Writes history and present state, in the form of torch.cuda.memory._dump_snapshot.

    `gmlake-sim` and https://pytorch.org/memory_viz open it. A name that ends in `.json` gives JSON, any other a pickle.
    The history is empty unless it was switched on, by `enable(record=True)` or `record_history()`. On the virtual GPU a
    pickle replaces no file of a real GPU's.
    """
    from .predict import library as virtual

    path = Path(path)
    if path.suffix == ".json":
        _write_snapshot(path)
        return
    content = _snapshot(path.with_name(path.name + ".json.part"))
    with open(virtual.spared(path), "wb") as file:
        pickle.dump(virtual.mark(content), file, protocol=4)


def _write_snapshot(path: Path) -> None:
    problem = _error(library().gmlake_snapshot, str(path).encode())
    if problem:
        raise OSError(f"gmlake: {problem}")


def _snapshot(part: Path) -> dict[str, Any]:
    """What `snapshot` writes; `part` is a file for a moment."""
    _write_snapshot(part)
    try:
        with open(part) as file:
            content: dict[str, Any] = json.load(file)
    finally:
        part.unlink()
    for segment in content["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    for trace in content["device_traces"]:
        for entry in trace:
            entry["pool_id"] = tuple(entry["pool_id"])
    return content


def _segments() -> list[dict[str, Any]]:
    """What the allocator holds of all GPUs now, in the form of torch.cuda.memory_snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        found: list[dict[str, Any]] = _snapshot(Path(folder, "now.json"))["segments"]
    return found
