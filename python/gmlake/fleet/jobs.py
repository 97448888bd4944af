"""The job of a fleet: shards, given to an engine, that fill one folder with Parquet."""

import os
import sys

from ..predict import Problem
from .engines import engine_of, run_all
from .result import Result
from .shard import place, words, work

# Shards for each worker. A shard ends when its last part does, so a few more than workers keep all of them busy.
EACH = 4


def run(inputs=(), out=None, engine="ray", shards=None, allocators=None, settings=None, device_memory=None,
        steps=False, retries=3, progress=True, simulator=None, manifest=None):
    """Runs snapshots through allocators, and returns a `Result` with tables of runs, ranks and errors.

    inputs         files, folders, patterns, addresses such as s3://bucket/jobs/: one or a list
    out            the folder of the Parquet, which every worker must see under this name
    engine         "ray", "local" (one process, all cores of this machine), or a concurrent.futures.Executor
    shards         how many tasks [default: four for each CPU of the cluster]
    allocators     such as ["caching", "lake"] [default: as `gmlake-sim fleet`]
    settings       options to try, such as {"lake.handle": ["2MiB", "8MiB"]}
    device_memory  sizes of GPUs, such as ["80GiB"] [default: without a limit]
    steps          a table of steps, too
    retries        how often a shard is started again that failed, was killed, or whose worker is gone
    progress       a line about progress, on a terminal
    simulator      where gmlake-sim is on every worker [default: each finds its own]
    manifest       CSV or Parquet file with a column path, and perhaps job, date and rank

    What is in `out` already is not done again. Shards that failed more often are in `Result.failed`, with
    their reasons: the same call does what they left. Raises `Problem` if nothing could be done at all.
    """
    if out is None:
        raise Problem("fleet: say where the tables are to be, with out=DIR")
    chosen = engine_of(engine, retries)
    shared = words(inputs, out, manifest, allocators, settings, device_memory, steps)
    program = simulator or os.environ.get("GMLAKE_SIM")
    tasks = tasks_of(chosen, engine, shards, shared, program, progress)
    _, failed = run_all(chosen, work, tasks, "shards", progress and engine != "local")
    return Result(place(out), failed)


def tasks_of(chosen, engine, shards, shared, program, progress):
    """The arguments of `work`, for each shard."""
    here = os.getcwd()
    if engine == "local":
        if shards is not None:
            raise Problem("shards: one machine is one process; leave it out, or choose another engine")
        quiet = [] if progress else ["--quiet"]
        return [(program, [*shared, *quiet], here, progress and sys.stderr.isatty())]
    count = shards or EACH * chosen.workers
    own = [*shared, "--quiet", "--jobs", "1", "--shard"]
    return [(program, [*own, f"{index}/{count}"], here) for index in range(count)]
