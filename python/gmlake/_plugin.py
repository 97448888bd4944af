"""The shared library, and how PyTorch is made to use it."""

import ctypes
import json
import os
import pickle
import warnings
from pathlib import Path

from . import _children, _queries
from . import mount as full

LIBRARY = Path(__file__).with_name("libgmlake_torch.so")

_state = {"library": None, "allocator": None, "mount": None}


class NotEnabled(RuntimeError):
    """The allocator cannot be, or was not, put in place; the text says why."""


def _library():
    """The shared library, loaded once; ctypes keeps it for as long as the process lives."""
    if _state["library"] is None:
        # For all to see: the full mount finds our functions by name.
        library = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
        text, size = ctypes.c_char_p, ctypes.c_size_t
        for name, arguments in {
            "gmlake_configure": [text, text, size],
            "gmlake_check": [ctypes.c_int, text, size],
            "gmlake_snapshot": [text, text, size],
            "gmlake_stats": [text, size],
        }.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, size
        library.gmlake_reset_peak.argtypes, library.gmlake_reset_peak.restype = [ctypes.c_int], None
        library.gmlake_record.argtypes, library.gmlake_record.restype = [size], None
        _state["library"] = library
    return _state["library"]


def _error(function, *arguments):
    """Calls a function that returns the length of an error message, and returns the message; empty if there is none."""
    room = 4096
    message = ctypes.create_string_buffer(room)
    return message.value.decode() if function(*arguments, message, room) else ""


