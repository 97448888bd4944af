"""The command `python -m gmlake predict`: from options to a prediction, and to an exit code."""

import os
import shlex
import signal
import sys
import tempfile

from . import Problem, answer, grid, library, options, pytorch, simulator
from .outputs import Outputs, made, name_of
from .prediction import predict
from .run import Workshop

FAILED, WRONG, INTERRUPTED = 1, 2, 130


def main(given):
    """Predicts as the options say, and returns the exit code."""
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return command(given)
    except Problem as problem:
        say(str(problem))
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def interrupt(*_):
    """What a polite request to end does: the same as ctrl-C."""
    raise KeyboardInterrupt


def command(given):
    """As `main`, without what may go wrong."""
    wheel = usable()
    torch = wheel.torch
    order = options.order_of(given, library.cards(library.find()))
    ranks = options.ranks_of(given)
    events = options.events_of(given, ranks)
    configurations = grid.configurations(given.vary)
    out = given.out and made(given.out)
    if given.json and not os.path.isdir(os.path.dirname(os.path.abspath(given.json))):
        raise Problem(f"--json {given.json}: its folder does not exist")
    with tempfile.TemporaryDirectory(prefix="gmlake-predict-") as folder:
        workshop = Workshop(folder, given.jobs or os.cpu_count() or 1, wheel)
        try:
            if configurations:
                return grid.main(given, workshop, order, ranks, events, configurations, torch)
            return one(given, workshop, order, ranks, events, out or folder, torch)
        finally:
            workshop.close()


def usable():
    """The versions that PyTorch was built for, once all is there that a prediction needs."""
    if not sys.platform.startswith("linux"):
        raise Problem("predict works on Linux alone: CUDA's libraries are replaced by its loader")
    versions = pytorch.versions()
    simulator.find()
    if library.real_gpus():
        say("this machine has a GPU; it is not used")
    return versions


def one(given, workshop, order, ranks, events, folder, torch):
    """Predicts one configuration and prints its answer."""
    name = name_of(order.script, order.module)
    outputs = Outputs(folder, name, ranks.world > 1, shows=ranks.ranks[0])
    try:
        found = predict(workshop, order, ranks, events, outputs.stem, outputs.output)
    finally:
        outputs.close()
    outputs.show_failures(found)
    if not given.out:
        for rank in found:
            rank["snapshot"] = None
    content = answer.head(order, torch, world=ranks.world, events=events)
    content["ranks"] = found
    content["nodes"] = answer.on_nodes(found, ranks)
    for path in places(given, ranks, outputs):
        answer.write_json(path, content)
    if given.json != "-" and answer.table(found):
        print(answer.table(found), flush=True)
    for note in answer.notes(found, order, content["nodes"]):
        say(note)
    if answer.table(found):
        say(f"next: {following(given, found)}")
    return FAILED if any(rank["error"] or not rank["requests"] for rank in found) else 0


def following(given, found):
    """The command that shows more: of the snapshot, or the one that keeps it."""
    kept = next((rank["snapshot"] for rank in found if rank["snapshot"]), None)
    if kept:
        return f"gmlake-sim report {shlex.quote(str(kept))}"
    script = f"-m {given.script}" if given.module else shlex.quote(given.script)
    return f"python -m gmlake predict --out DIR {script}, which keeps the snapshot for gmlake-sim"


def places(given, ranks, outputs):
    """Where the numbers are to be written; under torchrun every rank writes a file of its own."""
    mark = f".r{ranks.ranks[0]}" if ranks.launched and ranks.world > 1 else ""
    if given.out:
        yield outputs.file(f"{mark}.json")
    if given.json:
        stem, ending = os.path.splitext(given.json)
        yield given.json if given.json == "-" else stem + mark + ending


def say(text):
    """A message to the user, in a line."""
    print(f"gmlake: {text}", file=sys.stderr, flush=True)
