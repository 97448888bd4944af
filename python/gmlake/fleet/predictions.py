"""Predictions of many configurations and ranks, each a task: a process of `python -m gmlake predict`.

    OUT/CONFIGURATION/SCRIPT.r0.pickle      a rank's snapshot, which `run` takes in its turn
    OUT/CONFIGURATION/SCRIPT.r0.json        its numbers
    OUT/CONFIGURATION/SCRIPT.r0.log         what the script printed
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from ..predict import Problem, grid
from ..predict.outputs import name_of
from .engines import engine_of, optional, run_all
from .process import Failed, finish, last_line
from .shard import listed, place

WRONG = 2  # the exit code of wrong usage
ASIDE = ".part-"  # how the folder of a task begins that is under way
NUMBERS = ("reserved_peak_bytes", "reserved_peak_bytes_low", "reserved_peak_bytes_high", "active_peak_bytes",
           "oom_step", "steps", "requests", "seconds", "error", "snapshot")


class Predictions:
    """What was found: `rows`, a dict for each rank of each configuration; `path`; `failed`, as of `Result`."""

    def __init__(self, path, rows, failed):
        self.path, self.rows, self.failed = path, rows, failed

    def table(self):
        """The rows as an Arrow table."""
        return optional("pyarrow").Table.from_pylist(self.rows)


def predict(script, arguments=(), vary=None, world=None, ranks=None, out=None, engine="ray", options=(),
            module=False, retries=3, progress=True):
    """Predicts the memory of a script in every configuration, each rank as a task of its own.

    script, arguments   as on the command line; `{name}` is replaced by a value of `vary`, as in docs/predict.md
    vary                values by name, such as {"batch": [8, 16, 32]}; several make every combination
    world, ranks        how many ranks there are, and which are predicted, such as [0, 7]; "all" of them together
                        are one task
    out                 the folder for snapshots and numbers, which every worker must see under this name
    engine, retries, progress   as of `run`
    options             more options of `gmlake predict`, such as ["--steps", "3", "--gpu", "a100-80gb"]
    module              `script` is the name of a module

    Returns `Predictions`. A script that fails is a row with its error.
    """
    if out is None:
        raise Problem("predict: say where the snapshots are to be, with out=DIR")
    rest = [*listed(options), *(["--world", str(world)] if world else []), *(["-m"] if module else [])]
    target = script if module else os.path.abspath(script)
    all_ranks = [None] if ranks is None else listed(ranks)
    tasks = []
    for values in grid_of(vary or {}):
        home, own = home_of(place(out), values), grid.arguments(listed(arguments), values)
        tasks += [(home, values, rank, rest, target, own, os.getcwd()) for rank in all_ranks]
    found, failed = run_all(engine_of(engine, retries), work, tasks, "predictions", progress)
    for left in Path(place(out)).glob(f"**/{ASIDE}*"):
        shutil.rmtree(left, ignore_errors=True)
    return Predictions(place(out), uniform([row for rows in found if rows for row in rows]), failed)


def grid_of(vary):
    """The configurations; each has a folder of its own."""
    found = grid.combinations({name: listed(values) for name, values in vary.items()}) or [{}]
    if len({grid.mark(values) for values in found}) < len(found):
        raise Problem("vary: two configurations would have the same folder; is a value there twice?")
    return found


def home_of(out, values):
    """The folder of a configuration."""
    return os.path.join(out, grid.mark(values)) if values else out


def work(home, values, rank, options, script, arguments, folder):
    """Predicts one rank of one configuration, and returns its rows; a task of every engine."""
    os.makedirs(home, exist_ok=True)
    name = name_of(script, "-m" in options) + (f".r{rank}" if rank is not None else "")
    aside = tempfile.mkdtemp(prefix=ASIDE, dir=home)
    try:
        numbers = os.path.join(aside, f"{name}.json")
        command = [sys.executable, "-m", "gmlake", "predict", *options, "--out", aside, "--json", numbers]
        command += ["--ranks", rank] if rank is not None else []
        # Upon SIGTERM it ends the script, too.
        code, _, messages = finish([*command, script, *arguments], folder, end=signal.SIGTERM)
        if not os.path.exists(numbers):
            reason = f"gmlake predict: {last_line(messages, code).removeprefix('gmlake: ')}"
            raise Problem(reason) if code == WRONG else Failed(reason)
        Path(aside, f"{name}.log").write_text(messages)
        return kept(aside, Path(home), numbers, values)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def kept(aside, home, numbers, values):
    """Moves the files to their place, the numbers last, and returns a row for each rank."""
    content = json.loads(Path(numbers).read_text())
    for rank in content["ranks"]:
        rank["snapshot"] = rank["snapshot"] and str(home / Path(rank["snapshot"]).name)
    Path(numbers).write_text(json.dumps(content, indent=1) + "\n")
    for path in sorted(Path(aside).iterdir(), key=lambda path: path.name == Path(numbers).name):
        if path.suffix in (".pickle", ".log") or path.name == Path(numbers).name:
            os.replace(path, home / path.name)
    return [row(values, rank) for rank in content["ranks"]]


def uniform(rows):
    """The same rows, all with the same columns: what failed has fewer numbers."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def row(values, rank):
    """One rank's numbers in a flat row, after the values that were varied."""
    found = {**values, "rank": rank["rank"], **{name: rank[name] for name in NUMBERS}}
    for name, held in rank["allocators"].items():
        found[f"{name}_reserved_peak_bytes"] = held["reserved_peak_bytes"]
        found[f"{name}_smallest_card"] = held["smallest_card"]
    return found
