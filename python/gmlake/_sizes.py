"""Sizes in bytes, as people write and read them. Units are binary, as in `gmlake-sim`."""

from __future__ import annotations

import re

LEAST = 1 << 20  # bytes; where less is meant, a unit was forgotten
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse(text: str) -> int:
    """Bytes of a size such as 80GiB; ValueError if it is none, or zero."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if not found or not 0 < float(found[1]) < float("inf"):
        raise ValueError(f"{text}: write a size such as 80GiB")
    return int(float(found[1]) * UNITS[found[2].lower()])


def show(count: float | None) -> str:
    """A number of bytes with three digits; a dash where it is not known."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if count < (1024 if unit == "B" else 1023.995):
            return f"{count} B" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
