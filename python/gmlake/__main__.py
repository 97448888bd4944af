"""`python -m gmlake`: its commands, and `run` and `check`; the others have modules of their own."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import runpy
import shlex
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Callable, NoReturn

WRONG = 2
DESCRIPTION = """\
Predict the GPU memory of an unchanged PyTorch script, guard it in CI, or run
the script on another allocator.
"""
EXAMPLES = """\
examples:
  python -m gmlake predict train.py
  python -m gmlake guard --baseline memory.json train.py
  python -m gmlake run --allocator lake train.py
  python -m gmlake card
"""


# The commands, in the order of the help, and the modules that have their `add` and `main`; those without are here.
COMMANDS = {
    "predict": ".predict.command", "guard": ".guard.command", "run": "", "check": "", "measure": ".measure",
    "mount": ".mount.build", "card": ".ledger.command",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all commands do."""

    def error(self, message: str) -> NoReturn:
        """Ends with the exit code of wrong usage."""
        self.exit(WRONG, f"gmlake: {message}; see {self.prog} --help\n")


def main() -> None:
    """The command line."""
    parser = Parser(prog="python -m gmlake", description=DESCRIPTION, epilog=EXAMPLES,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    mains: dict[str, Callable[[argparse.Namespace], str | int | None]] = {"check": look, "run": run}
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    for name in [named] if named in COMMANDS else COMMANDS:  # the modules of the others are not imported
        if COMMANDS[name]:
            module = import_module(COMMANDS[name], __package__)
            mains[name] = module.main
            module.add(commands)
        else:
            {"check": add_check, "run": add_run}[name](commands)
    given = parser.parse_args()
    sys.exit(mains[given.command](given))


def add_check(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `check` to the commands."""
    text = "say whether the allocators of gmlake work on this machine"
    commands.add_parser("check", help=text, description=f"{text[0].upper()}{text[1:]}.")


def add_run(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `run` to the commands."""
    run = commands.add_parser("run", help="run a script on another GPU memory allocator",
                              description="Runs an unchanged script on another GPU memory allocator.")
    run.add_argument("--allocator", metavar="NAME", help="lake, gmlake, caching or another that 'gmlake-sim allocators' "
                     "lists [default: lake]")
    run.add_argument("--conf", default={}, metavar="NAME=VALUE,...", type=settings, help="the allocator's options, as "
                     "in GMLAKE_CONF")
    run.add_argument("--stats", action="store_true", help="print the allocator's statistics when the script ends")
    run.add_argument("--snapshot", metavar="FILE", help="record a memory history, and write it when the script ends")
    run.add_argument("--virtual", metavar="CARD", help="use a virtual GPU, such as h200: needs no GPU, computes nothing")
    run.add_argument("-m", dest="module", action="store_true", help="SCRIPT names a module")
    run.add_argument("script", metavar="SCRIPT", help="the script")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")


def settings(text: str) -> dict[str, object]:
    """Options in the syntax of GMLAKE_CONF."""
    pieces = [piece for piece in text.split(",") if piece.strip()]
    wrong = [piece for piece in pieces if "=" not in piece]
    if wrong:
        raise argparse.ArgumentTypeError(f"invalid option {wrong[0]!r}; expected NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in (piece.partition("=") for piece in pieces)}


def look(_given: argparse.Namespace) -> str | None:
    """The command `check`: why the allocators do not work here, or nothing."""
    from . import NotEnabled, check

    try:
        problem = check()
    except NotEnabled as error:
        problem = str(error)
    if problem:
        return f"gmlake: {problem.removeprefix('gmlake: ')}"
    print("gmlake: ready")
    return None


def run(given: argparse.Namespace) -> None:
    """The command `run`."""
    from . import NotEnabled, enable
    from .predict import Problem
    from .predict.again import on_virtual_gpu

    try:
        allocator = allocator_of(given)
        check_run(given)
        if given.virtual:
            on_virtual_gpu(given.virtual)
        if given.snapshot:
            given.conf.setdefault("record", "on")
        enable(allocator, **given.conf)
    except (NotEnabled, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(WRONG)
    except Problem as problem:
        print(f"gmlake: {problem}", file=sys.stderr)
        sys.exit(WRONG)
    if given.stats:
        atexit.register(write_stats)
    if given.snapshot:  # the last comes first
        atexit.register(write_snapshot, given.snapshot, os.path.abspath(given.snapshot))
    sys.argv = [given.script, *given.arguments]
    if given.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(given.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
        runpy.run_path(given.script, run_name="__main__")


def allocator_of(given: argparse.Namespace) -> str | None:
    """The allocator that the options name, taken out of --conf."""
    named = given.conf.pop("allocator", None)
    if named and given.allocator and named != given.allocator:
        from .predict import Problem

        raise Problem(f"--allocator {given.allocator} and --conf allocator={named} are two allocators; leave one of them out")
    return given.allocator or named


def check_run(given: argparse.Namespace) -> None:
    """Fails where there is no such script, and where the snapshot cannot be written in the end."""
    from . import _files
    from .predict import Problem

    if given.module:
        if not is_module(given.script):
            raise Problem(f"-m {given.script}: no such module")
    elif not os.path.exists(given.script):
        raise Problem(f"{given.script}: no such file")
    _files.check("--snapshot", given.snapshot, [None if given.module else given.script])


def is_module(name: str) -> bool:
    """Whether Python finds the module, in this folder, too; of one in a package, the package, which is not imported."""
    sys.path.insert(0, os.getcwd())
    try:
        return find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
    finally:
        del sys.path[0]


def write_snapshot(shown: str, path: str) -> None:
    """Writes what was recorded, when the script has ended; `shown` is the path as it was given."""
    from . import snapshot
    from .predict import library

    rank = os.environ.get("RANK")
    mark = "" if rank is None else f".r{rank}"
    whole = path + mark
    path, shown = library.spared(whole), shown + mark
    shown = shown if path == whole else path
    try:
        snapshot(path)
    except OSError as error:
        print(f"gmlake: --snapshot {shown}: {error.strerror or error}", file=sys.stderr)
        return
    if rank in (None, "0"):
        print(f"gmlake: next: gmlake-sim compare {shlex.quote(shown)}", file=sys.stderr)


def write_stats() -> None:
    """Prints the statistics, when the script has ended."""
    from . import stats

    print(json.dumps(stats(), indent=1), file=sys.stderr)


if __name__ == "__main__":
    main()
