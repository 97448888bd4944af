"""The command `predict --serve`: from options to verdicts, and to an exit code."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ... import _files
from ..._stdout import tell
from .. import Problem, grid, library, options, others
from .. import answer as common
from ..outputs import Outputs, made, name_of
from ..series import label, marks
from . import answer, chart, record
from .verdict import Verdict, verdict

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from ..order import Task
    from ..run import Files, Workshop

CARD = "gpu"  # the name by which --vary changes the card
CODES = {True: 0, False: 1, None: 2}


def main(given: argparse.Namespace, workshop: Workshop, task: Task, points: list[dict[str, str]]) -> int:
    """Predicts, prints the answer, and returns the exit code."""
    task = replace(task, events="clock" if task.events == "interval" else task.events)
    return many(given, workshop, task, points) if points else one(given, workshop, task)


def one(given: argparse.Namespace, workshop: Workshop, task: Task) -> int:
    """One configuration."""
    folder = given.out and made(given.out) or workshop.folder
    name = name_of(task.order.script, task.order.module)
    outputs = Outputs(folder, name, False, shows=0)
    found = started(workshop, task, outputs)
    problems = write(given, workshop, task, asdict(found), f"{folder}/{name}.json")
    if given.json != "-":
        tell(answer.table(found) + answer.sentence(found) + answer.requests([("", found)]))
    for note in answer.notes(found):
        print(f"gmlake: {note}", file=sys.stderr, flush=True)
    if problems:
        raise problems[0]
    return CODES[found.starts]


def many(given: argparse.Namespace, workshop: Workshop, task: Task, points: list[dict[str, str]]) -> int:
    """Every configuration, side by side."""
    folder = made(given.out or os.path.join(workshop.folder, "grid"))
    name = name_of(task.order.script, task.order.module)
    tasks = [configured(task, values) for values in points]

    def run(mark: str, own: Task) -> Verdict:
        outputs = Outputs(folder, f"{name}.{mark}", False, shows=None)
        try:
            return started(workshop, own, outputs)
        except Problem as problem:
            return verdict([], str(problem), 0)
        finally:
            outputs.close()

    with ThreadPoolExecutor(workshop.jobs) as pool:
        found = list(zip(points, pool.map(run, marks(points), tasks)))
    content = [{"values": values, "arguments": own.order.arguments, **asdict(each)} for own, (values, each) in zip(tasks, found)]
    problems = write(given, workshop, task, {"configurations": content}, f"{folder}/{name}.json")
    if given.out and (picture := chart.svg(found)):
        problems += _files.problems_of([lambda: Path(folder, f"{name}.svg").write_text(picture)])
    if given.json != "-":
        named = [(", ".join(values.values()), each) for values, each in found]
        tell(answer.varied(found) + answer.requests(named))
    for values, each in found:
        if each.starts is None:
            print(f"gmlake: {label(values)}: {' '.join((each.reason or '').split())}", file=sys.stderr)
    if problems:
        raise problems[0]
    return 2 if any(each.starts is None for _, each in found) else 0


def configured(task: Task, values: Mapping[str, str]) -> Task:
    """The task with these values; one that is called `gpu` is the card."""
    rest = {name: value for name, value in values.items() if name != CARD}
    order = replace(task.order, arguments=grid.arguments(task.order.arguments, rest))
    if CARD in values:
        order = replace(order, gpu=options.card(values[CARD], library.cards(library.find()), "--vary gpu"))
    return replace(task, order=order)


def started(workshop: Workshop, task: Task, files: Files) -> Verdict:
    """Starts the server, and reads what its processes have noted."""
    (facts,) = workshop.run(task, files)
    found = verdict(record.read(files.stem(0)), facts.error, facts.seconds)
    # SGLang's kernels ask in processes of their own, which nobody watches.
    own = " and ".join(facts.own_runtimes or [])
    asks = others.ASKED in facts.library.get("unwritten", []) or (own and found.version is None)
    return replace(found, hint=others.runtime_of(own or "a library of the script")) if asks and found.starts is None else found


def write(given: argparse.Namespace, workshop: Workshop, task: Task, result: dict[str, object], kept: str) -> list[Problem]:
    """Writes the JSON where the options say, and returns what went wrong."""
    content = {**common.head(task, workshop.wheel.torch), **result}
    paths = [given.out and kept, given.json]
    return _files.problems_of(partial(common.write_json, path, "predict", content) for path in paths if path)
