"""The interval: what each source of doubt adds below and above the best guess.

    clock        the script again, on a faster and on a slower GPU
    workspaces   the recording again, with workspaces drawn from the errors that were measured (`ends`)
    values       the script again, with other values in place of those that only a kernel could know
    unexplained  what answers without any of these were off by

The sources have nothing to do with each other, so their bytes are added.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .facts import COMPARED, COPIED, WHOLE, Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .facts import Facts, Rank, UnknownRead
    from .simulator import Peak

# Bytes of the best guess, and at least this many: "What no source explains" in reports/predict.md.
UNEXPLAINED, SEGMENT = 0.0035, 2 << 20

# What is read where a value decides; floats are mostly printed, unless the user's code decides by them.
DECIDES = re.compile(rf"^size of|^{COPIED}|values? of (bool|u?int\d+)|{COMPARED}|{WHOLE}")
BRANCHES = re.compile(rf" of bool|{COMPARED}")


class Peaks(NamedTuple):
    """Runs that bound a best guess, with what they held: on other GPUs, with other workspaces, with other values."""

    clock: Sequence[Peak]
    drawn: Sequence[Peak]
    values: Sequence[Peak]


def shares(best: int, live: int, facts: Facts, bounds: Peaks) -> list[Share]:
    """The shares of a rank that holds `best` bytes for those that were live, by the runs that bound it."""
    found = []
    clock, drawn, values = ([peak.bytes for peak in peaks] for peaks in bounds)
    if clock:
        what = "other streams are done" if facts.oom_step is None else "memory that ran out comes back"
        found.append(Share("clock", *around(best, clock), f"when {what} decides"))
    if drawn:  # the first drawing is the recording as it is, by which the model is judged alike
        kinds = sorted({guess[0] for guess in facts.library.get("guesses", [])})
        found.append(Share("workspaces", *around(drawn[0], drawn), f"estimates for {' and '.join(kinds)}"))
    if values:
        below, above = around(best, values)
        found.append(Share("values", below, above, deciding(facts, "decides" if below or above else "may decide")))
    off, least = unexplained(best), min(best, -(-live // segment(best)) * segment(best))
    room = best - least - sum(share.below for share in found if share.source == "clock")  # which leaves alone what is live
    why = "answers without another source of doubt were off by as much"
    return [*found, Share("unexplained", max(0, min(off, room)), off, why)]


def around(best: int, peaks: Iterable[int]) -> tuple[int, int]:
    """How far peaks lie below and above the best guess."""
    peaks = [best, *peaks]
    return best - min(peaks), max(peaks) - best


def unexplained(best: int) -> int:
    """Bytes by which an answer may be off without any source of doubt: as PyTorch reserves, in whole segments."""
    return max(int(UNEXPLAINED * best) // segment(best) * segment(best), SEGMENT)


def segment(best: int) -> int:
    """Of what the bytes that are reserved are a multiple: of 2 MiB, unless `large_segment_size_mb` is an odd number."""
    return math.gcd(best, SEGMENT)


def ends(best: int, found: Iterable[Share]) -> tuple[int, int]:
    """The ends of the interval. Who requested anything has at least one segment."""
    below, above = (sum(getattr(share, side) for share in found) for side in ("below", "above"))
    return max(min(best, SEGMENT), best - below), best + above


def uppermost(best: int, bounds: Peaks) -> list[Facts]:
    """Of each source the run that needs most, where that is noticeably more than the best guess."""
    bases = best, bounds.drawn[0].bytes if bounds.drawn else 0, best
    found = []
    for base, peaks in zip(bases, bounds):
        most = max(peaks, key=lambda peak: peak.bytes, default=None)
        if most and most.bytes - base > unexplained(best):
            found.append(most.facts)
    return found


def deciders(it: Facts | Rank) -> Iterator[UnknownRead]:
    """Reads of what is not sure that may decide what is requested: sizes, conditions and whole numbers."""
    reads = [*(it.unknown_reads or []), *(it.computed_reads or [])]
    return (read for read in reads if DECIDES.search(read["what"]))


def open_ended(it: Facts | Rank, differs: bool) -> Iterator[UnknownRead]:
    """Deciders of which runs with other values are examples, and no ends: what every run reads alike; and where these
    runs went another way, branches, which may be taken again and again (a line search, a solver's steps)."""
    return (read for read in deciders(it) if read["what"].startswith(COPIED) or differs and BRANCHES.search(read["what"]))


def deciding(facts: Facts, decides: str) -> str:
    """The line that decides, in words."""
    most = max(deciders(facts), key=lambda read: read["count"], default=None)
    return f"{most['place']} ({most['what']}) {decides}" if most else f"values {decides.replace('decides', 'decide')}"
