"""The outputs: where a prediction's files lie, in the user's folder or in one that is deleted.

    NAME.pickle       a rank's snapshot, as PyTorch writes it; NAME.r3.pickle where there are ranks
    NAME.log          what a script printed that is not shown
    NAME.json         the numbers
    NAME.svg          the chart of --vary
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from . import Problem, library
from .series import marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .order import Ranks

LAST_LINES = 20  # of a log, shown when its script failed


class Outputs:
    """The files of one configuration."""

    def __init__(self, folder: str, name: str, has_ranks: bool, shows: int | None) -> None:
        """`shows` is the rank whose output goes to the terminal; the others' goes to logs."""
        self.folder, self.name = folder, name
        self._has_ranks, self._shows = has_ranks, shows
        self._logs: dict[int, IO[str]] = {}

    def stem(self, rank: int) -> str:
        """A rank's path without ending."""
        name = f"{self.name}.r{rank}" if self._has_ranks else self.name
        return os.path.join(self.folder, name)

    def file(self, ending: str) -> str:
        """A path for all ranks."""
        return os.path.join(self.folder, self.name + ending)

    def output(self, rank: int) -> IO[str] | None:
        """Where a rank prints to; None is this process's standard error."""
        if rank == self._shows:
            return None
        self._logs[rank] = open(self.stem(rank) + ".log", "w")
        return self._logs[rank]

    def close(self) -> None:
        """Closes the logs."""
        for log in self._logs.values():
            log.close()

    def show_failures(self, ranks: Iterable[int]) -> None:
        """Prints the end of the logs of these ranks, whose script failed: its traceback is there."""
        for rank in ranks:
            if rank in self._logs:
                lines = Path(self.stem(rank) + ".log").read_text().splitlines()
                print(f"gmlake: last output of rank {rank}:", file=sys.stderr)
                print("\n".join(lines[-LAST_LINES:]), file=sys.stderr)


@dataclass(frozen=True)
class Unseen:
    """The files of a run that nobody looks at: each begins with `name`, and what is printed goes `nowhere`."""

    name: str
    nowhere: IO[str]

    def stem(self, rank: int) -> str:
        """A rank's path without ending."""
        return f"{self.name}.{rank}"

    def output(self, _rank: int) -> IO[str]:
        """Where a rank prints to."""
        return self.nowhere


def name_of(script: str, is_module: bool) -> str:
    """What the files are called: after the script."""
    return script.rsplit(".", maxsplit=1)[-1] if is_module else Path(os.path.abspath(script)).stem


def made(folder: str) -> str:
    """A folder that exists now."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Problem(f"--out: {folder}: {error.strerror}") from error
    return folder


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[str]:
    """A folder that goes away; what a compiler that was ended still writes there is no error."""
    folder = tempfile.mkdtemp(prefix=prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_own(folder: str, name: str, ranks: Ranks, points: Sequence[Mapping[str, str]] = ()) -> None:
    """Fails where a file that would be replaced is the user's own."""
    names = [f"{name}.{mark}" for mark in marks(points)] or [name]
    stems = [name, *names, *(f"{each}.r{rank}" for each in names for rank in ranks.ranks)]
    for path in (os.path.join(folder, stem + ending) for stem in stems for ending in (".json", ".pickle")):
        if os.path.isfile(path) and os.path.getsize(path) and not is_ours(path):
            raise Problem(f"--out {folder}: {path} is not from predict, and would be replaced; choose another folder")


def is_ours(path: str) -> bool:
    """Whether a prediction has written this file."""
    if path.endswith(".pickle"):
        return library.marked(path)
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("command") == "predict"
