"""The answer: a table for people, and the same numbers and more as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from .. import __version__
from .._sizes import show
from .._stdout import tell
from . import Problem, others, visible
from .facts import ASKED, Need
from .interval import deciders, open_ended
from .order import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .facts import Rank
    from .order import Order, Ranks, Task
    from .sharing import Shared

SCHEMA = 2  # as SCHEMA_VERSION of the programs: src/report/answer.rs

WORTH_A_NOTE = 256 << 20  # bytes of the host's memory

PYTORCHS = ["caching", "expandable"]  # allocators that are PyTorch's own

HEAD = ["rank", "PyTorch", "live", "expandable", "lake", "smallest card: PyTorch / lake"]
ROW = "{:>4} {:>10} {:>10} {:>10} {:>10}  {}"


@dataclass(frozen=True)
class Node:
    """A machine of the job: how many ranks it has, how many were predicted, and what all pin of its host's memory."""

    node: int
    ranks: int
    predicted: int
    pinned_peak_bytes: int


def table(ranks: Iterable[Rank]) -> str:
    """A line for each rank; empty if none of them used a GPU."""
    rows = [line(rank) for rank in ranks if rank.requests]
    rule = ROW.format("-" * 4, *["-" * 10] * 4, "-" * len(HEAD[-1]))
    return "\n".join([ROW.format(*HEAD), rule, *rows]) if rows else ""


def line(rank: Rank) -> str:
    """What one rank holds at most, in the end under each allocator."""
    return ROW.format(rank.name, *map(show, held(rank)), cards(rank))


def held(rank: Rank) -> list[int | None]:
    """Bytes under PyTorch, live, under expandable segments and under `lake`."""
    others = [allocator(rank, name).reserved_peak_bytes for name in ["expandable", "lake"]]
    return [rank.reserved_peak_bytes, rank.active_peak_bytes, *others]


def cards(rank: Rank) -> str:
    """The smallest cards that run this rank. Nothing is known of a job that did not go on."""
    if rank.died_of_memory:
        return f"out of memory in step {rank.oom_step}"
    if rank.error:
        return f"failed in step {(rank.steps or 0) + 1}: {kind(rank.error)}"
    if rank.oom_step is not None:
        return f"ran out in step {rank.oom_step} and went on"
    own = ends(allocator(rank, rank.allocator)) if rank.allocator else "unknown"
    return f"{own} / {ends(allocator(rank, 'lake'))}"


def ends(need: Need) -> str:
    """The smallest card, up to the one that serves the upper end of the interval."""
    low, high = (card or "none" for card in (need.smallest_card, need.smallest_card_high))
    return f"{low} to {high}" if ends_differ(need) else low


def ends_differ(need: Need) -> bool:
    """Whether the upper end of the interval needs a larger card than the best guess."""
    return need.smallest_card != need.smallest_card_high


def kind(error: str) -> str:
    """The kind of an error, such as `ValueError`, without its module and its message."""
    name = error.partition(":")[0].removeprefix("it ended by ")
    for ours in ("it was ", "its process ended early, with "):
        if name.startswith(ours):
            return name.removeprefix(ours).partition(",")[0]
    return name if "(" in name else name.rpartition(".")[2]


def allocator(rank: Rank, name: str) -> Need:
    """One allocator's numbers, or empty ones."""
    return rank.allocators.get(name, Need())


def notes(ranks: Iterable[Rank], order: Order, nodes: Iterable[Node] = (), shared: Iterable[Shared] = ()) -> list[str]:
    """What must be known about the numbers, a line each. `nodes` is what `on_nodes` returned, `shared` of `sharing`."""
    ranks = list(ranks)
    found = [*without_steps(ranks, order)]
    for rank in ranks:
        who = f"rank {rank.rank}" if rank.process is None else f"rank {rank.name} ({rank.command})"
        found += [f"{who}: {text}" for text in notes_of(rank, order)]
    for node in nodes:
        if node.ranks > 1 and node.pinned_peak_bytes >= WORTH_A_NOTE:
            about = "" if node.predicted == node.ranks else "about "
            found.append(f"node {node.node}: its {node.ranks} ranks pin {about}{show(node.pinned_peak_bytes)} "
                         "of the host's memory at most")
    return [*found, *map(shared_gpu, shared)]


