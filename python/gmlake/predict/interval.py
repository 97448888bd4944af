"""The interval: what each source of doubt adds below and above the best guess.

    clock        the script again, on a faster and on a slower GPU
    workspaces   the recording again, with workspaces drawn from the errors that were measured (`ends`)
    values       the script again, with other values in place of those that only a kernel could know
    unexplained  what answers without any of these were off by

The sources have nothing to do with each other, so their bytes are added.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import simulator
from .facts import Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .facts import Facts, Rank, UnknownRead

# Bytes of the best guess, and at least this many: "What no source explains" in reports/predict.md.
UNEXPLAINED, SEGMENT = 0.0035, 2 << 20

# What is read where a value decides; floats are mostly printed.
DECIDES = re.compile(r"^size of|values? of (bool|u?int\d+)")


def shares(best: int, facts: Facts, clock: Sequence[int], values: Sequence[int]) -> list[Share]:
    """The shares of a rank that holds `best` bytes; the others are peaks of the runs that bound it."""
    found = []
    if clock:
        found.append(Share("clock", *around(best, clock), "when other streams are done decides"))
    if facts.drawings:
        found.append(workspaces(facts))
    if values:
        found.append(Share("values", *around(best, values), deciding(facts)))
    off = max(int(UNEXPLAINED * best), SEGMENT)
    return [*found, Share("unexplained", off, off, "answers without another source of doubt were off by as much")]


def around(best: int, peaks: Iterable[int]) -> tuple[int, int]:
    """How far peaks lie below and above the best guess."""
    peaks = [best, *peaks]
    return best - min(peaks), max(peaks) - best


def workspaces(facts: Facts) -> Share:
    """The share of workspaces. The first drawing is the recording as it is, by which the model is judged alike."""
    base, *drawn = simulator.played(facts)
    below, above = around(base, drawn)
    kinds = sorted({guess[0] for guess in facts.library.get("guesses", [])})
    return Share("workspaces", below, above, f"estimates for {' and '.join(kinds)}")


def deciders(it: Facts | Rank) -> Iterator[UnknownRead]:
    """Reads of what is not sure that may decide what is requested: sizes, conditions and whole numbers."""
    reads = [*(it.unknown_reads or []), *(it.computed_reads or [])]
    return (read for read in reads if DECIDES.search(read["what"]))


def deciding(facts: Facts) -> str:
    """The line that decides, in words."""
    most = max(deciders(facts), key=lambda read: read["count"], default=None)
    return f"{most['place']} ({most['what']}) decides" if most else "values decide"
