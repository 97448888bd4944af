"""Predictions of many configurations and ranks, each a task: a process of `python -m gmlake predict`.

    OUT/CONFIGURATION/SCRIPT.r0.pickle      a rank's snapshot, which `run` takes in its turn
    OUT/CONFIGURATION/SCRIPT.r0.json        its numbers
    OUT/CONFIGURATION/SCRIPT.r0.log         what the script printed
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..predict import Problem, grid
from ..predict.outputs import name_of
from ..predict.series import label, marks
from .engines import engine_of, optional, run_all
from .process import Failed, finish
from .shard import listed, place
from .wishes import PredictWishes, check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    from . import wishes as types

# Options of the command that a task cannot have.
INSTEAD = {
    "--vary": "use vary={...}", "--ranks": "use ranks=[...]", "--out": "use out=DIR", "--json": "use Predictions.rows",
    "--serve": "run python -m gmlake predict --serve", "-m": "use module=True",
}
WRONG = 2  # the exit code of wrong usage
ASIDE = ".part-"  # how the folder of a task begins that is under way
NUMBERS = ("reserved_peak_bytes", "reserved_peak_bytes_low", "reserved_peak_bytes_high", "active_peak_bytes",
           "oom_step", "steps", "requests", "seconds", "error", "snapshot")


@dataclass(frozen=True)
class Predictions:
    """What was found: `rows`, a dict for each rank of each configuration; `path`; `failed`, as of `Result`."""

    path: str
    rows: list[dict[str, Any]]
    failed: dict[int, str]

    def table(self) -> Any:
        """The rows as an Arrow table."""
        return optional("pyarrow").Table.from_pylist(self.rows)


@dataclass(frozen=True)
class Task:
    """One rank (None: as the options say) of one configuration, and where its files go."""

    home: str
    values: dict[str, str]
    rank: str | None
    script: str
    module: bool
    options: list[str]
    arguments: list[str]


def predict(
    script: str, arguments: types.Listed = (), vary: Mapping[str, types.Listed] | None = None,
    out: types.Path | None = None, engine: types.EngineName = "ray", **wishes: Unpack[PredictWishes],
) -> Predictions:
    """Predicts the memory of a script in every configuration, each rank as a task of its own.

    script, arguments   as on the command line; `{name}` is replaced by a value of `vary`, as in docs/predict.md
    vary                values by name, such as {"batch": [8, 16, 32]}; several make every combination
    out                 the folder for snapshots and numbers, which every worker must see under this name
    engine              as of `run`
    wishes              world, ranks, options, module, retries, progress: `wishes.py` says what each is

    Returns `Predictions`. A script that fails is a row with its error.
    """
    check("predict", PredictWishes, wishes)
    check_options(listed(wishes.get("options", ())))
    if out is None:
        raise Problem("predict: name a folder for the snapshots with out=DIR")
    tasks = tasks_of(script, listed(arguments), grid_of(vary or {}), place(out), wishes)
    rest = [(task, os.getcwd()) for task in tasks]
    found, failed = run_all(engine_of(engine, wishes), work, rest, "predictions")
    for left in Path(place(out)).glob(f"**/{ASIDE}*"):
        shutil.rmtree(left, ignore_errors=True)
    return Predictions(place(out), uniform([row for rows in found if rows for row in rows]), failed)


def check_options(options: Iterable[str]) -> None:
    """Fails where an option of the command is one that each task has of its own, or that no task has."""
    for option in (text.partition("=")[0] for text in options):
        instead = INSTEAD.get(option)
        if instead:
            raise Problem(f"predict: options: {option} does not work in a fleet; {instead}")


def tasks_of(
    script: str, arguments: list[str], points: Sequence[dict[str, str]], out: str, wishes: PredictWishes
) -> list[Task]:
    """A task for each rank of each configuration."""
    world, ranks, module = wishes.get("world"), wishes.get("ranks"), wishes.get("module", False)
    options = [*listed(wishes.get("options", ())), *(["--world", str(world)] if world else [])]
    target = script if module else os.path.abspath(script)
    each: list[str | None] = [None] if ranks is None else [*listed(ranks)]
    return [
        Task(home, values, rank, target, module, options, grid.arguments(arguments, values))
        for values, home in zip(points, homes_of(out, points))
        for rank in each
    ]


def grid_of(vary: Mapping[str, types.Listed]) -> list[dict[str, str]]:
    """The configurations."""
    found = grid.combinations({name: listed(values) for name, values in vary.items()}) or [{}]
    if len({label(values) for values in found}) < len(found):
        raise Problem("vary: a value is given twice; remove one")
    return found


def homes_of(out: str, points: Sequence[Mapping[str, str]]) -> list[str]:
    """The folder of each configuration: each has one of its own."""
    return [os.path.join(out, mark) if mark else out for mark in marks(points)]


def work(task: Task, folder: str) -> list[dict[str, Any]]:
    """Predicts one rank of one configuration, and returns its rows; a task of every engine."""
    os.makedirs(task.home, exist_ok=True)
    name = name_of(task.script, task.module) + (f".r{task.rank}" if task.rank is not None else "")
    aside = tempfile.mkdtemp(prefix=ASIDE, dir=task.home)
    try:
        numbers = os.path.join(aside, f"{name}.json")
        command = [sys.executable, "-m", "gmlake", "predict", *task.options, "--out", aside, "--json", numbers]
        command += ["--ranks", task.rank] if task.rank is not None else []
        command += ["-m"] if task.module else []
        # Upon SIGTERM it ends the script, too.
        ended = finish([*command, task.script, *task.arguments], folder, end=signal.SIGTERM)
        if not os.path.exists(numbers):
            reason = f"gmlake predict: {ended.reason('gmlake')}"
            raise Problem(reason) if ended.code == WRONG else Failed(reason)
        Path(aside, f"{name}.log").write_text(ended.messages)
        return kept(aside, Path(task.home), numbers, task.values)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def kept(aside: str, home: Path, numbers: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Moves the files to their place, the numbers last, and returns a row for each rank."""
    content = json.loads(Path(numbers).read_text())
    ranks = content["result"]["ranks"]
    for rank in ranks:
        rank["snapshot"] = rank["snapshot"] and str(home / Path(rank["snapshot"]).name)
    Path(numbers).write_text(json.dumps(content, indent=1) + "\n")
    for path in sorted(Path(aside).iterdir(), key=lambda path: path.name == Path(numbers).name):
        if path.suffix in (".pickle", ".log") or path.name == Path(numbers).name:
            os.replace(path, home / path.name)
    return [row(values, rank) for rank in ranks]


def uniform(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same rows, all with the same columns: what failed has fewer numbers."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def row(values: Mapping[str, str], rank: Mapping[str, Any]) -> dict[str, Any]:
    """One rank's numbers in a flat row, after the values that were varied."""
    found: dict[str, Any] = {**values, "rank": rank["rank"], **{name: rank[name] for name in NUMBERS}}
    for name, held in rank["allocators"].items():
        found[f"{name}_reserved_peak_bytes"] = held["reserved_peak_bytes"]
        found[f"{name}_smallest_card"] = held["smallest_card"]
    return found
