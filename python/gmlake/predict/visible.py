"""Visible devices: which GPUs of the machine a process sees, by `CUDA_VISIBLE_DEVICES` as the driver read it.

The library reads the variable when the script first uses a GPU, and says in its report what came of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .facts import LibraryReport, Rank


def gpus(devices: Iterable[int], report: LibraryReport) -> list[int]:
    """The machine's numbers of a process's devices."""
    visible = report["visible"]
    return [visible[device] for device in devices]


def notes(rank: Rank) -> Iterator[str]:
    """What to say of a script that names GPUs which are not there, or hides all."""
    text, count = rank.visible_devices, rank.visible_of
    if text is None or count is None:
        return
    numbers = [] if text.startswith("GPU-") else [int(number) for number in re.findall(r"(?<![-\w])\d+\b", text)]
    if max(numbers, default=0) >= count:
        yield (f"the script sets CUDA_VISIBLE_DEVICES={text}, but the machine has {count} GPU{'s' * (count > 1)}; "
               f"predict one that has more with --gpus {max(numbers) + 1}")
    elif not rank.visible_gpus:
        yield f"the script hides every GPU by CUDA_VISIBLE_DEVICES={text or repr(text)}"
