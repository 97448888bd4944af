"""The command `python -m gmlake guard`: from options to a comparison, and to an exit code."""

from __future__ import annotations

import argparse
import os
import platform
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__, _files, _sizes
from .._stdout import tell
from ..predict import Problem, answer, command, library, options, simulator
from ..predict.facts import Facts
from ..predict.order import GPU, SCRIPT, Order, Task
from ..predict.outputs import Outputs, check_own, made, name_of, scratch
from ..predict.run import Workshop
from . import baseline, change
from .baseline import Baseline, Rank
from .change import Line, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WITHIN, BEYOND, WRONG, INTERRUPTED = 0, 1, 2, 130
SHOWN = 8  # lines that grew
NOTICEABLE = 0.1  # share of the growth of reserved memory that lines must explain to be its cause
GENERATED = re.compile(r"\S*/torchinductor_\S*\.py")  # code of torch.compile, whose files have other names in each run
OF_A_RUN = {"events": "early", "world": None, "ranks": None, "per_node": 8, "out": None}  # options and their defaults
# Variables that decide how much memory is requested, or how it is served; --conf sets the first two.
CONF = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"]
VARIABLES = [
    "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "TORCH_CUBLASLT_UNIFIED_WORKSPACE", "TORCH_BLAS_PREFER_CUBLASLT",
    "GMLAKE_CONF",
]

EXAMPLES = """\
examples:
  python -m gmlake guard --baseline memory.json --update train.py   # once; commit memory.json
  python -m gmlake guard --baseline memory.json train.py            # in CI
  python -m gmlake guard --baseline memory.json --steps 2 --gpu a100-80gb train.py --batch 8
  python -m gmlake guard --baseline memory.json --recording snapshot.pickle

All options of guard stand before SCRIPT; what follows is the script's own.
Exit codes: 0 within the tolerance, 1 beyond it, or the script failed (out of
memory included), 2 wrong usage or input.
"""


