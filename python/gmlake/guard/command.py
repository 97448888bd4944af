"""The command `python -m gmlake guard`: from options to a comparison, and to an exit code."""

import argparse
import os
import platform
import signal
import tempfile
from pathlib import Path

from .. import __version__
from ..predict import Problem, answer, command, library, options, pytorch, simulator
from ..predict.outputs import Outputs, made, name_of
from ..predict.run import Workshop
from . import baseline, change

WITHIN, BEYOND, WRONG, INTERRUPTED = 0, 1, 2, 130
SHOWN = 8  # lines that grew

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


def add(commands):
    """Adds the command to those of `python -m gmlake`."""
    it = commands.add_parser(
        "guard", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
        help="compare the GPU memory that a script needs with what it needed, without a GPU",
        description="Whether a script needs more GPU memory than its baseline says, for CI.",
    )
    option = it.add_argument
    option("--baseline", required=True, metavar="FILE", help="what it needed; a small JSON file to be committed")
    option("--tolerance", default="1%", metavar="SHARE|SIZE", help="how much more is no regression, such as 1%% or "
           "64MiB [default: 1%%]")
    option("--update", action="store_true", help="write the baseline anew, from this run")
    option("--recording", metavar="SNAPSHOT", help="look at this recording, and run nothing")
    gpu = it.add_argument_group("the GPU")
    options.add_gpu(gpu)
    gpu.add_argument("--events", choices=["early", "late", "clock"], default="early", help="when work on the GPU "
                     "completes: at once, when waited for, or by a clock, which differs from run to run "
                     "[default: early]")
    options.add_ranks(it.add_argument_group("ranks"))
    options.add_script(it.add_argument_group("the script"))
    output = it.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="keep snapshots and logs here")
    output.add_argument("--json", metavar="FILE", help="write the comparison, '-' for standard output")
    it.add_argument("script", metavar="SCRIPT", nargs="?", help="the script, as it is")
    it.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="its arguments")


def main(given):
    """Compares as the options say, and returns the exit code."""
    signal.signal(signal.SIGTERM, command.interrupt)
    try:
        return guard(given)
    except Problem as problem:
        command.say(str(problem))
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def guard(given):
    """As `main`, without what may go wrong."""
    tolerance = tolerance_of(given.tolerance)
    if bool(given.script) == bool(given.recording):
        raise Problem("guard: give a SCRIPT or --recording SNAPSHOT, one of them")
    old = None if given.update else baseline.read(given.baseline)
    if old is None and not given.update:
        raise Problem(f"{given.baseline}: there is no such file; --update writes it, from this run, to be committed")
    new, failures = recorded(given.recording) if given.recording else predicted(given)
    for text in failures:
        command.say(text)
    if failures:
        return BEYOND
    if given.update:
        baseline.write(given.baseline, new)
        print(f"{given.baseline}: written: " + ", ".join(summary(rank) for rank in new["ranks"]))
        return WITHIN
    return compared(given, old, new, tolerance)


def tolerance_of(text):
    """A share (true, 0.01) or bytes (false, 1048576)."""
    try:
        if text.endswith("%") and 0 <= float(text[:-1]) < float("inf"):
            return True, float(text[:-1]) / 100
        if text == "0":
            return False, 0
        return False, options.size(text)
    except (ValueError, Problem):
        raise Problem(f"--tolerance {text}: write a share such as 1%, or a size such as 64MiB") from None


def predicted(given):
    """What the script needs, as a baseline, and what failed in it."""
    if "RANK" in os.environ and given.world is None:
        raise Problem("guard is not for use under torchrun; use --world N --ranks all")
    given.stacks, given.categories, given.vary, given.jobs = True, False, [], None
    # The order of a set of names must not differ from run to run: it decides the order of requests.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    wheel = command.usable()
    order, ranks = options.order_of(given, library.cards(library.find())), options.ranks_of(given)
    with tempfile.TemporaryDirectory(prefix="gmlake-guard-") as folder:
        kept = made(given.out) if given.out else folder
        outputs = Outputs(kept, name_of(order.script, order.module), ranks.world > 1, shows=ranks.ranks[0])
        workshop = Workshop(folder, os.cpu_count() or 1, wheel)
        try:
            runs = workshop.run(order, ranks, given.events, outputs.stem, outputs.output)
        finally:
            workshop.close()
            outputs.close()
        outputs.show_failures([{"rank": rank, **facts} for rank, facts in zip(ranks.ranks, runs)])
        failures = [text for rank, facts in zip(ranks.ranks, runs) for text in failures_of(rank, facts)]
        found = [] if failures else [rank_of(rank, facts) for rank, facts in zip(ranks.ranks, runs)]
    source = {name: getattr(order, name) for name in
              ["script", "module", "arguments", "gpu", "memory", "steps", "values", "assume", "conf"]}
    source.update(events=given.events, world=ranks.world)
    return content(source, wheel.torch, found), failures


