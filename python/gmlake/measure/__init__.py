"""`python -m gmlake measure LIST`: what libraries take for the operations of a list, on this machine's GPU.

    predict --unknown list.csv        the operations whose workspace was not measured
    measure list.csv --out t.csv      the libraries are asked, or the operation is run alone
    predict --workspaces t.csv        those bytes, in place of a rule's

A table says for which card and which version of a library each line is. Tables are merged by giving several to `predict`.
What can be measured, and how, is in `kinds`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from .. import _files
from ..predict import Problem
from . import kinds
from .kinds import KINDS
from .table import COLUMNS, TABLE, read, write

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COLUMNS", "KINDS", "TABLE", "add", "main", "read", "write"]

WRONG = 2
EXAMPLES = """\
examples:
  python -m gmlake predict --unknown list.csv train.py
  python -m gmlake measure list.csv --out table.csv            # on the card
  python -m gmlake predict --workspaces table.csv train.py

Exit codes: 0 success, 2 wrong usage or input, or no GPU.
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `measure` to the commands."""
    it = commands.add_parser("measure", help="measure on a GPU the workspaces that predict had to estimate",
                             formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES,
                             description="Asks the libraries of this machine's GPU for the workspace of each operation "
                             "of a list, or runs it, and writes how much it takes.")
    it.add_argument("list", metavar="LIST", help="the list that predict --unknown wrote, '-' for standard input")
    it.add_argument("--out", metavar="FILE", default="-", help="write the table here [default: standard output]")
    it.add_argument("--force", action="store_true", help="overwrite FILE")
    it.add_argument("--seconds", type=float, default=300, metavar="N", help="stop after N seconds [default: 300]")


def main(given: argparse.Namespace) -> int:
    """The command `measure`; returns the exit code."""
    try:
        rows = read(given.list)
        if given.out != "-" and os.path.exists(given.out) and not given.force:
            raise Problem(f"{given.out}: the file is there already; give another name, or --force")
        _files.check("--out", given.out, [given.list])
        table = [*measured(rows, given.seconds)]
        write(given.out, TABLE, table)
    except (Problem, OSError) as problem:
        print(f"gmlake: {problem}", file=sys.stderr)
        return WRONG
    print(f"gmlake: {len(table)} of {len(rows)} operations measured", file=sys.stderr)
    return 0


def measured(rows: list[dict[str, str]], seconds: float) -> Iterator[dict[str, object]]:
    """The rows with their bytes, as far as the time reaches; what the GPU cannot do is left out, and said."""
    try:
        import torch
    except ImportError:
        raise Problem(f"PyTorch is not installed for {sys.executable}; install a wheel for CUDA") from None
    if not torch.cuda.is_available():
        raise Problem("this machine has no GPU; run measure on the card that the prediction is for")
    card, versions, end = torch.cuda.get_device_name(), kinds.versions(), time.monotonic() + seconds
    for number, row in enumerate(rows):
        if time.monotonic() > end:
            print(f"gmlake: stopped after {seconds:g} seconds with {len(rows) - number} operations left; "
                  "raise --seconds", file=sys.stderr)
            return
        kind = KINDS[row["kind"]]
        try:
            found = kind.measure(kinds.arguments(row["arguments"]))
            yield {"card": card, "library": kind.library, "version": versions[kind.library], **row, "bytes": found}
        except (LookupError, ValueError) as error:
            raise Problem(f"line {number + 2}: no {row['kind']} has such arguments: {error}; write the file anew") from error
        except torch.OutOfMemoryError:
            print(f"gmlake: line {number + 2} left out: it does not fit into this GPU's memory", file=sys.stderr)
        except (RuntimeError, kinds.Refused) as error:
            text = str(error).strip().partition("\n")[0]
            print(f"gmlake: line {number + 2} left out: {text}", file=sys.stderr)
        torch.cuda.empty_cache()
