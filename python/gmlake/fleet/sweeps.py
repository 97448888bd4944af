"""A sweep: every point of a grid of options and devices on a few recordings, a share of the points in each task.

    OUT/sweep-KEY-I-of-N.parquet      a row for each point of a share, as `gmlake-sim sweep --export-parquet` writes them

KEY stands for the recordings and the grid. A share that is there is not done again.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..predict import Problem, simulator
from .engines import engine_of, optional, run_all
from .jobs import EACH
from .process import Failed, finish
from .shard import grid, listed, place
from .wishes import SweepWishes, check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from .wishes import EngineName, Listed, Path


@dataclass(frozen=True)
class Sweep:
    """What was found: `path`, the folder; `files`, one for each share with points; `failed`, as of `Result`."""

    path: str
    files: list[str]
    failed: dict[int, str]

    def table(self) -> Any:
        """A row for each recording and point, in the order of the grid, as an Arrow table."""
        arrow, parquet = optional("pyarrow"), optional("pyarrow.parquet", "pyarrow")
        return arrow.concat_tables([parquet.read_table(file) for file in self.files])


def sweep(
    inputs: Listed, settings: Mapping[str, Listed], out: Path | None = None, engine: EngineName = "ray",
    **wishes: Unpack[SweepWishes],
) -> Sweep:
    """Runs recordings through every combination of settings, and returns a `Sweep`.

    inputs         files: one or a list
    settings       what is varied, by name, such as {"lake.handle": ["2MiB", "8MiB"]} or {"lake.handle": "2MiB..64MiB:x2"}
    out            the folder of the Parquet, which every worker must see under this name
    engine         as of `run`
    wishes         allocators, device_memory (also a range such as "24GiB..80GiB:+8GiB"), only_fitting, shards, retries,
                   progress, simulator: `wishes.py` says what each is

    Sizes of one setting stay in one share, where the run without a limit answers for most of them. Raises
    `Problem` if nothing could be done at all.
    """
    check("sweep", SweepWishes, wishes)
    if out is None:
        raise Problem("sweep: name a folder for the tables with out=DIR")
    chosen, folder = engine_of(engine, wishes), place(out)
    count = 1 if chosen.is_local else wishes.get("shards") or EACH * chosen.workers
    fitting = ["--only-fitting"] if wishes.get("only_fitting") else []
    shared = [*listed(inputs), *grid(settings, wishes), *fitting]
    key = key_of(inputs, shared)
    os.makedirs(folder, exist_ok=True)
    files = [os.path.join(folder, f"sweep-{key}-{index}-of-{count}.parquet") for index in range(count)]
    jobs = [] if chosen.is_local else ["--jobs", "1"]
    program = wishes.get("simulator") or os.environ.get("GMLAKE_SIM")
    tasks = [
        (program, [*shared, *jobs, "--shard", f"{index}/{count}"], file, os.getcwd())
        for index, file in enumerate(files)
    ]
    found, failed = run_all(chosen, work, tasks, "shares")
    return Sweep(folder, [file for file in found if file], failed)


def key_of(inputs: Listed, shared: Sequence[str]) -> str:
    """A text that stands for the recordings, by size and time of change, and for the grid."""
    marks = [(about.st_size, about.st_mtime_ns) for about in map(os.stat, filter(os.path.exists, listed(inputs)))]
    return hashlib.sha256(repr((shared, marks)).encode()).hexdigest()[:16]


def work(program: str | None, arguments: Sequence[str], file: str, folder: str) -> str | None:
    """Does a share, and returns its file, or None if it has no points; a task of every engine."""
    if pathlib.Path(file).exists():
        return file
    command = [program or simulator.find(), "sweep", *arguments, "--quiet", "--export-parquet", file]
    ended = finish(command, folder)
    if ended.code:
        raise Failed(f"{simulator.NAME} sweep: {ended.reason(simulator.NAME)}")
    return file if pathlib.Path(file).exists() else None
