"""Lists of operations, and tables of what they take: CSV, one format for all kinds.

    list     kind,arguments                                  fourier,sizes=44100 ... batch=64 execution=4
    table    card,library,version,kind,arguments,bytes       NVIDIA H100 80GB HBM3,cuda,13000,fourier,sizes=...,22579200

`crates/virtual-gpu/src/workspace/question.rs` writes the arguments.
"""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._stdout import tell
from ..predict import Problem
from . import kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ["kind", "arguments"]
"""What identifies an operation."""
TABLE = ["card", "library", "version", *COLUMNS, "bytes"]
"""The columns of what was measured."""
VALUES = {
    "kind": "|".join(kinds.KINDS), "arguments": r"[a-z_]+=[\w/:-]+( [a-z_]+=[\w/:-]+)*",
    "library": "cudnn|cuda", "version": r"\d{1,9}", "bytes": r"\d{1,18}",
}
"""What stands in the columns."""


def read(path: str, columns: list[str] = COLUMNS) -> list[dict[str, str]]:
    """The rows of a list, or of a table."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in columns if name not in (reader.fieldnames or [])]
    if missing:
        source = "predict --unknown writes such lists" if columns == COLUMNS else "gmlake measure writes such tables"
        raise Problem(f"{path}: no column {missing[0]!r}; {source}")
    rows = [{name: row[name] or "" for name in columns} for row in reader]
    for number, row in enumerate(rows, 2):
        wrong = [name for name in columns if name in VALUES and not re.fullmatch(VALUES[name], row[name])]
        if wrong:
            raise Problem(f"{path}: line {number}: invalid {wrong[0]} {row[wrong[0]]!r}; write the file anew")
    return rows


def write(path: str, columns: list[str], table: Iterable[dict[str, object]]) -> None:
    """A table as CSV, whole or not at all."""
    def to(file: Any) -> None:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)

    if path == "-":
        text = io.StringIO()
        to(text)
        tell(text.getvalue().rstrip("\n"))
        return
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "w", newline="") as file:
            to(file)
        os.replace(partial, path)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from error