def failures_of(rank, facts):
    """Why nothing can be said of a rank, a line each."""
    if facts.get("oom_step") is not None:
        yield f"rank {rank}: memory ran out in step {facts['oom_step']}"
    elif facts["error"]:
        yield f"rank {rank}: the script failed: {answer.short(facts['error'])}"
    elif not facts["requests"]:
        yield f"rank {rank}: the script asked for no GPU memory in this process"


def recorded(path):
    """What a recording says, as a baseline."""
    if not os.path.exists(path):
        raise Problem(f"{path}: no such file")
    blame = simulator.ask("blame", path)[0]
    facts = {"snapshot": path, "devices": [blame["device"]]}
    return content({"recording": Path(path).name}, None, [rank_of(0, facts)]), []


def content(source, torch, ranks):
    """A baseline of these ranks; each says by what its rows are."""
    kinds = {rank.pop("by") for rank in ranks} or {"line"}
    versions = {"gmlake": __version__}
    if torch:
        versions.update(torch=torch, python=".".join(platform.python_version_tuple()[:2]))
    return {"schema_version": baseline.SCHEMA, "source": source, "versions": versions,
            "by": kinds.pop(), "ranks": ranks}


def rank_of(rank, facts):
    """One rank's peaks, and the lines that hold the live bytes; of its GPUs, on the worst."""
    peaks = simulator.peaks(facts)
    blame = simulator.ask("blame", facts["snapshot"], "--device", peaks["device"])[0]
    rows = {row["name"]: [row["bytes"], row["blocks"]] for row in blame["rows"]}
    return {"rank": rank, "reserved_peak_bytes": peaks["reserved"], "live_peak_bytes": blame["live_bytes"],
            "lines": rows, "by": blame["by"]}


def summary(rank):
    """A rank in a few words."""
    live, held = answer.size(rank["live_peak_bytes"]), answer.size(rank["reserved_peak_bytes"])
    return f"rank {rank['rank']}: {live} live, PyTorch holds {held}"


def compared(given, old, new, tolerance):
    """Prints what differs, and returns the exit code."""
    baseline.check_same(given.baseline, old, new)
    found = [difference(before, after, tolerance) for before, after in zip(old["ranks"], new["ranks"])]
    is_beyond = any(rank["beyond"] for rank in found)
    if given.json:
        facts = {"schema_version": baseline.SCHEMA, "baseline": given.baseline, "tolerance": given.tolerance,
                 "beyond": is_beyond, "versions": [old["versions"], new["versions"]], "ranks": found}
        answer.write_json(given.json, facts)
    if given.json != "-":
        print("\n\n".join(shown(rank, given.tolerance) for rank in found), flush=True)
    for name in old["versions"]:
        if old["versions"][name] != new["versions"].get(name):
            command.say(f"{name} is {new['versions'].get(name)}; the baseline is of {old['versions'][name]}")
    if is_beyond:
        command.say(f"more than {given.baseline} says; if that is meant, write it anew with --update")
    elif any(change.is_beyond(*reversed(rank[name]), tolerance) for rank in found for name in change.QUANTITIES):
        command.say(f"less than {given.baseline} says; --update lowers it, so that it does not creep back")
    return BEYOND if is_beyond else WITHIN


def difference(before, after, tolerance):
    """What differs in a rank."""
    found = {"rank": after["rank"], "beyond": []}
    for name in change.QUANTITIES:
        found[name] = [before[name], after[name]]
        if change.is_beyond(before[name], after[name], tolerance):
            found["beyond"].append(name)
    found["lines"] = [line._asdict() for line in change.lines(before["lines"], after["lines"])]
    return found


def shown(rank, tolerance):
    """A rank's difference as text: first the line that made it grow."""
    texts = []
    grown = [line for line in rank["lines"] if line["after"] > line["before"]]
    if rank["beyond"]:
        texts.append(reason(rank, grown))
    for name, words in change.QUANTITIES.items():
        before, after = rank[name]
        mark = f"   more than {tolerance}" if name in rank["beyond"] else ""
        texts.append(f"rank {rank['rank']} {words + ':':<14} {step(before, after)}{mark}")
    if rank["beyond"]:
        texts += [f"  {line['name']}: {step(line['before'], line['after'])}" for line in grown[:SHOWN]]
    return "\n".join(texts)


def reason(rank, grown):
    """What made it grow."""
    if "live_peak_bytes" not in rank["beyond"] and not grown:
        return ("No line holds more at the peak: it is fragmentation, or the order of requests. "
                "Compare: gmlake-sim blame --fragmentation SNAPSHOT (--out keeps it).")
    line = grown[0]
    return f"{line['name']} made it grow: {change_of(line['before'], line['after'])}"


def step(before, after):
    """From so much to so much."""
    if before == after:
        return f"{answer.size(after)}, as before"
    return f"{answer.size(before)} to {answer.size(after)} ({change_of(before, after)})"


def change_of(before, after):
    """How much more or less."""
    sign = "+" if after >= before else "-"
    share = f", {(after - before) / before:+.1%}" if before else ""
    return f"{sign}{answer.size(abs(after - before))}{share}"
