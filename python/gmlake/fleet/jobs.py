"""The job of a fleet: shards, given to an engine, that fill one folder with Parquet."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ..predict import Problem
from .engines import engine_of, run_all
from .result import Result
from .shard import place, words, work
from .wishes import RunWishes, check

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .engines import Engine, Tasks
    from .wishes import EngineName, Listed, Path

# Shards for each worker. A shard ends when its last part does, so a few more than workers keep all of them busy.
EACH = 4


def run(
    inputs: Listed = (), out: Path | None = None, engine: EngineName = "ray", **wishes: Unpack[RunWishes]
) -> Result:
    """Runs snapshots through allocators, and returns a `Result` with tables of runs, ranks and errors.

    inputs         files, folders, patterns, addresses such as s3://bucket/jobs/: one or a list
    out            the folder of the Parquet, which every worker must see under this name
    engine         "ray", "local" (one process, all cores of this machine), or a concurrent.futures.Executor
    wishes         allocators, settings, device_memory, steps, manifest, shards, retries, progress, simulator:
                   `wishes.py` says what each is

    What is in `out` already is not done again. Shards that failed more often are in `Result.failed`, with
    their reasons: the same call does what they left. Raises `Problem` if nothing could be done at all.
    """
    check("run", RunWishes, wishes)
    if out is None:
        raise Problem("fleet: name a folder for the tables with out=DIR")
    chosen = engine_of(engine, wishes)
    tasks = tasks_of(chosen, words(inputs, out, wishes), wishes)
    if chosen.is_local:
        chosen = replace(chosen, progress=False)  # the one process says itself how far it is
    _, failed = run_all(chosen, work, tasks, "shards")
    return Result(place(out), failed)


def tasks_of(engine: Engine, shared: list[str], wishes: RunWishes) -> Tasks:
    """The arguments of `work`, for each shard."""
    program, shards = wishes.get("simulator") or os.environ.get("GMLAKE_SIM"), wishes.get("shards")
    here, progress = os.getcwd(), wishes.get("progress", True)
    if engine.is_local:
        if shards is not None:
            raise Problem("shards: one machine is one process; leave it out, or choose another engine")
        quiet = [] if progress else ["--quiet"]
        return [(program, [*shared, *quiet], here, progress and sys.stderr.isatty())]
    count = shards or EACH * engine.workers
    own = [*shared, "--quiet", "--jobs", "1", "--shard"]
    return [(program, [*own, f"{index}/{count}"], here) for index in range(count)]