@dataclass(frozen=True)
class Difference:
    """What differs in a rank: quantities in the baseline and now, those beyond the tolerance by name, and lines."""

    rank: Rank  # as it is now
    beyond: list[str]
    quantities: dict[str, list[int]]
    lines: list[Line]

    def growth(self, name: str) -> int:
        """By how many bytes a quantity grew."""
        before, after = self.quantities[name]
        return after - before

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        lines = [line._asdict() for line in self.lines]
        who = {"rank": self.rank.rank, "process": self.rank.process}
        return {**who, "beyond": self.beyond, **self.quantities, "lines": lines}


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `python -m gmlake`."""
    it = commands.add_parser(
        "guard", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
        help="fail if a script needs more GPU memory than its baseline, without a GPU",
        description="Fails if a script needs more GPU memory than its baseline, for CI. Needs no GPU.",
    )
    option = it.add_argument
    option("--baseline", required=True, metavar="FILE", help="the baseline, a small JSON file to commit")
    option("--tolerance", default="1%", metavar="SHARE|SIZE", help="growth that is no regression, such as 1%% or "
           "64MiB [default: 1%%]")
    option("--update", action="store_true", help="write the baseline from this run")
    option("--recording", metavar="SNAPSHOT", help="compare this recording, and run nothing")
    gpu = it.add_argument_group("the GPU")
    Order.add(gpu, GPU)
    gpu.add_argument("--events", choices=["early", "late", "clock"], default="early", help="when work on the GPU "
                     "completes: early (at once), late (when waited for), or by a clock, which differs "
                     "from run to run [default: early]")
    options.add_ranks(it.add_argument_group("ranks"))
    Order.add(it.add_argument_group(SCRIPT), SCRIPT)
    output = it.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="folder for snapshots and logs [default: none is kept]")
    output.add_argument("--json", metavar="FILE", help="write the comparison as JSON, '-' for standard output")
    it.add_argument("script", metavar="SCRIPT", nargs="?", help="the unchanged script")
    it.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")


def main(given: argparse.Namespace) -> int:
    """Compares as the options say, and returns the exit code."""
    command.end_politely()
    try:
        return guard(given)
    except Problem as problem:
        command.say(str(problem))
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def guard(given: argparse.Namespace) -> int:
    """Runs the command; errors propagate to `main`."""
    tolerance = tolerance_of(given.tolerance)
    if bool(given.script) == bool(given.recording):
        raise Problem("guard: give either SCRIPT or --recording SNAPSHOT")
    check_files(given)
    old = None if given.update else baseline.read(given.baseline)
    if old is None and not given.update:
        raise Problem(f"{given.baseline}: no such file; write it with --update, and commit it")
    new, failures = recorded(given, old) if given.recording else predicted(given, old)
    for text in failures:
        command.say(text)
    if failures:
        return BEYOND
    if old is None:
        baseline.write(given.baseline, new)
        tell(f"{given.baseline}: written: " + ", ".join(map(summary, new.ranks)))
        return WITHIN
    return compared(given, old, new, tolerance)


def check_files(given: argparse.Namespace) -> None:
    """Fails where a file cannot be written in the end, or is an input; and where options of a run stand beside a recording."""
    changed = Order.changed(given)
    changed += [f"--{name.replace('_', '-')}" for name, usual in OF_A_RUN.items() if getattr(given, name) != usual]
    if given.recording and changed:
        raise Problem(f"guard: {changed[0]} does not work with --recording, which runs nothing")
    if given.update and given.json:
        raise Problem("guard: --json writes a comparison, and --update makes none; leave one of them out")
    tables = given.workspaces.split(",") if given.workspaces else []
    inputs = [None if given.module else given.script, given.recording, given.routing, *tables]
    if given.update:
        _files.check("--baseline", given.baseline, inputs)
        baseline.check_replaceable(given.baseline)
    _files.check("--json", given.json, [*inputs, given.baseline])


def tolerance_of(text: str) -> Tolerance:
    """A share such as 1%, or bytes such as 64MiB."""
    try:
        if text.endswith("%") and 0 <= float(text[:-1]) < float("inf"):
            return Tolerance(True, float(text[:-1]) / 100)
        size = 0 if text == "0" else _sizes.parse(text)
    except ValueError:
        raise Problem(f"invalid --tolerance {text}; expected a share such as 1%, or a size such as 64MiB") from None
    if size and size < _sizes.LEAST and text.strip().isdecimal():
        raise Problem(f"--tolerance {text}: a size needs a unit; write {text.strip()}MiB, or {text.strip()}B for bytes")
    return Tolerance(False, size)


def predicted(given: argparse.Namespace, old: Baseline | None) -> tuple[Baseline, list[str]]:
    """What the script needs, as a baseline, and what failed in it. Fails before the run where the old one is of another."""
    if "RANK" in os.environ and given.world is None:
        raise Problem("guard does not work under torchrun; use --world N --ranks all")
    given.stacks, given.vary, given.unknown = True, [], None
    # The order of a set of names must not differ from run to run: it decides the order of requests.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    wheel = command.usable(given.conf)
    order = options.order_of(given, library.cards(library.find()))
    task = Task(order, options.ranks_of(given), given.events)
    source = source_of(task)
    baseline.check_source(given.baseline, old, source)
    if given.out:
        check_own(made(given.out), name_of(order.script, order.module), task.ranks)
    with scratch("gmlake-guard-") as folder:
        found = run(task, Workshop(folder, os.cpu_count() or 1, wheel), made(given.out) if given.out else folder)
        failures = [text for rank, facts in found for text in failures_of(rank, facts)]
        rows = [] if failures else [row for rank, facts in found for row in rows_of(rank, facts)]
    return content(source, wheel.torch, rows), failures


def run(task: Task, workshop: Workshop, folder: str) -> list[tuple[int, Facts]]:
    """Runs the script, and returns the facts of each rank; shows the ends of those that failed."""
    order, ranks = task.order, task.ranks
    outputs = Outputs(folder, name_of(order.script, order.module), ranks.world > 1, shows=ranks.ranks[0])
    try:
        found = list(zip(ranks.ranks, workshop.run(task, outputs)))
    finally:
        workshop.close()
        outputs.close()
    outputs.show_failures(rank for rank, facts in found if facts.error)
    return found


def source_of(task: Task) -> dict[str, Any]:
    """What was run, as the baseline says it."""
    names = ["script", "module", "arguments", "gpu", "memory", "steps", "values", "assume", "conf"]
    order = {name: getattr(task.order, name) for name in names}
    more = {name: getattr(task.order, name) for name in ["gpus", "routing", "workspaces"]}
    more.update({name: os.environ.get(name) for name in (VARIABLES if task.order.conf else CONF + VARIABLES)})
    more["per_node"] = None if task.ranks.per_node == OF_A_RUN["per_node"] else task.ranks.per_node
    # Older baselines lack these, and had them at their defaults.
    rest = {name: value for name, value in more.items() if value is not None}
    return {**order, "events": task.events, "world": task.ranks.world, **rest}


def failures_of(rank: int, facts: Facts) -> Iterator[str]:
    """Why nothing can be said of a rank, a line each."""
    for who, each in [(f"rank {rank}", facts), *((f"rank {rank} ({it.command})", it) for it in facts.processes)]:
        if each.died_of_memory or each.oom_step is not None and not each.error:
            yield f"{who}: memory ran out in step {each.oom_step}"
        elif each.error:
            yield f"{who}: the script failed: {answer.short(each.error)}"
    if not facts.requests and not facts.processes and not facts.error:
        yield f"rank {rank}: the script requested no GPU memory in this process"


def rows_of(rank: int, facts: Facts) -> Iterator[tuple[Rank, str]]:
    """A rank, where it used the GPU, and the processes that it started, in an order that does not change by itself."""
    if facts.requests:
        yield rank_of(rank, facts, simulator.held(facts))
    found = [(program(each), rank_of(rank, each, simulator.held(each))) for each in facts.processes]
    found.sort(key=lambda one: (one[0], one[1][0].live_peak_bytes, one[1][0].reserved_peak_bytes))
    for number, (_, (row, by)) in enumerate(found, 1):
        yield replace(row, process=number), by


def program(facts: Facts) -> str:
    """What a process runs, without arguments, which may differ from run to run."""
    return (facts.command or "").partition(" ")[0]


def recorded(given: argparse.Namespace, old: Baseline | None) -> tuple[Baseline, list[str]]:
    """What a recording says, as a baseline."""
    path: str = given.recording
    if not os.path.exists(path):
        raise Problem(f"{path}: no such file")
    source = {"recording": Path(path).name}
    baseline.check_source(given.baseline, old, source)
    facts = Facts(snapshot=path)
    held = simulator.held(facts)
    if held.coverage["gaps"]:
        raise Problem(f"{path} is not the recording of a whole job: {held.coverage['gaps'][0]} ({held.coverage['cure']})")
    return content(source, None, [rank_of(0, facts, held)]), []


def content(source: dict[str, Any], torch: str | None, ranks: Sequence[tuple[Rank, str]]) -> Baseline:
    """A baseline of these ranks; each comes with what its rows are."""
    versions = {"gmlake": __version__}
    if torch:
        versions.update(torch=torch, python=".".join(platform.python_version_tuple()[:2]))
    by = next((by for _, by in ranks), "line")
    return Baseline(source, versions, by, [rank for rank, _ in ranks])


def rank_of(rank: int, facts: Facts, held: simulator.Held) -> tuple[Rank, str]:
    """One rank's peaks, and the lines that hold the live bytes, of its GPUs on the worst; and what its rows are."""
    blame = simulator.ask("blame", facts.snapshot, "--device", held.device)[0]
    rows: dict[str, list[int]] = {}
    for row in blame["rows"]:
        name = GENERATED.sub("torch.compile", row["name"])
        rows[name] = [old + new for old, new in zip(rows.get(name, [0, 0]), (row["bytes"], row["blocks"]))]
    pinned = facts.library.get("host_peak_bytes", {}).get("pinned")
    return Rank(rank, held.reserved, blame["live_bytes"], rows, pinned), blame["by"]


