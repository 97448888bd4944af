"""What `--serve` makes of the other options, and of SCRIPT."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from .. import Problem
from . import requests

if TYPE_CHECKING:
    import argparse

    from ..order import Order


def check(given: argparse.Namespace) -> None:
    """Whether the options get along with --serve."""
    for name in ("world", "ranks", "steps", "unknown", "stacks", "categories"):
        if getattr(given, name):
            raise Problem(f"--{name} does not work with --serve: a server starts its own processes, and ends when it is ready")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        raise Problem("--serve does not work under torchrun: a server starts its own processes")
    if given.requests:
        requests.read(given.requests)


def script(order: Order) -> str:
    """The file of a command such as `vllm`, beside this Python or on PATH; any other script as it is."""
    if order.module or os.path.exists(order.script):
        return order.script
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    found = shutil.which(order.script, path=os.pathsep.join(folders))
    if not found and order.script == "vllm":
        raise Problem(f"vLLM is not installed for {sys.executable}; install it (pip install vllm), or name a script")
    return found or order.script
