"""The grid: one script in many configurations, side by side, and what runs on which card.

`--vary NAME=LIST` puts each value in for `{NAME}` in the script's arguments, or appends
`--NAME VALUE`. Several make every combination. In the end `gmlake-sim plan --by` says up to which
value of the first of them each card is enough under each allocator: one table for each combination
of the others.
"""

from __future__ import annotations

import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from .. import _files, _sizes
from .._stdout import tell
from . import Problem, answer, sharing
from .facts import Configuration, Rank
from .outputs import Outputs, made, name_of
from .prediction import failed, predict
from .progress import Progress
from .series import is_number, label, marks, series_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from .order import Ranks, Task
    from .run import Workshop

ROW = "{:>{wide}} {:>10} {:>10} {:>10} {:>10}  {}"


def configurations(varied: Sequence[str]) -> list[dict[str, str]]:
    """Every combination of the values, each a dict; the first of `varied` changes fastest."""
    lists = dict(map(values_of, varied))
    if len(lists) < len(varied):
        raise Problem("--vary: the same name is given twice")
    for name, values in list(lists.items())[:1]:
        numbers: dict[float, str] = {}
        for value in filter(is_number, values):
            if (other := numbers.setdefault(float(value), value)) != value:
                raise Problem(f"--vary {name}: {other} and {value} are the same number; remove one")
    return combinations(lists)


