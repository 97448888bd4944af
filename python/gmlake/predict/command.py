"""The command `python -m gmlake predict`: from options to a prediction, and to an exit code."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING

from .. import _files
from .._stdout import tell
from . import Problem, answer, grid, library, options, pytorch, sharing, simulator
from .again import when_asked_to_end
from .order import Order, Ranks, Task
from .outputs import Outputs, check_own, made, name_of, scratch
from .prediction import predict
from .run import Workshop

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from .facts import Rank

add = options.add

FAILED, WRONG, INTERRUPTED = 1, 2, 130


def main(given: argparse.Namespace) -> int:
    """Predicts as the options say, and returns the exit code."""
    end_politely()
    try:
        return command(given)
    except Problem as problem:
        say(str(problem))
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def end_politely() -> None:
    """Lets a polite request to end, and the end of the terminal, do the same as ctrl-C."""
    when_asked_to_end(interrupt)


def interrupt(*_: object) -> None:
    """What such a signal does."""
    raise KeyboardInterrupt


def command(given: argparse.Namespace) -> int:
    """Runs the command; errors propagate to `main`."""
    wheel = usable(given.conf)
    order, ranks = options.order_of(given, library.cards(library.find())), options.ranks_of(given)
    task = Task(order, ranks, options.events_of(given, ranks))
    points = grid.configurations(given.vary)
    check_outputs(given, order, ranks)
    out = given.out and made(given.out)
    if out:
        check_own(out, name_of(order.script, order.module), ranks, points)
    with scratch("gmlake-predict-") as folder:
        workshop = Workshop(folder, given.jobs or os.cpu_count() or 1, wheel)
        try:
            if order.serve:
                from .serving import command as serving

                return serving.main(given, workshop, task, points)
            if points:
                return grid.main(given, workshop, task, points)
            return one(given, workshop, task, out or folder)
        finally:
            workshop.close()


def usable(conf: str | None) -> pytorch.Wheel:
    """The versions that PyTorch was built for, once all is there that a prediction needs, and `--conf` is what it takes."""
    if not sys.platform.startswith("linux"):
        raise Problem("predict works only on Linux, whose loader replaces CUDA's libraries")
    versions = pytorch.versions()
    simulator.find()
    if conf:
        simulator.check(conf, versions.torch)
    if library.real_gpus():
        say("this machine has a GPU; it is not used")
    return versions


def one(given: argparse.Namespace, workshop: Workshop, task: Task, folder: str) -> int:
    """Predicts one configuration and prints its answer."""
    order, ranks = task.order, task.ranks
    outputs = Outputs(folder, name_of(order.script, order.module), ranks.world > 1, shows=ranks.ranks[0])
    try:
        found = predict(workshop, task, outputs)
    finally:
        outputs.close()
    outputs.show_failures(rank.rank for rank in found if rank.error)
    if not given.out:
        for rank in found:
            rank.snapshot = None
    nodes = answer.on_nodes(found, ranks)
    shared = sharing.found(found, ranks)
    content = {**answer.head(task, workshop.wheel.torch), "ranks": found, "nodes": nodes, "shared_gpus": shared}
    problems = _files.problems_of([
        *(partial(answer.write_json, path, "predict", content) for path in places(given, ranks, outputs)),
        lambda: write_unknown(given.unknown, found),
    ])
    shown = answer.table(found)
    if given.json != "-" and shown:
        tell(shown)
    for note in answer.notes(found, order, nodes, shared):
        say(note)
    if shown:
        say(f"next: {following(found)}")
    if problems:
        raise problems[0]
    return FAILED if any(rank.failed for rank in found) else 0


def write_unknown(path: str | None, found: Sequence[Rank]) -> None:
    """Lists the operations that were not measured."""
    if path:
        from .. import measure

        lines = sorted({line for rank in found for line in rank.estimated})
        measure.write(path, measure.COLUMNS, (dict(zip(measure.COLUMNS, line.split(","))) for line in lines))


def following(found: Sequence[Rank]) -> str:
    """The command that shows more: of the snapshot, or the one that keeps it."""
    kept = next((rank.snapshot for rank in found if rank.snapshot), None)
    if kept:
        return f"gmlake-sim report {shlex.quote(kept)}"
    asked = [word for word in sys.argv[2:] if word != "--stacks"]
    return f"python -m gmlake predict --stacks --out DIR {shlex.join(asked)}, to keep a snapshot for gmlake-sim blame"


def places(given: argparse.Namespace, ranks: Ranks, outputs: Outputs) -> Iterator[str]:
    """Where the numbers are to be written; under torchrun every rank writes a file of its own."""
    if given.out:
        yield outputs.file(f"{mark_of(ranks)}.json")
    if given.json:
        yield json_of(given.json, ranks)


def mark_of(ranks: Ranks) -> str:
    """What tells a file of this rank from those of the others under torchrun."""
    return f".r{ranks.ranks[0]}" if ranks.launched and ranks.world > 1 else ""


def json_of(path: str, ranks: Ranks) -> str:
    """The file of --json."""
    stem, ending = os.path.splitext(path)
    return path if path == "-" else stem + mark_of(ranks) + ending


def check_outputs(given: argparse.Namespace, order: Order, ranks: Ranks) -> None:
    """Fails where a file cannot be written in the end, or is an input."""
    tables = order.workspaces.split(",") if order.workspaces else []
    inputs = [None if order.module else order.script, *tables, order.routing, order.requests]
    _files.check("--json", given.json and json_of(given.json, ranks), inputs)
    _files.check("--unknown", given.unknown, inputs)
    if given.json and given.json == given.unknown:
        raise Problem(f"--json and --unknown write the same file: {given.json}")


def say(text: str) -> None:
    """A message to the user, in a line."""
    print(f"gmlake: {text}", file=sys.stderr, flush=True)
