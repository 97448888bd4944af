"""Scenarios of routing, as they are written after `--routing`:

    balanced        every expert gets as many tokens
    skew:FACTOR     the first expert gets FACTOR times its part, if that many choose it, and the others share the rest
    FILE            the share of each expert, a number a line
    W0 ... W7       the workloads of Megatron-LM's benchmark of imbalance (NVIDIA/Megatron-LM#7488), by these numbers
                    or by their names, such as W2_hot_rank

"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import Problem

WORKLOADS = [
    "W0_balanced", "W1_hot_expert_set", "W2_hot_rank", "W3_spread_hot_experts", "W4_source_ragged",
    "W5_zero_expert_rank", "W6_rotating_hotspot", "W7_burst",
]


@dataclass(frozen=True)
class Scenario:
    """One of a workload (0 is balanced), a factor of the first expert, the shares of all."""

    workload: int = 0
    factor: float = 0.0
    shares: list[float] = field(default_factory=list)


def parse(text: str) -> Scenario:
    """The scenario of a text."""
    if text == "balanced":
        return Scenario()
    if re.fullmatch("W[0-7]", text) or text in WORKLOADS:
        return Scenario(workload=int(text[1]))
    if text.startswith("skew:"):
        return Scenario(factor=factor(text))
    try:
        return Scenario(shares=shares(Path(text).read_text()))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Problem(f"--routing {text}: {reason}; write balanced, skew:FACTOR, W0 to W7, or a file with the share of "
                      "each expert, a number a line") from error


def absolute(text: str | None) -> str | None:
    """The same, with the whole path of a file."""
    is_file = text is not None and text != "balanced" and text not in WORKLOADS and not re.match("W[0-7]$|skew:", text)
    return os.path.abspath(text) if text is not None and is_file else text


def factor(text: str) -> float:
    """The factor of `skew:FACTOR`."""
    try:
        found = float(text.removeprefix("skew:"))
    except ValueError:
        found = 0.0
    if not 1 <= found < float("inf"):
        raise Problem(f"--routing {text}: write a factor of at least 1, such as skew:4")
    return found


def shares(text: str) -> list[float]:
    """The shares in a file, which are one together."""
    found = [float(word) for word in text.replace(",", " ").split()]
    if len(found) < 2 or min(found) < 0 or not 0 < sum(found) < float("inf"):
        raise ValueError("no shares of experts")
    return [share / sum(found) for share in found]
