"""The order: what is to be predicted, and where.

An option of `predict` that concerns the script's run is written once, as a field of `Order`: argparse fills it, the
process of each rank gets it as JSON, and `answer` says it again.

    --steps 3 ──argparse──▶ Order.steps ──JSON──▶ job: order.steps
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any

from .. import _sizes
from .library import UNLIMITED

# Groups of options, as the help shows them.
GPU, SCRIPT, SERVER, OUTPUT = "the GPU", "the script", "a server", "many configurations, and output"


# What is taken for a value that only a kernel could know.
ASSUMED = ["zeros", "ones", "random"]

# What is computed: integers; with all else but gradients, so that weights stay as they begin; all; nothing.
VALUES = INTEGERS, FORWARD, REAL, OFF = "integers", "forward", "real", "off"
MOST_GPUS = 64  # as crates/virtual-gpu/src/gpu.rs has it

COMPUTED = {FORWARD, REAL}  # even floats


def count(text: str) -> int:
    """A whole number, at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: write a number such as 4")
    return int(text)


def gpus(text: str) -> int:
    """A number of GPUs in one machine."""
    found = count(text)
    if found > MOST_GPUS:
        raise argparse.ArgumentTypeError(f"{text}: a machine of the virtual GPU has at most {MOST_GPUS}")
    return found


def milliseconds(text: str) -> float:
    """A duration, more than nothing."""
    try:
        if 0 < (found := float(text)) < math.inf:
            return found
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text}: write milliseconds such as 25")


def size(text: str) -> int:
    """Bytes of a size such as 80GiB, or more than any GPU has."""
    if text == "unlimited":
        return UNLIMITED
    try:
        found = _sizes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, or 'unlimited'") from error
    if found > UNLIMITED:
        raise argparse.ArgumentTypeError(f"{text}: write at most {_sizes.show(UNLIMITED)}, or 'unlimited'")
    return found


def _option(group: str, *words: str, **more: Any) -> Any:
    """A field that is an option, too; `more` is for argparse."""
    return field(metadata={"group": group, "words": words, "more": more})


def _default(option: Field[Any]) -> Any:
    more = option.metadata.get("more", {})
    return more.get("default", False if more.get("action") == "store_true" else None)


@dataclass(frozen=True)
class Order:
    """What is to be predicted: a script with its arguments, and how it is run."""

    script: str
    arguments: list[str]
    gpu: str = _option(GPU, "--gpu", default="h200", metavar="CARD", help="the card, such as h200 or rtx-4090 [default: h200]")
    memory: int | None = _option(
        GPU, "--memory", type=size, metavar="SIZE",
        help="memory of the GPU, such as 80GiB, or 'unlimited' [default: the card's]",
    )
    gpus: int | None = _option(
        GPU, "--gpus", type=gpus, metavar="N",
        help="how many GPUs the script sees [default: one, or one for each rank of a node]",
    )
    workspaces: str | None = _option(
        GPU, "--workspaces", metavar="TABLE,...",
        help="workspaces of libraries on this card, from python -m gmlake measure; several tables are merged",
    )
    steps: int | None = _option(SCRIPT, "--steps", type=count, metavar="N", help="stop after N optimizer steps")
    assume: str = _option(
        SCRIPT, "--assume", choices=ASSUMED, default="zeros",
        help="values that the script reads where only a kernel could compute them [default: zeros]",
    )
    routing: str | None = _option(
        SCRIPT, "--routing", metavar="SCENARIO", help="which experts tokens choose: balanced, skew:FACTOR, W0 to W7 "
        "(Megatron-LM's workloads), or a file with the share of each [default: as --assume says]",
    )
    values: str = _option(
        SCRIPT, "--values", choices=VALUES, default=INTEGERS,
        help="tensors whose values are computed: of integers, all but gradients (slow), all (slower), none "
        "[default: integers]",
    )
    conf: str | None = _option(
        SCRIPT, "--conf", metavar="SETTINGS", help="PyTorch's allocator settings, as in PYTORCH_ALLOC_CONF"
    )
    module: bool = _option(SCRIPT, "-m", action="store_true", help="SCRIPT names a module")
    stacks: bool = _option(OUTPUT, "--stacks", action="store_true", help="record Python call stacks in the snapshot")
    categories: bool = _option(
        OUTPUT, "--categories", action="store_true", help="record in the snapshot what each block is for"
    )
    serve: bool = _option(
        SERVER, "--serve", action="store_true",
        help="SCRIPT starts vLLM, as in --serve vllm serve MODEL: say whether it starts, and what its KV cache holds",
    )
    requests: str | None = _option(
        SERVER, "--requests", metavar="FILE", help="then serve these with the server's own scheduler: a CSV of "
        "arrival_s,prompt_tokens,output_tokens; says how many are preempted, and the peak of the KV cache",
    )
    step_ms: float | None = _option(
        SERVER, "--step-ms", type=milliseconds, metavar="MS",
        help="what a step of the server takes, so that requests arrive in time [default: all arrive at once]",
    )

    @classmethod
    def add(cls, parser: argparse._ActionsContainer, group: str) -> None:
        """Adds the options of this group to a parser."""
        for each in fields(cls):
            if each.metadata.get("group") == group:
                parser.add_argument(*each.metadata["words"], dest=each.name, **each.metadata["more"])

    @classmethod
    def of(cls, given: argparse.Namespace) -> Order:
        """What was given; an option that the command does not have is at its default."""
        return cls(**{each.name: getattr(given, each.name, _default(each)) for each in fields(cls)})

    @classmethod
    def changed(cls, given: argparse.Namespace) -> list[str]:
        """The options that are not at their defaults."""
        options = [each for each in fields(cls) if each.metadata and getattr(given, each.name, _default(each)) != _default(each)]
        return [each.metadata["words"][0] for each in options]


@dataclass(frozen=True)
class Ranks:
    """Which ranks: all `world` of them exist; those in `ranks` are run, together or alone.

    Under torchrun (`launched`) there is one, and it is in the environment already. `informed` says that the script gets
    its rank from the environment; without it there is one process, and the script knows of no ranks.
    """

    world: int
    ranks: list[int]
    together: bool
    launched: bool
    per_node: int
    informed: bool

    @property
    def alone(self) -> bool:
        """Whether a rank runs as if the others were there."""
        return not self.together and not self.launched


@dataclass(frozen=True)
class Task:
    """One configuration: what is run, in which ranks, and when work on the GPU completes."""

    order: Order
    ranks: Ranks
    events: str


@dataclass(frozen=True)
class Job:
    """What the process of one rank gets: the order, in which company it is, and where its files go."""

    order: Order
    alone: bool
    together: bool
    snapshot: str
    facts: str
    stdin: str | None = None  # the file of what runs have taken from standard input

    @property
    def stem(self) -> str:
        """The path of its files without ending."""
        return self.snapshot.removesuffix(".pickle")

    @property
    def replaced(self) -> str:
        """The file of the facts of a process that became another program."""
        return self.facts + ".replaced"

    def to_json(self) -> str:
        """The text that the process gets."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job in the text."""
        found = json.loads(text)
        return cls(**{**found, "order": Order(**found["order"])})
