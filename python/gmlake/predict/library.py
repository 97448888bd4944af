"""The library: libgmlake_gpu.so, the virtual GPU, and the environment in which PyTorch finds it.

PyTorch looks for NVIDIA's libraries by their file names. A folder of links, each under such a name
and all to our one file, stands first where the loader looks; and the library is preloaded under each
of the names, so that none of NVIDIA's files is loaded by another path: what a program opens by its
name, as vLLM does with libnccl.so.2, is ours.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from . import Problem

if TYPE_CHECKING:
    from .facts import LibraryReport
    from .pytorch import Wheel

NAME = "libgmlake_gpu.so"

# Of its environment variables.
PREFIX = "GMLAKE_GPU"

# File names by which PyTorch, Triton and others open CUDA's libraries, for CUDA 12 and 13.
NAMES = """
libcuda.so.1
libcudart.so.12 libcudart.so.13
libcublas.so.12 libcublas.so.13 libcublasLt.so.12 libcublasLt.so.13
libcudnn.so.9
libcufft.so.11 libcufft.so.12
libcufile.so.0
libcupti.so.12 libcupti.so.13
libcurand.so.10
libcusolver.so.11 libcusolver.so.12
libcusparse.so.12 libcusparseLt.so.0
libnccl.so.2
libnvJitLink.so.12 libnvJitLink.so.13
libnvrtc.so.12 libnvrtc.so.13
libnvshmem_host.so.3
libnvToolsExt.so.1
libnvidia-ml.so.1
""".split()

# A snapshot's key that says that its GPU was virtual.
MARK = "gmlake_virtual_gpu"

# For compilers: Triton 3.5, of PyTorch 2.9, links what it builds with -lcuda. Such a file is kept and may later run on a
# real GPU, so it must need libcuda.so.1 and not a name that only we have.
LINKED, LINKER_SCRIPT = "libcuda.so", "INPUT(-l:libcuda.so.1)\n"

# Variables that would hide our devices, or make PyTorch ask the real ones.
CLEARED = ["CUDA_VISIBLE_DEVICES", "PYTORCH_NVML_BASED_CUDA_CHECK"]

# Where torch.compile keeps its results. What it finds there changes what it requests, and it decides by times, under the name
# of the card: each process begins with nothing, and a real GPU does not find what a virtual one said.
COMPILED = "TORCHINDUCTOR_CACHE_DIR"

UNLIMITED = 4 << 40  # bytes; more than any card, and addresses are there for it


def find() -> str:
    """The library's path: GMLAKE_GPU_LIBRARY, or in the package, or in a source tree's build."""
    named = os.environ.get("GMLAKE_GPU_LIBRARY")
    if named:
        if not os.path.exists(named):
            raise Problem(f"GMLAKE_GPU_LIBRARY: {named}: no such file")
        return os.path.abspath(named)
    packed = Path(__file__).parents[1] / NAME
    built = Path(__file__).parents[3].glob(f"target/*/{NAME}")
    found = [packed] if packed.exists() else sorted(built, key=lambda path: path.stat().st_mtime)
    if not found:
        raise Problem(f"{NAME} is not in this installation; in a source tree, build it with "
                      "cargo build --release -p gmlake-virtual-gpu")
    return str(found[-1])


def cards(path: str) -> list[str]:
    """Names of the cards that the library can be; empty if it does not tell."""
    try:
        function = ctypes.CDLL(path).gmlake_gpu_cards
    except (AttributeError, OSError):
        return []
    return list(json.loads(_text(function) or "[]"))


def links(path: str, folder: str) -> None:
    """Fills `folder` with links to the library under the names of CUDA's libraries."""
    for name in [NAME, *NAMES]:
        os.symlink(path, os.path.join(folder, name))
    Path(folder, LINKED).write_text(LINKER_SCRIPT)


def environment(folder: str, wheel: Wheel, **settings: object) -> dict[str, str]:
    """The environment of a process in which PyTorch finds the virtual GPU, by the links.

    `wheel` has the versions that PyTorch was built for. The settings are the library's own, such as
    `memory`; one that is None is left to it. What the process compiles goes into `folder`, too.
    """
    own = {name: value for name, value in os.environ.items() if name not in CLEARED}
    # The loader finds the names by the path below, and takes the same name for loaded from then on.
    own["LD_PRELOAD"] = _before(":".join([os.path.join(folder, NAME), *NAMES]), own.get("LD_PRELOAD"))
    own["LD_LIBRARY_PATH"] = _before(folder, own.get("LD_LIBRARY_PATH"))
    major, minor = map(int, wheel.cuda.split(".")[:2])
    own = {name: value for name, value in own.items() if not name.startswith(PREFIX)}
    settings |= {"cuda": 1000 * major + 10 * minor, "cudnn": wheel.cudnn}
    own[COMPILED] = tempfile.mkdtemp(prefix="torchinductor_", dir=folder)
    for name, value in settings.items():
        if value is not None:
            own[PREFIX if name == "card" else f"{PREFIX}_{name.upper()}"] = str(value)
    return own


def is_virtual() -> bool:
    """Whether the GPU of this process is the virtual one."""
    return PREFIX + "_CUDA" in os.environ


def mark(snapshot: Any) -> Any:
    """Says in a snapshot that it was made on the virtual GPU, if this process has it: its times are no GPU's."""
    if is_virtual():
        snapshot[MARK] = os.environ.get(PREFIX) or True
    return snapshot


def marked(path: str) -> bool:
    """Whether the snapshot in a file says so: `mark` adds its key last, so that it is within the file's last KiB."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 1024))
        return MARK.encode() in file.read()


def spared(path: str | os.PathLike[str]) -> str:
    """Where the script may dump: `path`, or beside it if a file with contents is there that the virtual GPU did not make."""
    path = os.fspath(path)
    if not is_virtual() or not os.path.isfile(path) or not os.path.getsize(path) or marked(path):
        return path
    root, extension = os.path.splitext(path)
    beside = f"{root}.predicted{extension}"
    print(f"gmlake: {path} is kept as it was; the script's snapshot is in {beside}", file=sys.stderr, flush=True)
    return beside


def report() -> LibraryReport:
    """What the library counted in this process; empty where it is not loaded."""
    function = getattr(ctypes.CDLL(None), "gmlake_gpu_report", None)
    return cast("LibraryReport", json.loads(_text(function))) if function else {}


def all_done_ns() -> int:
    """When all that was asked for so far will be done, by the clock that estimates; 0 where there is none."""
    function = getattr(ctypes.CDLL(None), "gmlake_gpu_all_done_ns", None)
    if not function:
        return 0
    function.restype = ctypes.c_uint64
    return int(function())


def real_gpus() -> list[str]:
    """Device files of NVIDIA GPUs that this machine has."""
    return sorted(glob.glob("/dev/nvidia[0-9]*"))


def _before(first: str, rest: str | None) -> str:
    """A list of paths as the loader reads it, with one put before the others."""
    return f"{first}:{rest}" if rest else first


def _text(function: Any) -> str:
    """The text that a function writes into a buffer, whose whole length it returns. Each call may have a longer one."""
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    buffer = ctypes.create_string_buffer(1)
    while (length := function(buffer, len(buffer))) >= len(buffer):
        buffer = ctypes.create_string_buffer(length + 64)
    return buffer.value.decode()
