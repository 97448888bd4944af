"""The outputs: where a prediction's files lie, in the user's folder or in one that is deleted.

    NAME.pickle       a rank's snapshot, as PyTorch writes it; NAME.r3.pickle where there are ranks
    NAME.log          what a script printed that is not shown
    NAME.json         the numbers
    NAME.svg          the chart of --vary
"""

import os
import sys
from pathlib import Path

from . import Problem

LAST_LINES = 20  # of a log, shown when its script failed


class Outputs:
    """The files of one configuration."""

    def __init__(self, folder, name, has_ranks, shows):
        """`shows` is the rank whose output goes to the terminal; the others' goes to logs."""
        self.folder, self.name = folder, name
        self._has_ranks, self._shows, self._logs = has_ranks, shows, {}

    def stem(self, rank):
        """A rank's path without ending."""
        name = f"{self.name}.r{rank}" if self._has_ranks else self.name
        return os.path.join(self.folder, name)

    def file(self, ending):
        """A path for all ranks."""
        return os.path.join(self.folder, self.name + ending)

    def output(self, rank):
        """Where a rank prints to; None is this process's standard error."""
        if rank == self._shows:
            return None
        self._logs[rank] = open(self.stem(rank) + ".log", "w")
        return self._logs[rank]

    def close(self):
        for log in self._logs.values():
            log.close()

    def show_failures(self, ranks):
        """Prints the end of each log whose script failed, its traceback among it."""
        for rank in ranks:
            if rank["error"] and rank["rank"] in self._logs:
                lines = Path(self.stem(rank["rank"]) + ".log").read_text().splitlines()
                print(f"gmlake: rank {rank['rank']} printed at last:", file=sys.stderr)
                print("\n".join(lines[-LAST_LINES:]), file=sys.stderr)


def name_of(script, is_module):
    """What the files are called: after the script."""
    return script.split(".")[-1] if is_module else Path(os.path.abspath(script)).stem


def made(folder):
    """A folder that exists now."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Problem(f"--out: {folder}: {error.strerror}") from error
    return folder
