"""`python -m gmlake run SCRIPT ...`: an unchanged script on another allocator.

`python -m gmlake predict SCRIPT ...`: how much GPU memory an unchanged script needs, without a GPU.
`python -m gmlake guard --baseline FILE SCRIPT ...`: whether it needs more than it did, for CI.
`python -m gmlake measure LAYERS`: on a GPU, what predict had to estimate.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import runpy
import shlex
import sys
from typing import Any, Callable, NoReturn

from . import NotEnabled, check, enable, snapshot, stats
from .guard.command import add as add_guard
from .guard.command import main as guard
from .measure import add as add_measure
from .measure import main as measure
from .mount.build import add as add_mount
from .mount.build import main as mount
from .predict.again import on_virtual_gpu
from .predict.command import main as predict
from .predict.options import add as add_predict


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all commands do."""

    def error(self, message: str) -> NoReturn:
        """Ends with the exit code of wrong usage."""
        self.exit(2, f"gmlake: {message}; see {self.prog} --help\n")


def main() -> None:
    """The command line."""
    parser = Parser(prog="python -m gmlake", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add_run(commands)
    commands.add_parser("check", help="say whether there is a GPU to work with")
    add_predict(commands)
    add_guard(commands)
    add_mount(commands)
    add_measure(commands)
    given = parser.parse_args()
    answers: dict[str, Callable[[argparse.Namespace], str | int | None]] = {
        "predict": predict, "guard": guard, "measure": measure, "mount": mount, "check": look, "run": run,
    }
    sys.exit(answers[given.command](given))


def add_run(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `run` to the commands."""
    run = commands.add_parser("run", help="run a script with its GPU memory from another allocator")
    run.add_argument("--allocator", help="such as lake, gmlake, caching; see gmlake-sim allocators")
    run.add_argument("--conf", default="", metavar="NAME=VALUE,...", help="options, as in GMLAKE_CONF")
    run.add_argument("--stats", action="store_true", help="print what the allocator counted when the script ends")
    run.add_argument("--snapshot", metavar="FILE", help="record, and write a snapshot when the script ends")
    run.add_argument("--virtual", metavar="CARD", help="on a virtual GPU, such as h200: no GPU is needed, nothing is computed")
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    run.add_argument("script", metavar="SCRIPT", help="the script")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def look(_given: argparse.Namespace) -> str | None:
    """The command `check`: what is in the way of a GPU, or nothing."""
    problem = check()
    if problem:
        return f"gmlake: {problem.removeprefix('gmlake: ')}"
    print("gmlake: ready")
    return None


def run(given: argparse.Namespace) -> None:
    """The command `run`."""
    if given.virtual:
        on_virtual_gpu(given.virtual)
    options: dict[str, object] = dict(piece.split("=", 1) for piece in given.conf.split(",") if "=" in piece)
    if given.snapshot:
        options.setdefault("record", "on")
    try:
        enable(given.allocator, **options)
    except (NotEnabled, ValueError) as error:
        sys.exit(str(error))
    atexit.register(at_end, given)
    sys.argv = [given.script, *given.arguments]
    if given.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(given.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
        runpy.run_path(given.script, run_name="__main__")


def at_end(given: argparse.Namespace) -> None:
    """Prints and writes what was wished for, when the script has ended."""
    if given.snapshot:
        rank = os.environ.get("RANK")
        path = given.snapshot if rank is None else f"{given.snapshot}.r{rank}"
        snapshot(path)
        if rank in (None, "0"):
            print(f"gmlake: next: gmlake-sim compare {shlex.quote(path)}", file=sys.stderr)
    if given.stats:
        print(json.dumps(stats(), indent=1), file=sys.stderr)


if __name__ == "__main__":
    main()
