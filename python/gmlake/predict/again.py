"""The same command again, on the virtual GPU: for what runs in this process, such as our allocators.

    python -m gmlake run --virtual h200 --allocator lake train.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Callable

from . import Problem, library, options, pytorch
from .outputs import scratch

if TYPE_CHECKING:
    from types import FrameType

INSIDE = "GMLAKE_GPU"


def on_virtual_gpu(card: str) -> None:
    """Runs this command in a process that has the card, and ends with its exit code.

    Comes back where this process is the one that has it.
    """
    if os.environ.get(INSIDE) == card:
        return
    try:
        wheel = pytorch.versions()
        options.card(card, library.cards(library.find()), "--virtual")
        with scratch("gmlake-") as folder:
            library.links(library.find(), folder)
            own = library.environment(folder, wheel, card=card)
            command = [sys.executable, "-m", "gmlake", *sys.argv[1:]]
            sys.exit(finish(command, own))
    except Problem as problem:
        print(f"gmlake: {problem}", file=sys.stderr)
        sys.exit(2)


def finish(command: list[str], environment: dict[str, str]) -> int:
    """Runs a command to its end, and returns its exit code. What asks this process to end, ends the command first."""
    process = subprocess.Popen(command, env=environment)
    when_asked_to_end(lambda number, _: process.send_signal(number))
    try:
        code = process.wait()
    except KeyboardInterrupt:  # a terminal's goes to both
        code = ended(process)
    return code if code >= 0 else 128 - code


def when_asked_to_end(do: Callable[[int, FrameType | None], object]) -> None:
    """What to do at a polite request to end, and at the end of the terminal, unless they are ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, do)


def ended(process: subprocess.Popen[bytes], seconds: int = 2) -> int:
    """The exit code of a process that was asked to end, by force if need be."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    return process.wait()
