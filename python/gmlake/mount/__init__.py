"""The full mount: an allocator of PyTorch's own kind, in C++, over libgmlake_torch.so.

There is a library for each minor version of PyTorch, built from that version's headers by `build`.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = ("requests.cpp", "private_pools.cpp", "questions.cpp", "others.cpp", "sleep.cpp", "host.cpp")


def minor(version: str) -> int | None:
    """The 11 of `2.11.0+cu130`; None for a version that the sources do not know, or one that was not released."""
    found = re.fullmatch(r"2\.(\d+)\.\d+(\+\w+)?", version)
    return int(found[1]) if found and 9 <= int(found[1]) <= 15 else None


def library(version: str) -> tuple[Path | None, str]:
    """The library for this version of PyTorch, and why there is none if there is none."""
    number = minor(version)
    if number is None:
        return None, f"this PyTorch ({version}) is not one of 2.9 to 2.15"
    path = HERE / f"libgmlake_mount_2_{number}.so"
    if not path.exists():
        return None, f"no mount was built for PyTorch 2.{number}; `python -m gmlake mount` builds it (with g++)"
    return path, ""
