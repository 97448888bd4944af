"""`python -m gmlake measure LAYERS`: what cuDNN takes for the convolutions of a list, on this machine's GPU.

    predict --unknown layers.csv      the convolutions whose workspace is only estimated
    measure layers.csv --out t.csv    each is run alone, and what it takes for a moment is noted
    predict --workspaces t.csv        those bytes, in place of estimates

A table says for which card and which version of cuDNN it is. Tables are merged by giving several to `predict`.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from .predict import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WRONG = 2
EXAMPLES = """\
examples:
  python -m gmlake predict --unknown layers.csv train.py
  python -m gmlake measure layers.csv --out table.csv          # on the card
  python -m gmlake predict --workspaces table.csv train.py

Exit codes: 0 success, 2 wrong usage or input, or no GPU.
"""
COLUMNS = ["direction", "kind", "channels_last", "input", "weight", "output", "stride", "padding", "dilation"]
"""What identifies a convolution, as in crates/virtual-gpu/src/workspace/asked.rs."""
SIZES = r"\d{1,12}(x\d{1,12})*"
VALUES = {
    "direction": "forward|data|weight", "kind": "float(16|32|64)|bfloat16", "channels_last": "[01]",
    "cudnn": r"\d{1,9}", "bytes": r"\d{1,18}",
    **dict.fromkeys(["input", "weight", "output", "stride", "padding", "dilation"], SIZES),
}
"""What stands in the columns."""
TABLE = ["card", "cudnn", *COLUMNS, "bytes"]
"""The columns of what was measured."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `measure` to the commands."""
    it = commands.add_parser("measure", help="measure on a GPU the cuDNN workspaces that predict had to estimate",
                             formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES,
                             description="Runs each convolution of a list on this machine's GPU, and writes how much "
                             "workspace cuDNN takes.")
    it.add_argument("layers", metavar="LAYERS", help="the list that predict --unknown wrote, '-' for standard input")
    it.add_argument("--out", metavar="FILE", default="-", help="write the table here [default: standard output]")
    it.add_argument("--force", action="store_true", help="overwrite FILE")
    it.add_argument("--seconds", type=float, default=300, metavar="N", help="stop after N seconds [default: 300]")


def main(given: argparse.Namespace) -> int:
    """The command `measure`; returns the exit code."""
    try:
        rows = read(given.layers)
        if given.out != "-" and os.path.exists(given.out) and not given.force:
            raise Problem(f"{given.out}: the file is there already; give another name, or --force")
        table = [*measured(rows, given.seconds)]
        write(given.out, TABLE, table)
    except (Problem, OSError) as problem:
        print(f"gmlake: {problem}", file=sys.stderr)
        return WRONG
    print(f"gmlake: {len(table)} of {len(rows)} convolutions measured", file=sys.stderr)
    return 0


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
        to(sys.stdout)
        return
    partial = f"{path}.{os.getpid()}.partial"
    with open(partial, "w", newline="") as file:
        to(file)
    os.replace(partial, path)


def measured(rows: list[dict[str, str]], seconds: float) -> Iterator[dict[str, object]]:
    """The rows with their bytes, as far as the time reaches; what does not fit into memory is left out."""
    try:
        import torch
    except ImportError:
        raise Problem(f"PyTorch is not installed for {sys.executable}; install a wheel for CUDA") from None
    if not torch.cuda.is_available():
        raise Problem("this machine has no GPU; run measure on the card that the prediction is for")
    what = {"card": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
    end = time.monotonic() + seconds
    for number, row in enumerate(rows):
        if time.monotonic() > end:
            print(f"gmlake: stopped after {seconds:g} seconds with {len(rows) - number} convolutions left; "
                  "raise --seconds", file=sys.stderr)
            return
        try:
            yield {**what, **row, "bytes": momentary(call(row))}
        except torch.OutOfMemoryError:
            print(f"gmlake: line {number + 2} left out: it does not fit into this GPU's memory", file=sys.stderr)
        except (RuntimeError, LookupError) as error:
            text = str(error).strip().partition("\n")[0]
            raise Problem(f"line {number + 2}: PyTorch cannot run this convolution: {text}") from error
        torch.cuda.empty_cache()


def call(row: dict[str, str]) -> Callable[[], object]:
    """What runs the convolution of a row, with its tensors made before."""
    import torch

    def sizes(name: str) -> list[int]:
        return [int(size) for size in row[name].split("x")]

    orders = {4: torch.channels_last, 5: torch.channels_last_3d}
    order = orders[len(sizes("input"))] if row["channels_last"] == "1" else torch.contiguous_format

    def zeros(name: str) -> Any:
        return torch.zeros(sizes(name), device="cuda", dtype=getattr(torch, row["kind"])).to(memory_format=order)

    x, weight = zeros("input"), zeros("weight")
    stride, padding, dilation = sizes("stride"), sizes("padding"), sizes("dilation")
    groups = x.shape[1] // weight.shape[1]
    rest = (stride, padding, dilation, False, [0] * len(stride), groups)
    if row["direction"] == "forward":
        return lambda: torch.ops.aten.convolution(x, weight, None, *rest)
    gradient = zeros("output")
    wanted = [row["direction"] == "data", row["direction"] == "weight", False]
    return lambda: torch.ops.aten.convolution_backward(gradient, x, weight, None, *rest, wanted)


def momentary(run: Callable[[], object]) -> int:
    """Bytes that were requested during a call and given back before its end."""
    import torch

    torch.cuda.reset_peak_memory_stats()
    result = run()
    stats = torch.cuda.memory_stats()
    del result
    return int(stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"])
