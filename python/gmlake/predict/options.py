"""The options of `predict`: their texts, and what they mean together."""

import argparse
import os
import re

from . import Problem
from .run import Order, Ranks
from .library import UNLIMITED

EXAMPLES = """\
examples:
  python -m gmlake predict train.py --batch 8
  python -m gmlake predict --gpu a100-80gb --steps 3 --out kept train.py
  python -m gmlake predict --vary 'batch=8,16,32,64' --steps 3 train.py
  python -m gmlake predict --world 1024 --ranks 0 train_fsdp.py
  python -m gmlake predict --world 4 --ranks all train_fsdp.py
  torchrun --nproc-per-node 4 -m gmlake predict train_fsdp.py

All options of predict stand before SCRIPT; what follows is the script's own.
Exit codes: 0 the script ran to its end or to --steps, 1 it failed (out of
memory included), 2 wrong usage or input.
"""

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def add(commands):
    """Adds the command to those of `python -m gmlake`."""
    it = commands.add_parser(
        "predict", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
        help="say how much GPU memory a script needs, on a machine without a GPU",
        description="How much GPU memory an unchanged training script needs, on any machine.",
    )
    gpu = it.add_argument_group("the GPU")
    add_gpu(gpu)
    add_events(gpu)
    add_ranks(it.add_argument_group("ranks"))
    add_script(it.add_argument_group("the script"))
    add_output(it.add_argument_group("many configurations, and output"))
    it.add_argument("script", metavar="SCRIPT", help="the script, as it is")
    it.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")


def add_gpu(group):
    option = group.add_argument
    option("--gpu", default="h200", metavar="CARD", help="which card it is [default: h200]")
    option("--memory", metavar="SIZE", help="its memory, such as 80GiB, or 'unlimited' [default: "
           "the card's; with --vary unlimited]")


def add_events(group):
    group.add_argument("--events", choices=["interval", "clock", "fast", "slow", "early", "late"],
                       help="when work on the GPU completes; interval: by the clock, and on a "
                       "faster and a slower GPU too where that matters [default: interval; under "
                       "torchrun clock]")


def add_ranks(group):
    option = group.add_argument
    option("--world", type=count, metavar="N", help="there are N ranks, and each sees that as "
           "by torchrun [default: a script without ranks]")
    option("--ranks", metavar="0,1|all", help="predict these, each alone, or all together "
           "[default: 0]")
    option("--per-node", type=count, default=8, metavar="N", help="GPUs of one machine "
           "[default: 8]")


def add_script(group):
    option = group.add_argument
    option("--steps", type=count, metavar="N", help="end after N optimizer steps")
    option("--assume", choices=["zeros", "ones", "random"], default="zeros", help="what is read "
           "where only a kernel could know [default: zeros]")
    option("--values", choices=["integers", "real", "off"], default="integers", help="which values "
           "are computed: those of integers, all (slow), none [default: integers]")
    option("--conf", metavar="SETTINGS", help="PyTorch's allocator settings, as in "
           "PYTORCH_ALLOC_CONF")
    option("-m", dest="module", action="store_true", help="SCRIPT names a module")


def add_output(group):
    option = group.add_argument
    option("--vary", action="append", default=[], metavar="NAME=LIST", help="run once with each "
           "value: in place of {NAME} in ARGS, or as --NAME VALUE after them; several make a grid")
    option("--jobs", type=count, metavar="N", help="processes side by side [default: one for each "
           "core]")
    option("--stacks", action="store_true", help="put Python stacks into the snapshot")
    option("--categories", action="store_true", help="note in the snapshot what each block is for")
    option("--out", metavar="DIR", help="keep snapshots, logs, numbers and chart here")
    option("--json", metavar="FILE", help="write the numbers, '-' for standard output")


def count(text):
    """A whole number, at least one."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: write a number such as 4")
    return int(text)


def size(text):
    """Bytes of a size such as 80GiB; units are binary, as in `gmlake-sim`."""
    if text == "unlimited":
        return UNLIMITED
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if not found or not float(found[1]):
        raise Problem(f"--memory {text}: write a size such as 80GiB, or 'unlimited'")
    return int(float(found[1]) * UNITS[found[2].lower()])


def order_of(given, cards):
    """What is to be predicted."""
    if not given.module and not os.path.exists(given.script):
        raise Problem(f"{given.script}: no such file")
    memory = given.memory or ("unlimited" if given.vary else None)
    return Order(
        given.script, given.module, given.arguments, given.steps, given.stacks, given.categories,
        given.values, given.assume, given.conf, card(given.gpu, cards), memory and size(memory),
    )


def card(name, cards, option="--gpu"):
    """The card of that name; case and what stands between words do not matter."""
    def plain(text):
        return re.sub(r"[^a-z0-9]", "", text.lower())

    found = [each for each in cards if plain(each) == plain(name)]
    if cards and not found:
        raise Problem(f"{option} {name}: there is no such card; there are: {', '.join(cards)}")
    return found[0] if found else name


def ranks_of(given):
    """Which ranks are to be predicted, from the options or from torchrun."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ and given.world is None:
        return launched(given)
    world = given.world or 1
    if given.ranks == "all":
        return Ranks(world, list(range(world)), True, False, given.per_node, True)
    listed = (given.ranks or "0").split(",")
    if not all(text.strip().isdigit() for text in listed):
        raise Problem(f"--ranks {given.ranks}: write numbers such as 0,1, or 'all'")
    ranks = sorted({int(text) for text in listed})
    if ranks[-1] >= world:
        what = "give --world" if given.world is None else f"the last of {world} is {world - 1}"
        raise Problem(f"--ranks {given.ranks}: there is no rank {ranks[-1]}; {what}")
    return Ranks(world, ranks, False, False, given.per_node, given.world is not None)


def launched(given):
    """The one rank that this process is under torchrun."""
    if given.ranks is not None:
        raise Problem("--ranks is not for use under torchrun, which says itself which rank this is")
    if given.vary:
        raise Problem("--vary is not for use under torchrun; use --world N --ranks all")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return Ranks(world, [rank], False, True, local, True)


def events_of(given, ranks):
    """When work on the GPU completes."""
    return given.events or ("clock" if ranks.launched else "interval")
