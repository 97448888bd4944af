"""A sweep: every point of a grid of options and devices on a few recordings, a share of the points in each task.

    OUT/sweep-KEY-I-of-N.parquet      a row for each point of a share, as `gmlake-sim sweep --export-parquet` writes them

KEY stands for the recordings and the grid. A share that is there is not done again.
"""

import hashlib
import os
from pathlib import Path

from ..predict import Problem, simulator
from .engines import engine_of, optional, run_all
from .jobs import EACH
from .process import Failed, finish, last_line
from .shard import listed, place


class Sweep:
    """What was found: `path`, the folder; `files`, one for each share with points; `failed`, as of `Result`."""

    def __init__(self, path, files, failed):
        self.path, self.files, self.failed = path, files, failed

    def table(self):
        """A row for each recording and point, in the order of the grid, as an Arrow table."""
        arrow, parquet = optional("pyarrow"), optional("pyarrow.parquet", "pyarrow")
        return arrow.concat_tables([parquet.read_table(file) for file in self.files])


def sweep(inputs, settings, out=None, engine="ray", shards=None, allocators=None, device_memory=None,
          only_fitting=False, retries=3, progress=True, simulator=None):
    """Runs recordings through every combination of settings, and returns a `Sweep`.

    inputs         files: one or a list
    settings       what is varied, by name, such as {"lake.handle": ["2MiB", "8MiB"]} or {"lake.handle": "2MiB..64MiB:x2"}
    out            the folder of the Parquet, which every worker must see under this name
    device_memory  sizes of GPUs, such as ["24GiB", "80GiB"] or "24GiB..80GiB:+8GiB"
    only_fitting   leaves out devices that have less memory than is live at once
    others         as of `run`

    Sizes of one setting stay in one share, where the run without a limit answers for most of them. Raises
    `Problem` if nothing could be done at all.
    """
    if out is None:
        raise Problem("sweep: say where the tables are to be, with out=DIR")
    chosen = engine_of(engine, retries)
    count = 1 if engine == "local" else shards or EACH * chosen.workers
    shared = words(inputs, settings, allocators, device_memory, only_fitting)
    key, folder = key_of(inputs, shared), place(out)
    os.makedirs(folder, exist_ok=True)
    files = [os.path.join(folder, f"sweep-{key}-{index}-of-{count}.parquet") for index in range(count)]
    jobs = [] if engine == "local" else ["--jobs", "1"]
    tasks = [
        (simulator or os.environ.get("GMLAKE_SIM"), [*shared, *jobs, "--shard", f"{index}/{count}"], file, os.getcwd())
        for index, file in enumerate(files)
    ]
    found, failed = run_all(chosen, work, tasks, "shares", progress)
    return Sweep(folder, [file for file in found if file], failed)


def words(inputs, settings, allocators, device_memory, only_fitting):
    """The arguments that all shares have; device memory comes last, so that a share has all sizes of a setting."""
    found = listed(inputs)
    if allocators:
        found += ["--allocators", ",".join(listed(allocators))]
    axes = {**dict(settings), **({"device-memory": device_memory} if device_memory else {})}
    for name, values in axes.items():
        found += ["--set", f"{name}={','.join(listed(values))}"]
    return found + (["--only-fitting"] if only_fitting else [])


def key_of(inputs, shared):
    """A text that stands for the recordings, by size and time of change, and for the grid."""
    marks = [(about.st_size, about.st_mtime_ns) for about in map(os.stat, filter(os.path.exists, listed(inputs)))]
    return hashlib.sha256(repr((shared, marks)).encode()).hexdigest()[:16]


def work(program, arguments, file, folder):
    """Does a share, and returns its file, or None if it has no points; a task of every engine."""
    if Path(file).exists():
        return file
    command = [program or simulator.find(), "sweep", *arguments, "--quiet", "--export-parquet", file]
    code, _, messages = finish(command, folder)
    if code:
        raise Failed(f"{simulator.NAME} sweep: {last_line(messages, code).removeprefix(f'{simulator.NAME}: ')}")
    return file if Path(file).exists() else None
