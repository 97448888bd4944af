"""The command `python -m gmlake card`: a card's memory by process, from outside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .._stdout import tell
from ..predict import Problem, answer
from . import monitor
from .sheet import Card, outside

if TYPE_CHECKING:
    import argparse

WRONG, NO_GPU = 2, 1

DESCRIPTION = """\
What uses the memory of each GPU: its processes, by NVML. What a process holds
in PyTorch, in libraries and in the driver, only the process itself knows:
call gmlake.card() in it.
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `python -m gmlake`."""
    it = commands.add_parser("card", help="say what uses the memory of the GPUs here", description=DESCRIPTION)
    it.add_argument("pid", metavar="PID", nargs="?", type=int, help="only the GPUs that this process uses")
    it.add_argument("--json", metavar="FILE", help="write it as JSON, '-' for standard output")


def main(given: argparse.Namespace) -> int:
    """Looks at the cards, and returns the exit code."""
    try:
        cards = [outside(monitor.read(monitor.by_index(index))) for index in range(monitor.count())]
        chosen = [card for card in cards if given.pid is None or uses(card, given.pid)]
        if given.pid is not None and not chosen:
            raise Problem(f"process {given.pid} uses no GPU here, or NVML does not tell; leave PID out to see all")
        if given.json:
            answer.write_json(given.json, "card", [card.to_json() for card in chosen])
    except monitor.NoMonitor as error:
        print(error, file=sys.stderr)
        return NO_GPU
    except Problem as problem:
        print(f"gmlake: {problem}", file=sys.stderr)
        return WRONG
    if given.json != "-":
        tell("\n\n".join(map(str, chosen)))
    return 0


def uses(card: Card, pid: int) -> bool:
    """Whether a process is on a card."""
    return any(process.pid == pid for process in card.processes)