def summary(rank: Rank) -> str:
    """A rank in a few words."""
    live, held = _sizes.show(rank.live_peak_bytes), _sizes.show(rank.reserved_peak_bytes)
    return f"{rank.name}: {live} live, {held} reserved"


def compared(given: argparse.Namespace, old: Baseline, new: Baseline, tolerance: Tolerance) -> int:
    """Prints what differs, and returns the exit code."""
    baseline.check_same(given.baseline, old, new)
    found = [difference(before, after, tolerance) for before, after in zip(old.ranks, new.ranks)]
    is_beyond = any(rank.beyond for rank in found)
    result = {
        "baseline": given.baseline, "tolerance": given.tolerance,
        "beyond": is_beyond, "versions": [old.versions, new.versions],
        "ranks": [rank.to_json() for rank in found],
    }
    problems = _files.problems_of([lambda: answer.write_json(given.json, "guard", result)] if given.json else [])
    if given.json != "-":
        tell("\n\n".join(shown(rank, given.tolerance) for rank in found))
    for name, version in old.versions.items():
        if version != new.versions.get(name):
            command.say(f"{name} is {new.versions.get(name)}; the baseline was written with {version}")
    if is_beyond:
        command.say(f"more than {given.baseline} says; if you accept that, write the baseline again with --update")
    elif any(is_less(rank, tolerance) for rank in found):
        command.say(f"less than {given.baseline} says; lower the baseline with --update")
    if problems:
        raise problems[0]
    return BEYOND if is_beyond else WITHIN