def _configuration(allocator, options):
    """GMLAKE_CONF with what was given here in place of what it says, in its syntax."""
    pieces = {}
    for piece in os.environ.get("GMLAKE_CONF", "").split(","):
        if piece.strip():
            name, _, value = piece.partition("=")
            pieces[name.strip()] = value.strip()
    if allocator is not None:
        if pieces.get("allocator", allocator) != allocator:
            # Another allocator's options mean nothing here; the plug-in's own do.
            pieces = {name: value for name, value in pieces.items() if name in ("record", "poison")}
        pieces["allocator"] = allocator
    for name, value in options.items():
        pieces[name] = {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    return ",".join(f"{name}={value}" for name, value in pieces.items())


def check(device=0):
    """Why a GPU cannot be used, in a sentence; an empty text if it can. Opens the GPU."""
    return _error(_library().gmlake_check, device)


def enabled():
    """Whether PyTorch's GPU memory comes from here."""
    return _state["allocator"] is not None


def mounted():
    """How the allocator is in place: "full", "pluggable" (PyTorch asks it little), or None."""
    if not enabled():
        return None
    return "full" if _state["mount"] else "pluggable"


def enable(allocator=None, **options):
    """Lets all GPU memory of this process come from `allocator` (by default the best that there is).

    To be called before PyTorch puts anything on a GPU. Options are those that `gmlake-sim allocators` lists, and
    `record=True` (keep a history for `snapshot`) and `poison=True` (a slow mode that finds writes to freed memory).
    What is not given here is taken from the environment variable GMLAKE_CONF.

    Raises `NotEnabled` if PyTorch or a GPU is missing or it is too late, and ValueError for a wrong name or option.
    """
    enable_configured(_configuration(allocator, options), check_first=True)


def enable_configured(configuration, check_first=False):
    """The same with settings in the syntax of GMLAKE_CONF. A GPU is opened only to look whether there is one."""
    problem = _error(_library().gmlake_configure, configuration.encode())
    if problem:
        raise ValueError(f"gmlake: {problem}")
    if enabled():
        return
    try:
        import torch
    except ImportError as error:
        raise NotEnabled(f"gmlake: PyTorch is not installed ({error})") from error
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise NotEnabled(f"gmlake: this PyTorch ({torch.__version__}) was built without CUDA")
    if torch.cuda.is_initialized():
        raise NotEnabled("gmlake: PyTorch has used the GPU already; call gmlake.enable() before")
    problem = check(_first_device()) if check_first else ""
    if problem:
        raise NotEnabled(problem)
    _state["allocator"] = _mount(torch) or _install(torch)
    _children.inherit(configuration)


def _mount(torch):
    """Puts the full mount in place, if there is one for this PyTorch; otherwise says what is missing without it."""
    path, why = full.library(torch.__version__)
    if path is None:
        warnings.warn(f"gmlake: {why}: mounted as a pluggable allocator, without graph trees, MemPool and history", stacklevel=3)
        return None
    _library()
    mounted = ctypes.CDLL(str(path))
    outcome = mounted.gmlake_mount_install()
    if outcome == 1:
        raise NotEnabled("gmlake: PyTorch has used the GPU already; call gmlake.enable() before")
    if outcome == 2:
        raise NotEnabled("gmlake: PYTORCH_CUDA_ALLOC_CONF asks for backend:cudaMallocAsync; leave that out")
    _state["mount"] = mounted
    return mounted


def _first_device():
    """The GPU that this process will use first, by the convention of the launchers."""
    local = os.environ.get("LOCAL_RANK", "0")
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return int(local) if local.isdigit() and (not visible or int(local) < len(visible)) else 0


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


def _install(torch):
    plugin = torch.cuda.memory.CUDAPluggableAllocator(str(LIBRARY), "gmlake_malloc", "gmlake_free")
    inner = plugin.allocator()
    missing = []
    for setter, name in HOOKS.items():
        if hasattr(inner, setter):
            address = ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
            getattr(inner, setter)(address)
        else:
            missing.append(setter)
    if "set_record_stream_fn" in missing:
        raise NotEnabled(f"gmlake: PyTorch {torch.__version__} is too old: it does not pass record_stream on")
    if missing:
        warnings.warn(f"gmlake: this PyTorch does not have {', '.join(missing)}", stacklevel=3)
    torch.cuda.memory.change_current_allocator(plugin)
    _queries.answer(torch, stats, reset_peak)
    return plugin


def stats(device=None):
    """What the allocator knows: a dict for one GPU, or a list with one for each GPU in use.

    Bytes now and at most (`current`, `peak`: requested, allocated, active, reserved), `driver_calls` and `driver_ns` by
    call, `counters` of the allocator's own doings (hits per state among them), and counts of requests.
    """
    function = _library().gmlake_stats
    room = function(None, 0) + 1
    while True:
        text = ctypes.create_string_buffer(room)
        length = function(text, room)
        if length < room:
            break
        room = length + 4096  # it has grown meanwhile
    found = json.loads(text.value)
    if device is None:
        return found
    return next((each for each in found if each["device"] == device), None)


def reset_peak(device=None):
    """Lets the peaks begin anew, of one GPU or of all in use."""
    devices = [each["device"] for each in stats()] if device is None else [device]
    for each in devices:
        _library().gmlake_reset_peak(each)


def record_history(entries=10_000_000):
    """Keeps this many of the last events from now on, for `snapshot`; 0 records no more."""
    _library().gmlake_record(entries)


def snapshot(path):
    """Writes history and present state, in the form of torch.cuda.memory._dump_snapshot.

    `gmlake-sim` and https://pytorch.org/memory_viz open it. A name that ends in `.json` gives JSON, any other a pickle.
    The history is empty unless it was switched on, by `enable(record=True)` or `record_history()`.
    """
    path = Path(path)
    part = path if path.suffix == ".json" else path.with_name(path.name + ".json.part")
    problem = _error(_library().gmlake_snapshot, str(part).encode())
    if problem:
        raise OSError(f"gmlake: {problem}")
    if part == path:
        return
    try:
        with open(part) as file:
            content = json.load(file)
    finally:
        part.unlink()
    for segment in content["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    for trace in content["device_traces"]:
        for entry in trace:
            entry["pool_id"] = tuple(entry["pool_id"])
    with open(path, "wb") as file:
        pickle.dump(content, file, protocol=4)
