"""The change: what a rank needs more or less than its baseline says, and which line is the reason.

A line's name has its number in it, and numbers move. So lines are compared within their function:

    baseline   train.py:30 step  2 GiB     train.py:34 step  1 GiB
    now        train.py:31 step  2 GiB     train.py:35 step  3 GiB
               the same bytes: it moved    left over in both: this one grew, by 2 GiB
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """Bytes of a line in the baseline and now."""

    name: str
    before: int
    after: int


class Tolerance(NamedTuple):
    """How much more is no regression: a share of what it was, or bytes."""

    is_share: bool
    amount: float


# Bytes and blocks of each line; and with its name in front.
Rows = Mapping[str, Sequence[int]]
Row = tuple[str, int, int]

QUANTITIES = {"live_peak_bytes": "live", "reserved_peak_bytes": "reserved", "pinned_peak_bytes": "pinned"}


def lines(before: Rows, after: Rows) -> list[Line]:
    """Lines whose bytes differ, those that grew most first.

    Both are bytes and blocks by name. The growths add up to that of the whole.
    """
    functions: defaultdict[str | tuple[str, str], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((before, after)):
        for name, (count, blocks) in rows.items():
            functions[function(name)][side].append((name, count, blocks))
    found: list[Line] = []
    for old, new in functions.values():
        found += paired(*without_same(old, new))
    return sorted(found, key=lambda line: (line.before - line.after, line.name))


def function(name: str) -> str | tuple[str, str]:
    """File and function of a line, without its number; another name as it is."""
    place, _, rest = name.partition(" ")
    file, _, number = place.rpartition(":")
    return (file, rest) if number.isdigit() else name


def without_same(old: Sequence[Row], new: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
    """The rows that have no twin: the same name and bytes, or else only the same bytes and blocks."""
    for first in (0, 1):
        left: defaultdict[tuple[str | int, ...], list[Row]] = defaultdict(list)
        for row in old:
            left[row[first:]].append(row)
        rest = [row for row in new if not (left[row[first:]] and left[row[first:]].pop())]
        old, new = [row for rows in left.values() for row in rows], rest
    return old, new


def paired(old: Iterable[Row], new: Iterable[Row]) -> list[Line]:
    """Rows as lines: those of one name are one; of what is left, the first with the first, by line numbers."""
    was = {name: count for name, count, _ in old}
    found, came = [], []
    for name, count, _ in new:
        if name in was:
            found.append(Line(name, was.pop(name), count))
        else:
            came.append((name, count))
    gone = sorted(was.items(), key=lambda row: number(row[0]))
    came.sort(key=lambda row: number(row[0]))
    if len(gone) == len(came):
        return found + [Line(name, one[1], count) for one, (name, count) in zip(gone, came)]
    return found + [Line(n, 0, c) for n, c in came] + [Line(n, c, 0) for n, c in gone]


def number(name: str) -> int:
    """The number in a line's name; 0 where there is none."""
    digits = name.partition(" ")[0].rpartition(":")[2]
    return int(digits) if digits.isdigit() else 0


def is_beyond(before: int, after: int, tolerance: Tolerance) -> bool:
    """Whether a quantity grew by more than is tolerated: a share, or bytes."""
    most = tolerance.amount * before if tolerance.is_share else tolerance.amount
    return after - before > most
