"""The options of `predict`: their texts, and what they mean together. Those of the script's run are in `order`."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import _sizes
from . import Problem, scenario
from .library import UNLIMITED
from .order import GPU, OUTPUT, SCRIPT, SERVER, Order, Ranks, count, gpus
from .serving import given as server

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
examples:
  python -m gmlake predict train.py --batch 8
  python -m gmlake predict --gpu a100-80gb --steps 3 --out kept train.py
  python -m gmlake predict --vary 'batch=8,16,32,64' --steps 3 train.py
  python -m gmlake predict --world 1024 --ranks 0 train_fsdp.py
  python -m gmlake predict --world 4 --ranks all train_fsdp.py
  torchrun --nproc-per-node 4 -m gmlake predict train_fsdp.py
  python -m gmlake predict --serve --gpu h100-80gb vllm serve MODEL
  python -m gmlake predict --serve --requests day.csv --step-ms 25 vllm serve MODEL

All options of predict stand before SCRIPT; what follows is the script's own.
Exit codes: 0 the script ran to its end or to --steps, or the server starts;
1 it or a process of its own failed (out of memory included), it requested no
GPU memory, or the server does not fit; 2 wrong usage or input. With --vary a
configuration that runs out of memory is a result: 1 only if all do.
"""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `python -m gmlake`."""
    it = commands.add_parser(
        "predict", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
        help="predict how much GPU memory a script needs, without a GPU",
        description="Predicts how much GPU memory an unchanged training script needs. Needs no GPU.",
    )
    gpu = it.add_argument_group(GPU)
    Order.add(gpu, GPU)
    add_events(gpu)
    add_ranks(it.add_argument_group("ranks"))
    Order.add(it.add_argument_group(SCRIPT), SCRIPT)
    Order.add(it.add_argument_group(SERVER), SERVER)
    add_output(it.add_argument_group(OUTPUT))
    it.add_argument("script", metavar="SCRIPT", help="the unchanged script")
    it.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")


def add_events(group: argparse._ActionsContainer) -> None:
    """Adds the option that says when work on the GPU completes."""
    group.add_argument("--events", choices=["interval", "clock", "fast", "slow", "early", "late"],
                       help="when work on the GPU completes; interval: by the clock, and where it matters "
                       "on a faster and a slower GPU, too [default: interval; under torchrun clock]")


def add_ranks(group: argparse._ActionsContainer) -> None:
    """Adds the options that say which ranks there are."""
    option = group.add_argument
    option("--world", type=count, metavar="N", help="number of ranks; each runs as under torchrun "
           "[default: a script without ranks]")
    option("--ranks", metavar="0,1|all", help="ranks to predict: these, each alone, or all together "
           "[default: 0]")
    option("--per-node", type=gpus, default=8, metavar="N", help="GPUs in each machine "
           "[default: 8]")


def add_output(group: argparse._ActionsContainer) -> None:
    """Adds the options that say what comes out."""
    option = group.add_argument
    option("--vary", action="append", default=[], metavar="NAME=LIST", help="run once with each "
           "value, in place of {NAME} in ARGS or as --NAME VALUE after them; several make a grid; the GPU "
           "has unlimited memory unless --memory says otherwise")
    option("--jobs", type=count, metavar="N", help="processes to run in parallel [default: one for each "
           "core]")
    Order.add(group, OUTPUT)
    option("--out", metavar="DIR", help="folder for snapshots, logs, JSON and chart [default: none is kept]")
    option("--unknown", metavar="FILE", help="list the operations whose workspace was not measured, for "
           "python -m gmlake measure")
    option("--json", metavar="FILE", help="write the result as JSON, '-' for standard output")


def order_of(given: argparse.Namespace, cards: Sequence[str]) -> Order:
    """What is to be predicted, on which of the cards."""
    order = Order.of(given)
    if order.serve:
        server.check(given)
        order = replace(order, script=server.script(order), gpus=order.gpus or given.per_node)
        order = replace(order, requests=order.requests and os.path.abspath(order.requests))
    elif order.requests:
        raise Problem("--requests works only with --serve")
    if order.step_ms and not order.requests:
        raise Problem("--step-ms works only with --requests")
    if not order.module:
        check_script(order.script)
    if order.memory is not None and order.memory < _sizes.LEAST:
        raise Problem(f"--memory: {_sizes.show(order.memory)} is less than any GPU has; write a unit, such as 80GiB")
    for table in order.workspaces.split(",") if order.workspaces else []:
        check(table)
    if order.routing:
        scenario.parse(order.routing)
    if given.unknown and given.vary:
        raise Problem("--unknown does not work with --vary: run it for one configuration")
    memory = UNLIMITED if order.memory is None and given.vary and not order.serve else order.memory
    return replace(order, gpu=card(order.gpu, cards), memory=memory)


def check_script(path: str) -> None:
    """Whether this is a file, or a folder or an archive, that can be read for each run."""
    streams = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
    if path == "-" or os.path.abspath(path).startswith(streams):
        raise Problem(f"{path}: the script may run several times; write it into a file, such as train.py")
    if not os.path.exists(path):
        raise Problem(f"{path}: no such file")


def check(table: str) -> None:
    """Whether a file is a table of workspaces."""
    from .. import measure

    try:
        measure.read(table, measure.TABLE)
    except Problem as problem:
        raise Problem(f"--workspaces {problem}") from problem


def card(name: str, cards: Sequence[str], option: str = "--gpu") -> str:
    """The card of that name; case and what stands between words do not matter."""
    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower())

    found = [each for each in cards if plain(each) == plain(name)]
    if cards and not found:
        raise Problem(f"{option} {name}: unknown card; expected one of {', '.join(cards)}")
    return found[0] if found else name


def ranks_of(given: argparse.Namespace) -> Ranks:
    """Which ranks are to be predicted, from the options or from torchrun."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ and given.world is None:
        return launched(given)
    world: int = given.world or 1
    if given.ranks == "all":
        return Ranks(world, list(range(world)), True, False, given.per_node, True)
    listed = (given.ranks or "0").split(",")
    if not all(text.strip().isdecimal() for text in listed):
        raise Problem(f"invalid --ranks {given.ranks}; expected numbers such as 0,1, or 'all'")
    ranks = sorted({int(text) for text in listed})
    if ranks[-1] >= world:
        what = "give --world N" if given.world is None else f"the last of {world} is {world - 1}"
        raise Problem(f"--ranks {given.ranks}: there is no rank {ranks[-1]}; {what}")
    return Ranks(world, ranks, False, False, given.per_node, given.world is not None)


def launched(given: argparse.Namespace) -> Ranks:
    """The one rank that this process is under torchrun."""
    if given.ranks is not None:
        raise Problem("--ranks does not work under torchrun, which sets the rank")
    if given.vary:
        raise Problem("--vary does not work under torchrun; use --world N --ranks all")
    rank, world = number("RANK"), number("WORLD_SIZE")
    if rank >= world:
        raise Problem(f"RANK={rank} and WORLD_SIZE={world} in the environment: there is no such rank; --world N ignores them")
    local = number("LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in os.environ else world
    return Ranks(world, [rank], False, True, local, True)


def number(name: str) -> int:
    """What a launcher has set."""
    text = os.environ[name]
    if not text.isdecimal():
        raise Problem(f"{name}={text} in the environment: expected a number, as torchrun sets it; --world N ignores it")
    return int(text)


def events_of(given: argparse.Namespace, ranks: Ranks) -> str:
    """When work on the GPU completes."""
    return given.events or ("clock" if ranks.launched else "interval")