def without_steps(ranks: Sequence[Rank], order: Order) -> Iterator[str]:
    """That `--steps` ended nothing, since no process of the script made a step."""
    if order.steps and ranks and not any(rank.steps or rank.error for rank in ranks):
        yield f"--steps {order.steps} had no effect: the script called no optimizer.step(), so it ran to its end"


def shared_gpu(it: Shared) -> str:
    """What processes need together of a GPU that they share."""
    sizes = f"at most {show(it.reserved_peak_bytes)} of PyTorch and {show(it.beside_pytorch_bytes)} besides"
    return (f"ranks {listed(it.processes)} share GPU {it.gpu} of node {it.node}: {sizes}, if their peaks coincide; "
            f"smallest card for that: {it.smallest_card or 'none'}")


def on_nodes(found: Iterable[Rank], ranks: Ranks) -> list[Node]:
    """Pinned memory of each node's host: of its ranks that were predicted, and as much as their average for the others."""
    nodes: dict[int, dict[int, int]] = {}
    for rank in found:
        node = nodes.setdefault(rank.rank // ranks.per_node, {})
        node[rank.rank] = node.get(rank.rank, 0) + (rank.pinned_peak_bytes or 0)
    answers = []
    for number, each in sorted(nodes.items()):
        pinned = list(each.values())
        count = min(ranks.per_node, ranks.world - number * ranks.per_node)
        whole = sum(pinned) * count // len(pinned)
        answers.append(Node(number, count, len(pinned), whole))
    return answers


def notes_of(rank: Rank, order: Order) -> Iterator[str]:
    """What must be known about one rank's numbers."""
    yield from allocator_of(rank)
    yield from interval_of(rank)
    yield from open_of(rank)
    yield from beside_of(rank, order)
    if rank.died_of_memory:
        yield "memory ran out; predict the full need with --memory unlimited"
    elif rank.oom_step is not None:
        yield ("memory ran out and the script went on, so these numbers are for this much memory; --memory unlimited predicts it "
               "where none runs out")
    yield from reads_of(rank, order)
    yield from host_of(rank)
    if rank.estimated_workspaces:
        is_bounded = any(share.source == "workspaces" for share in rank.interval)
        yield estimates(rank.estimated_workspaces, "which the interval allows for" if is_bounded else OFF)
    if rank.workspaces_of_others:
        yield f"ignored {rank.workspaces_of_others} lines of --workspaces: they are for another card or version"
    lacking = [name for name in rank.unwritten if name != others.ASKED]
    if lacking:
        yield f"the virtual GPU lacks {listed(lacking)}, so the script got an error"
    yield from others.notes(rank)
    yield from visible.notes(rank)
    yield from end_of(rank)


def end_of(rank: Rank) -> Iterator[str]:
    """How the process ended, where that is not its last line."""
    if rank.ended == ASKED and not rank.error:
        yield "it still ran when the script ended, and was asked to end; what it would request later is not in its numbers"
    if rank.error:
        if "invalid device ordinal" in rank.error:
            yield "the script chose a GPU that is not there; --gpus N says how many there are"
        when = f" in step {(rank.steps or 0) + 1}" if rank.requests else ""
        yield f"the script failed{when}: {short(rank.error)}"
    elif not rank.requests and not rank.frameworks:
        yield "the script requested no GPU memory in this process"


def open_of(rank: Rank) -> Iterator[str]:
    """Where the interval may be too narrow."""
    told = {"clock": rank.timed_loop is not None, "values": rank.unknown_reads is None}  # in lines of their own
    if rank.open_ends:
        yield "a run that bounds the interval did not finish, so the interval may be too narrow"
    elif not all(told.get(source) for source in rank.unbounded):
        yield unbounded_of(rank)
    if rank.timed_loop and "clock" in rank.unbounded:
        yield (f"{rank.timed_loop} loops until a time has gone by, in which a GPU does more or less than this machine: "
               "the interval does not cover that")
    if rank.unknown_reads is None and "values" in rank.unbounded:
        yield ("with --values off nothing is known of the values that the script reads, whatever --assume says: "
               "the interval does not cover a size or a branch that depends on them")


def unbounded_of(rank: Rank) -> str:
    """What no run bounds, and why."""
    has_runs = any(share.source == "values" for share in rank.interval)
    if has_runs and "values" in rank.unbounded and (read := next(open_ended(rank, True), None)):
        return (f"{read['place']} ({read['what']}) decides how the script goes on; the runs with other values do not bound "
                "that, so the interval may be too narrow")
    if rank.oom_step is not None:
        return f"memory ran out, and no run bounds {' and '.join(rank.unbounded)} after that, so the interval may be too narrow"
    return (f"no run bounds {' and '.join(rank.unbounded)}, which matter here, so the interval may be too narrow; predict "
            "makes such runs without --events, and not under torchrun")


def allocator_of(rank: Rank) -> Iterator[str]:
    """What served the script, where that is not PyTorch's own allocator with its settings."""
    if rank.requests and rank.allocator is None:
        yield "expandable segments were on for a part of the script, so the smallest card for PyTorch is not known"
    elif rank.requests and rank.allocator not in PYTORCHS:
        yield f"the script enables gmlake's {rank.allocator}, so the column PyTorch is {rank.allocator}'s memory"


def interval_of(rank: Rank) -> Iterator[str]:
    """Between which bytes PyTorch's peak lies, and what each source of doubt adds."""
    if rank.interval:
        ends = f"{show(rank.reserved_peak_bytes_low)} and {show(rank.reserved_peak_bytes_high)}"
        yield f"PyTorch reserves between {ends}"
    for share in rank.interval:
        if share.source != "unexplained" and (share.below or share.above):
            yield f"{share.source}: {show(share.below)} less to {show(share.above)} more; {share.why}"


def reads_of(rank: Rank, order: Order) -> Iterator[str]:
    """What the script read and no kernel had computed."""
    reads = rank.unknown_reads or []
    if reads:
        count = sum(read["count"] for read in reads)
        most = max(reads, key=lambda read: read["count"])
        times = "once" if count == 1 else f"{count} times"
        yield (f"the script read values that only a kernel could compute, {times}, and got {rank.assume or order.assume}; "
               f"most at {most['place']} ({most['what']})")
        if rank.interval and any(MANY in read["what"] for read in reads) and not any(deciders(rank)):
            yield "no run with other values was made: the interval does not cover a size or a branch that depends on them"
    decides = max(deciders(rank), key=lambda read: read["count"], default=None)
    share = next((share for share in rank.interval if share.source == "values"), None)
    decide = "decide" if share else "may decide"
    if decides and share and not (share.below or share.above or "values" in rank.unbounded):
        yield "such values may decide what is requested; runs with other values reserved as much"
    elif decides and order.values == INTEGERS:
        yield f"such values {decide} what is requested here; {COMPUTE}"
    elif decides and not reads:
        wide = ", so the interval is as wide as without them" if share else ""
        yield (f"values that this machine computed {decide} what is requested, most at "
               f"{decides['place']} ({decides['what']}); a GPU rounds differently{wide}")


COMPUTE = "--values forward computes them, --values real also gradients, which takes minutes"

MANY = " values of "  # in what was read; plain numbers are mostly printed


# What a use of `beside.csv` is called in a sentence, where its name is not a function's.
USES = {
    "gpu": "other GPUs", "kernel": "kernels", "stream": "second stream", "graph_chunk": "CUDA graphs",
    "nccl": "NCCL", "messages": "sends and receives", "communicator": "communicators", "communicator_of_one": "communicators",
    "ring": "rings of NCCL", "receiver": "buffers to receive", "sender": "buffers to send",
}


def beside_of(rank: Rank, order: Order) -> Iterator[str]:
    """What the card needs besides PyTorch's allocator; of its parts, the largest."""
    if rank.beside_pytorch_bytes is None or not rank.requests:
        return
    low, high = show(rank.beside_pytorch_bytes_low), show(rank.beside_pytorch_bytes_high)
    parts = sorted(rank.beside_pytorch, key=lambda part: -part["bytes"])
    words = listed([f"{USES.get(part['use'], part['use'])} {show(part['bytes'])}" for part in parts], 3)
    source = "" if rank.is_beside_measured else "; not measured on this card"
    yield f"besides PyTorch {show(rank.beside_pytorch_bytes)} of the {order.gpu} ({low} to {high}{source}): {words}"


def host_of(rank: Rank) -> Iterator[str]:
    """Memory of the real machine's host."""
    pinned = rank.pinned_peak_bytes or 0
    if pinned >= WORTH_A_NOTE:
        yield f"pins at most {show(pinned)} of host memory"
    managed = rank.managed_on_host_peak_bytes or 0, rank.managed_on_device_peak_bytes or 0
    if max(managed) >= WORTH_A_NOTE:
        yield (f"managed memory: at most {show(managed[0])} on the host and {show(managed[1])} on the GPU, in addition "
               "to what PyTorch reserves")


OFF = "so reserved memory may be off"


def estimates(kinds: Mapping[str, int], so: str) -> str:
    """Workspaces that were not measured, and what follows."""
    of = listed([f"{what} ({count})" for what, count in sorted(kinds.items())])
    return f"workspaces are estimates for {of}, {so}; list them with --unknown FILE for python -m gmlake measure"


def shared_notes(ranks: Sequence[Rank], order: Order) -> Iterator[str]:
    """What must be known about many configurations at once."""
    yield from without_steps(ranks, order)
    places = sorted({read["place"] for rank in ranks for read in rank.unknown_reads or []})
    if places:
        yield f"scripts read values that only a kernel could compute, and got {order.assume}, at {listed(places)}"
    high = [rank for rank in ranks if any(ends_differ(need) for need in rank.allocators.values())]
    if high:
        yield ("the tables of cards are by best guesses; some configurations need larger cards at the upper ends of their "
               "intervals (smallest_card_high in the JSON)")
    kinds = {what: max(rank.estimated_workspaces.get(what, 0) for rank in ranks)
             for rank in ranks for what in rank.estimated_workspaces}
    if kinds:
        yield estimates(kinds, f"{OFF}; each interval in the JSON allows for that")
    lacking = sorted({name for rank in ranks for name in rank.unwritten})
    if lacking:
        yield f"the virtual GPU lacks {listed(lacking)}, so scripts got an error"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names in a row; of many, the first."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def short(text: str, wide: int = 120) -> str:
    """The first sentences of a text."""
    if len(text) <= wide:
        return text
    whole, stop, _ = text[:wide].rpartition(". ")
    return whole + "." if stop else text[: wide - 3] + "..."


def head(task: Task, torch: str) -> dict[str, object]:
    """What the JSON says of the whole."""
    order = task.order
    return {
        "script": order.script,
        "arguments": list(order.arguments),
        "torch": torch,
        "gpu": order.gpu,
        "settings": {
            "steps": order.steps, "values": order.values, "assume": order.assume, "conf": order.conf,
            "world": task.ranks.world, "events": task.events,
        },
    }


def write_json(path: str, command: str, result: object) -> None:
    """Writes a command's result to a file, or to standard output for `-`, in the shape of all commands: docs/json.md.

    A dataclass becomes an object.
    """
    content = {"schema_version": SCHEMA, "tool_version": __version__, "command": command, "result": result}
    text = json.dumps(content, indent=1, default=asdict)
    if path == "-":
        tell(text)
        return
    try:
        with open(path, "w") as file:
            file.write(text + "\n")
    except OSError as error:
        raise Problem(f"--json: {path}: {error.strerror}") from error