def is_less(rank: Difference, tolerance: Tolerance) -> bool:
    """Whether a quantity shrank by more than is tolerated."""
    return any(change.is_beyond(after, before, tolerance) for before, after in rank.quantities.values())


def difference(before: Rank, after: Rank, tolerance: Tolerance) -> Difference:
    """What differs in a rank."""
    was, now = asdict(before), asdict(after)
    quantities = {name: [was[name], now[name]] for name in change.QUANTITIES if None not in (was[name], now[name])}
    beyond = [name for name, (old, new) in quantities.items() if change.is_beyond(old, new, tolerance)]
    return Difference(after, beyond, quantities, change.lines(before.lines, after.lines))


def shown(rank: Difference, tolerance: str) -> str:
    """A rank's difference as text: first the line that made it grow."""
    texts: list[str] = []
    grown = [line for line in rank.lines if line.after > line.before]
    if rank.beyond:
        texts += reasons(rank, grown)
    for name, (before, after) in rank.quantities.items():
        mark = f"   more than {tolerance}" if name in rank.beyond else ""
        if before or after:
            texts.append(f"{rank.rank.name} {change.QUANTITIES[name] + ':':<14} {step(before, after)}{mark}")
    if rank.beyond:
        texts += [f"  {line.name}: {step(line.before, line.after)}" for line in grown[:SHOWN]]
    return "\n".join(texts)


def reasons(rank: Difference, grown: Sequence[Line]) -> Iterator[str]:
    """What made it grow, a line each."""
    if rank.beyond == ["pinned_peak_bytes"]:
        yield "The script pins more host memory. PyTorch rounds it up to powers of two: see gmlake-sim compare --host."
        return
    by_lines = max([rank.growth("live_peak_bytes"), *(line.after - line.before for line in grown[:1])])
    is_explained = by_lines >= NOTICEABLE * rank.growth("reserved_peak_bytes")
    if grown and ("live_peak_bytes" in rank.beyond or is_explained):
        yield f"{grown[0].name} made it grow: {change_of(grown[0].before, grown[0].after)}"
    if "reserved_peak_bytes" in rank.beyond and not (grown and is_explained):
        lines = "Lines explain little of what PyTorch reserves more" if grown else "No line holds more at the peak"
        yield (f"{lines}: the cause is fragmentation, or the order of requests. "
               "Keep the snapshot with --out, and see: gmlake-sim blame --fragmentation SNAPSHOT.")


def step(before: int, after: int) -> str:
    """From so much to so much."""
    if before == after:
        return f"{_sizes.show(after)}, as before"
    return f"{_sizes.show(before)} to {_sizes.show(after)} ({change_of(before, after)})"


def change_of(before: int, after: int) -> str:
    """How much more or less."""
    sign = "+" if after >= before else "-"
    share = f", {(after - before) / before:+.1%}" if before else ""
    return f"{sign}{_sizes.show(abs(after - before))}{share}"
