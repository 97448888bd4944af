"""The process of a task: a program that ends when its worker does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Has the kernel send the program a signal when its parent dies, however that dies; then becomes the program.
# An interpreter of its own, since a worker has threads, in which nothing may run between fork and exec.
TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[1]))
if os.getppid() == int(sys.argv[2]):
    os.execv(sys.argv[3], sys.argv[3:])
"""


class Failed(Exception):
    """The process was killed, or ended without its result. It is worth another try, perhaps elsewhere."""


class Ended(NamedTuple):
    """How a program ended: exit code, output and messages."""

    code: int
    out: str
    messages: str

    def reason(self, program: str) -> str:
        """The last message of the program without its name, or the exit code."""
        lines = self.messages.strip().splitlines()
        return lines[-1].removeprefix(f"{program}: ") if lines else f"exit code {self.code}"


def finish(
    command: Sequence[str], folder: str | None = None, shows: bool = False, end: signal.Signals = signal.SIGKILL
) -> Ended:
    """Runs a command to its end.

    `folder` is where it runs, if there is such a folder on this machine. With `shows` its messages go
    to this process's standard error. `end` is the signal that ends it before its time.
    """
    words = [sys.executable, "-I", "-S", "-c", TIED, str(int(end)), str(os.getpid()), *command]
    where = folder if folder and os.path.isdir(folder) else None
    messages = None if shows else subprocess.PIPE
    child = subprocess.Popen(
        words, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages, text=True
    )
    try:
        out, err = child.communicate()
    except BaseException:
        child.send_signal(end)
        child.wait()
        raise
    code = child.returncode
    if code < 0:
        raise Failed(f"{os.path.basename(command[0])} was killed by {signal.Signals(-code).name}")
    return Ended(code, out, err or "")
