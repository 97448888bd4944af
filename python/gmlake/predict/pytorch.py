"""The wheel: whether the PyTorch that is installed here can run on the virtual GPU.

Its `version.py` tells, without an import of PyTorch, which takes seconds and may fail.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

from . import Problem

OLDEST = (2, 9)


def versions():
    """The versions of PyTorch and of its CUDA, such as 2.11.0+cu130 and 13.0.

    Raises `Problem` where this PyTorch cannot be used.
    """
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
    return str(name), version["cuda"]


def numbers(name):
    """The first two numbers of a version."""
    return tuple(int(part) for part in str(name).split("+")[0].split(".")[:2])
