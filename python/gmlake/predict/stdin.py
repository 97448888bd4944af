"""Standard input of a script that may run several times: what one run takes of a pipe lies in a file for the others.

    cat data | python -m gmlake predict train.py

    a run    sys.stdin.read ──▶ Shared ──▶ the file, as far as a run has read, then the pipe, and into the file

Only a script that reads takes something, so that a loop of a shell keeps its own. A file is opened for each run. A terminal
is empty.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
import sys
from typing import Any

NAME = "/proc/self/fd/0"


def opened() -> int:
    """A descriptor for the standard input of a run: a file from where it stands, a pipe as it is; of a terminal, nothing."""
    kind = kind_of(0)
    if not kind or os.isatty(0):
        return os.open(os.devnull, os.O_RDONLY)
    if not stat.S_ISREG(kind):
        return os.dup(0)
    found = os.open(NAME, os.O_RDONLY)
    os.lseek(found, os.lseek(0, 0, os.SEEK_CUR), os.SEEK_SET)
    return found


def share(path: str) -> None:
    """Has this process read from a pipe what every run reads; `path` is the file for it."""
    kind, plain = kind_of(0), sys.stdin
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        sys.stdin = io.TextIOWrapper(io.BufferedReader(Shared(path)), plain.encoding, plain.errors)


def kind_of(number: int) -> int:
    """What a descriptor is, as `stat` has it; 0 where it is closed."""
    try:
        return os.fstat(number).st_mode
    except OSError:
        return 0


class Shared(io.RawIOBase):
    """The bytes of standard input from the first on, whichever run has taken them."""

    name = "<stdin>"

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """That of standard input, for who asks the system about it."""
        return 0

    def readinto(self, buffer: Any) -> int:
        """As many bytes as there are, at least one before the end."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            found = os.pread(self._file, len(buffer), self._at)
            if not found:
                found = os.read(0, len(buffer))
                os.write(self._file, found)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._at += len(found)
        buffer[: len(found)] = found
        return len(found)
