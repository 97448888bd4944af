"""The wheel: whether the PyTorch that is installed here can run on the virtual GPU.

Its `version.py` and its metadata tell, without an import of PyTorch, which takes seconds and may fail.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import runpy
import sys
from pathlib import Path
from typing import NamedTuple

from . import Problem

OLDEST = (2, 9)


class Wheel(NamedTuple):
    """Versions of PyTorch and of the CUDA that it was built for, such as 2.11.0+cu130 and 13.0.

    That of cuDNN is a number, such as 91900, or None where the wheel does not say.
    """

    torch: str
    cuda: str
    cudnn: int | None


def versions() -> Wheel:
    """The versions of the PyTorch that is installed. Raises `Problem` where it cannot be used."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        raise Problem(f"PyTorch is not installed for {sys.executable}; install a wheel for CUDA")
    version = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    name = version["__version__"]
    if version.get("hip"):
        raise Problem(f"PyTorch {name} is for AMD's GPUs; predict needs a wheel for CUDA")
    if not version.get("cuda"):
        raise Problem(f"PyTorch {name} was built without CUDA; predict needs a wheel for CUDA, "
                      "which installs without a GPU too")
    if numbers(name) < OLDEST:
        raise Problem(f"PyTorch {name} is too old; predict works with 2.9 and later")
    return Wheel(str(name), version["cuda"], cudnn(Path(found.origin).parents[1]))


def cudnn(folder: Path) -> int | None:
    """The version of cuDNN that the wheel in this folder was compiled for: it requires that very one."""
    for wheel in importlib.metadata.distributions(name="torch", path=[str(folder)]):
        for requirement in wheel.requires or []:
            pinned = re.match(r"nvidia-cudnn-cu\d+\W*==(\d+)\.(\d+)\.(\d+)", requirement)
            if pinned:
                major, minor, patch = map(int, pinned.groups())
                return 10_000 * major + 100 * minor + patch
    return None


def numbers(name: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in str(name).split("+")[0].split(".")[:2])
