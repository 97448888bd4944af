"""The series: configurations that differ in one number, and where each card's memory ends.

`gmlake-sim plan --by` runs every recording on every card under each allocator.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from . import simulator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .facts import Configuration

# How fine the smallest memory is to be: a chart shows no more, and each step costs runs.
RESOLUTION = "256MiB"

LONGEST = 100  # bytes of a mark: the name of a file has up to 255, and other parts


def series_of(configurations: Iterable[Configuration]) -> list[Series]:
    """A series by the first varied name, if it is a number, for each combination of the others."""
    groups: dict[str, Series] = {}
    for each in configurations:
        name, *others = each.values
        if is_number(each.values[name]):
            rest = {other: each.values[other] for other in others}
            groups.setdefault(label(rest), Series(name, rest, [])).members.append(each)
    for series, mark in zip(groups.values(), marks(series.others for series in groups.values())):
        series.mark = f".{mark}" if mark else ""
    return [series for series in groups.values() if len(series.members) > 1]


def is_number(text: str) -> bool:
    """Whether it can be one of a series."""
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return False


def label(values: Mapping[str, str]) -> str:
    """Names and values in tables and files."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def marks(points: Iterable[Mapping[str, str]]) -> list[str]:
    """Each point in the names of its files. What a name may not have becomes `_`; a mark that is taken gets a number."""
    found: list[str] = []
    for values in points:
        plain = re.sub(r"[^\w.,=+-]", "_", label(values)).encode()[:LONGEST].decode(errors="ignore")
        mark, number = plain, 1
        while mark in found:
            number += 1
            mark = f"{plain}-{number}"
        found.append(mark)
    return found


class Series:
    """Configurations that differ in the first varied value alone."""

    def __init__(self, name: str, others: dict[str, str], members: list[Configuration]) -> None:
        self.name, self.others, self.members = name, others, members
        self.mark = ""  # what tells its chart's file from those of the other series

    @property
    def own(self) -> str:
        """The allocator that served all of them; if they had several, PyTorch's without expandable segments."""
        found = {rank.allocator for each in self.members for rank in each.ranks}
        return (found.pop() if len(found) == 1 else None) or simulator.ALLOCATORS[0]

    def ask(self, chart: str | None) -> dict[str, Any]:
        """What `gmlake-sim plan` says of them: where each card's memory ends."""
        files = [rank.snapshot for each in self.members for rank in each.ranks]
        by = f"{self.name}=" + ",".join(number(float(each.values[self.name])) for each in self.members)
        options = ["--by", by, "--resolution", RESOLUTION]
        options += ["--allocators", ",".join(simulator.allocators(self.own))]
        options += ["--export-plot", chart] if chart else []
        reply = simulator.ask("plan", *files, *options)
        return {"others": self.others, **reply["series"]}

    def table(self, reply: Mapping[str, Any]) -> str:
        """Largest values by card and allocator."""
        title = f"Largest {self.name} on each card"
        title += f",\nwith {', '.join(label(self.others).split(','))}" if self.others else ""
        title += f",\nof {list_of(reply['values'])} (+: runs at the last)"
        rows: dict[str, dict[str, str]] = {}
        for limit in reply["limits"]:
            rows.setdefault(limit["target"], {})[limit["allocator"]] = text_of(limit)
        shape = "{:<14}" + " {:>14}" * len(simulator.ALLOCATORS)
        lines = [shape.format("card", "PyTorch", *simulator.ALLOCATORS[1:])]
        for card, found in rows.items():
            cells = [found.get(name, "-") for name in [self.own, *simulator.ALLOCATORS[1:]]]
            lines.append(shape.format(card, *cells))
        return "\n".join([title, *lines])


def list_of(values: Iterable[float]) -> str:
    """Numbers in a row."""
    return ", ".join(map(number, values))


def number(value: float) -> str:
    """A number as people write it."""
    return str(int(value)) if value == int(value) else str(value)


def text_of(limit: Mapping[str, Any]) -> str:
    """One cell: the largest value that runs."""
    if limit["kind"] == "below":
        return "none"
    return f"{number(limit['largest'])}+" if limit["kind"] == "beyond" else number(limit["runs"])