def combinations(lists: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination of the values of a dict of lists, as `configurations`."""
    names = list(lists)
    backwards = itertools.product(*(lists[name] for name in reversed(names)))
    return [dict(zip(names, reversed(values))) for values in backwards] if lists else []


def values_of(text: str) -> tuple[str, list[str]]:
    """The name and the values of one --vary."""
    name, _, listed = text.partition("=")
    values = [value.strip() for value in listed.split(",") if value.strip()]
    name = name.strip().lstrip("-")
    if not name or not values:
        raise Problem(f"--vary {text}: expected a name and its values, such as batch=8,16,32")
    if len(set(values)) < len(values):
        raise Problem(f"--vary {text}: a value is given twice")
    return name, values


def arguments(given: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The script's arguments in one configuration."""
    found = list(given)
    for name, value in values.items():
        place = "{" + name + "}"
        if any(place in text for text in found):
            found = [text.replace(place, value) for text in found]
        else:
            found += [f"--{name}", value]
    return found


@dataclass(frozen=True)
class Grid:
    """Configurations of one task, run in a workshop, whose files go into a folder under a name."""

    workshop: Workshop
    task: Task
    points: list[dict[str, str]]
    folder: str
    name: str

    def run(self) -> list[Configuration]:
        """The configurations with their ranks, in the order of the grid, with progress meanwhile."""
        progress, count = Progress(len(self.points)), 0
        with ThreadPoolExecutor(self.workshop.jobs) as pool:
            work = [pool.submit(self.run_one, *each) for each in zip(self.points, marks(self.points))]
            try:
                for future in as_completed(work):
                    count += reason(future.result()) is not None
                    progress.advance(count)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.workshop.close()
                raise
            finally:
                progress.end()
        return [future.result() for future in work]

    def run_one(self, values: dict[str, str], mark: str) -> Configuration:
        """One configuration; `mark` tells its files from those of the others."""
        ranks, given = self.task.ranks, self.task.order.arguments
        order = replace(self.task.order, arguments=arguments(given, values))
        outputs = Outputs(self.folder, f"{self.name}.{mark}", ranks.world > 1, shows=None)
        try:
            found = predict(self.workshop, replace(self.task, order=order), outputs)
        except Problem as problem:
            found = [failed(rank, str(problem)) for rank in ranks.ranks]
        finally:
            outputs.close()
        return Configuration(values, order.arguments, found)


def main(given: argparse.Namespace, workshop: Workshop, task: Task, points: list[dict[str, str]]) -> int:
    """Predicts all configurations, prints the answers, and returns the exit code."""
    folder = made(given.out or os.path.join(workshop.folder, "grid"))
    name = name_of(task.order.script, task.order.module)
    found = Grid(workshop, task, points, folder, name).run()
    replies, texts, problems = [], [table(found)], []
    for series in series_of([each for each in found if reason(each) is None]):
        try:
            reply = series.ask(os.path.join(folder, f"{name}{series.mark}.svg") if given.out else None)
        except Problem as problem:
            problems.append(f"no cards by {series.name}: {problem}")
            continue
        replies.append(reply)
        texts.append(series.table(reply))
    if not given.out:
        forget_snapshots(found)
    head = answer.head(task, workshop.wheel.torch)
    content = {**head, "configurations": found, "series": replies}
    paths = [given.out and os.path.join(folder, f"{name}.json"), given.json]
    unwritten = _files.problems_of(partial(answer.write_json, path, "predict", content) for path in paths if path)
    if given.json != "-":
        tell("\n\n".join(texts))
    shared = answer.shared_notes([r for each in found for r in each.ranks], task.order)
    for note in [*problems, *failures(found), *sharers(found, task.ranks), *shared]:
        print(f"gmlake: {note}", file=sys.stderr)
    if unwritten:
        raise unwritten[0]
    return code(found)


def code(found: Sequence[Configuration]) -> int:
    """The exit code. Which configurations run out of memory is the answer to the question, unless all do."""
    failed = any(reason(each) and not out_of_memory(each) for each in found)
    return 1 if failed or all(map(out_of_memory, found)) else 0


def failures(found: Iterable[Configuration]) -> list[str]:
    """The reasons, whole, each with the first configuration that has it."""
    first: dict[str, str] = {}
    for each in found:
        why = reason(each)
        if why and not out_of_memory(each):
            first.setdefault(why, label(each.values))
    return [f"{name}: {answer.short(text)}" for text, name in first.items()]


def sharers(found: Iterable[Configuration], ranks: Ranks) -> list[str]:
    """The first configuration in which processes share a GPU: the tables of cards are by process."""
    first = next((each for each in found if sharing.found(each.ranks, ranks)), None)
    if first is None:
        return []
    return [f"{label(first.values)}: processes share a GPU, and the cards are those of each alone; predict it without --vary for "
            "their sum"]


def forget_snapshots(found: Iterable[Configuration]) -> None:
    """Names no files that are about to be deleted."""
    for configuration in found:
        for rank in configuration.ranks:
            rank.snapshot = None


def worst(configuration: Configuration) -> Rank:
    """The rank that holds most."""
    return max(configuration.ranks, key=lambda rank: rank.reserved_peak_bytes or 0)


def reason(configuration: Configuration) -> str | None:
    """Why a configuration has no full answer, or None."""
    if out_of_memory(configuration):
        return f"out of memory in step {first_oom(configuration)}"
    for rank in configuration.ranks:
        if rank.failed:
            return rank.error or "no GPU memory was requested"
    return None


def first_oom(configuration: Configuration) -> int | None:
    """The first step in which memory ran out."""
    steps = [rank.oom_step for rank in configuration.ranks if rank.died_of_memory or not rank.error]
    return min((step for step in steps if step is not None), default=None)


def out_of_memory(configuration: Configuration) -> bool:
    """Whether memory ran out."""
    return first_oom(configuration) is not None


def table(found: Sequence[Configuration]) -> str:
    """A line for each configuration: what its largest rank holds, or why it failed."""
    names = ", ".join(found[0].values)
    rows = [(", ".join(each.values.values()), each) for each in found]
    wide = min(20, max(len(text) for text, _ in rows))
    head = ROW.format("", "PyTorch", "live", "expandable", "lake", "", wide=wide).rstrip()
    return "\n".join([names, head, *(line(text, each, wide) for text, each in rows)])


def line(text: str, configuration: Configuration, wide: int) -> str:
    """One configuration in the table."""
    why = reason(configuration) or ""
    row = ROW.format(text[:wide], *map(_sizes.show, answer.held(worst(configuration))), "", wide=wide)
    return shortened(f"{row}{why}".rstrip())


def shortened(text: str, wide: int = 80) -> str:
    """A line that fits a terminal."""
    return text if len(text) <= wide else text[: wide - 3] + "..."
