"""Builds the mount for one version of PyTorch, from the headers of its wheel and NVIDIA's header packages.

    python -m gmlake mount                                    # for the PyTorch that is installed here
    python -m gmlake mount --torch DIR --cuda INCLUDE         # for one that was unpacked: DIR has include/ and lib/

What is needed is g++ 11 or later, and CUDA's headers: `pip install nvidia-cuda-runtime nvidia-cuda-crt` has them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import HERE, SOURCES, minor

if TYPE_CHECKING:
    import argparse


class NotBuilt(RuntimeError):
    """The mount was not built; the text says why."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `mount` to the commands of `python -m gmlake`."""
    text = "build the library for graph trees, MemPool and history in this PyTorch"
    parser = commands.add_parser("mount", help=text, description=f"{text[0].upper()}{text[1:]}. Needs g++ and CUDA's headers.")
    parser.add_argument("--torch", metavar="DIR", help="an unpacked PyTorch, with include/ and lib/ [default: the installed one]")
    parser.add_argument("--cuda", metavar="DIR", help="folder of CUDA's headers [default: the installed NVIDIA packages]")
    parser.add_argument("--out", metavar="DIR", default=str(HERE), help="folder for the library [default: this package]")
    parser.add_argument("--cxx", metavar="NAME", default=os.environ.get("CXX", "g++"), help="the compiler [default: g++]")


def main(given: argparse.Namespace) -> int:
    """The command `mount`; returns the exit code."""
    try:
        print(build(given.torch and Path(given.torch), given.cuda, Path(given.out), given.cxx))
    except NotBuilt as error:
        print(f"gmlake: {error}", file=sys.stderr)
        return 2
    return 0


def build(torch: Path | None, cuda: str | None, out: Path, cxx: str) -> Path:
    """Builds one library, and returns where it is."""
    torch = torch or installed_torch()
    version = version_of(torch)
    number = minor(version)
    if number is None:
        raise NotBuilt(f"PyTorch {version} is not one of 2.9 to 2.15")
    if not shutil.which(cxx):
        raise NotBuilt(f"there is no compiler {cxx}")
    target = out / f"libgmlake_mount_2_{number}.so"
    part = target.with_suffix(f".{os.getpid()}.part")
    command = [
        cxx, "-shared", "-fPIC", "-O2", "-std=c++20", "-fvisibility=hidden", "-s", f"-DGMLAKE_MINOR={number}",
        "-isystem", str(torch / "include"), "-isystem", str(cuda or cuda_headers(torch)),
        *(str(HERE / name) for name in SOURCES),
        f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10_cuda", "-lc10", "-o", str(part),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise NotBuilt(f"{cxx} failed:\n{done.stderr}")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def installed_torch() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NotBuilt("PyTorch is not installed; name an unpacked one with --torch")
    return Path(spec.origin).parent


def version_of(torch: Path) -> str:
    try:
        found = re.search(r"^__version__ = '([^']*)'", (torch / "version.py").read_text(), re.MULTILINE)
    except OSError as error:
        raise NotBuilt(f"{torch}: no PyTorch ({error.strerror})") from error
    return found[1] if found else "without a version"


def cuda_headers(torch: Path) -> Path:
    """CUDA's headers: of the NVIDIA packages next to PyTorch, or of an installed toolkit."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    for place in [*sorted((torch.parent / "nvidia").glob("*/include")), toolkit / "include"]:
        if (place / "cuda_runtime_api.h").exists() and (place / "crt" / "host_defines.h").exists():
            return place
    raise NotBuilt("CUDA's headers are missing: pip install nvidia-cuda-runtime nvidia-cuda-crt, or name them with --cuda")
