"""The process of a task: a program that ends when its worker does."""

import os
import signal
import subprocess
import sys

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


def finish(command, folder=None, shows=False, end=signal.SIGKILL):
    """Runs a command to its end; returns exit code, output and messages.

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
    return code, out, err or ""


def last_line(text, code):
    """The last message of a program, or its exit code."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"
