"""The grid: one script in many configurations, side by side, and what runs on which card.

`--vary NAME=LIST` puts each value in for `{NAME}` in the script's arguments, or appends
`--NAME VALUE`. Several make every combination. In the end `gmlake-sim plan --by` says up to which
value of the first of them each card is enough under each allocator: one table for each combination
of the others.
"""

import itertools
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from . import Problem, answer
from .outputs import Outputs, made, name_of
from .prediction import failed, predict
from .progress import Progress
from .series import label, series_of

ROW = "{:>{wide}} {:>10} {:>10} {:>10} {:>10}  {}"


def configurations(varied):
    """Every combination of the values, each a dict; the first of `varied` changes fastest."""
    lists = dict(map(values_of, varied))
    if len(lists) < len(varied):
        raise Problem("--vary: the same name is given twice")
    return combinations(lists)


def combinations(lists):
    """Every combination of the values of a dict of lists, as `configurations`."""
    names = list(lists)
    backwards = itertools.product(*(lists[name] for name in reversed(names)))
    return [dict(zip(names, reversed(values))) for values in backwards] if lists else []


def values_of(text):
    """The name and the values of one --vary."""
    name, _, listed = text.partition("=")
    values = [value.strip() for value in listed.split(",") if value.strip()]
    name = name.strip().lstrip("-")
    if not name or not values:
        raise Problem(f"--vary {text}: write a name and its values, as in batch=8,16,32")
    if len(set(values)) < len(values):
        raise Problem(f"--vary {text}: a value is given twice")
    return name, values


def arguments(given, values):
    """The script's arguments in one configuration."""
    found = list(given)
    for name, value in values.items():
        place = "{" + name + "}"
        if any(place in text for text in found):
            found = [text.replace(place, value) for text in found]
        else:
            found += [f"--{name}", value]
    return found


def main(given, workshop, order, ranks, events, grid, torch):
    """Predicts all configurations, prints the answers, and returns the exit code."""
    folder = made(given.out or os.path.join(workshop.folder, "grid"))
    name = name_of(order.script, order.module)
    found = run_all(workshop, order, ranks, events, grid, folder, name)
    content = answer.head(order, torch, world=ranks.world, events=events)
    content.update(configurations=found, series=[])
    texts = [table(found)]
    for series in series_of([each for each in found if reason(each) is None]):
        reply = series.ask(given.out and os.path.join(folder, f"{name}{series.mark}.svg"))
        content["series"].append(reply)
        texts.append(series.table(reply))
    if not given.out:
        forget_snapshots(found)
    for path in [given.out and os.path.join(folder, f"{name}.json"), given.json]:
        if path:
            answer.write_json(path, content)
    if given.json != "-":
        print("\n\n".join(texts), flush=True)
    for note in failures(found):
        print(f"gmlake: {note}", file=sys.stderr)
    for note in answer.shared_notes([rank for each in found for rank in each["ranks"]], order):
        print(f"gmlake: {note}", file=sys.stderr)
    return 1 if any(reason(each) and not out_of_memory(each) for each in found) else 0


def failures(found):
    """The reasons, whole, each with the first configuration that has it."""
    first = {}
    for each in found:
        if reason(each) and not out_of_memory(each):
            first.setdefault(reason(each), label(each["values"]))
    return [f"{name}: {answer.short(text)}" for text, name in first.items()]


def forget_snapshots(found):
    """Names no files that are about to be deleted."""
    for configuration in found:
        for rank in configuration["ranks"]:
            rank["snapshot"] = None


def run_all(workshop, order, ranks, events, grid, folder, name):
    """The configurations with their ranks, in the order of the grid, with progress meanwhile."""
    progress, count = Progress(len(grid)), 0
    with ThreadPoolExecutor(workshop.jobs) as pool:
        work = {
            pool.submit(run_one, workshop, order, ranks, events, values, folder, name): values
            for values in grid
        }
        try:
            for future in as_completed(work):
                count += reason(future.result()) is not None
                progress.advance(count)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workshop.close()
            raise
        finally:
            progress.end()
    return [future.result() for future in work]


def run_one(workshop, order, ranks, events, values, folder, name):
    """One configuration."""
    own = order._replace(arguments=arguments(order.arguments, values))
    outputs = Outputs(folder, f"{name}.{mark(values)}", ranks.world > 1, shows=None)
    try:
        found = predict(workshop, own, ranks, events, outputs.stem, outputs.output)
    except Problem as problem:
        found = [failed(rank, str(problem)) for rank in ranks.ranks]
    finally:
        outputs.close()
    return {"values": values, "arguments": own.arguments, "ranks": found}


def mark(values):
    """A configuration in the name of a file."""
    return re.sub(r"[^\w.,=+-]", "_", label(values))


def worst(configuration):
    """The rank that holds most."""
    return max(configuration["ranks"], key=lambda rank: rank["reserved_peak_bytes"] or 0)


def reason(configuration):
    """Why a configuration has no full answer, or None."""
    if out_of_memory(configuration):
        return f"out of memory in step {first_oom(configuration)}"
    for rank in configuration["ranks"]:
        if rank["error"] or not rank["requests"]:
            return rank["error"] or "no GPU memory was asked for"
    return None


def first_oom(configuration):
    steps = [rank["oom_step"] for rank in configuration["ranks"]]
    return min((step for step in steps if step is not None), default=None)


def out_of_memory(configuration):
    return first_oom(configuration) is not None


def table(found):
    """A line for each configuration: what its largest rank holds, or why it failed."""
    names = ", ".join(found[0]["values"])
    rows = [(", ".join(each["values"].values()), each) for each in found]
    wide = min(20, max(len(text) for text, _ in rows))
    head = ROW.format("", "PyTorch", "live", "expandable", "lake", "", wide=wide).rstrip()
    return "\n".join([names, head, *(line(text, each, wide) for text, each in rows)])


def line(text, configuration, wide):
    rank = worst(configuration)
    held = [rank["reserved_peak_bytes"], rank["active_peak_bytes"]]
    held += [answer.allocator(rank, name)["reserved_peak_bytes"] for name in ["expandable", "lake"]]
    why = reason(configuration) or ""
    row = ROW.format(text[:wide], *map(answer.size, held), "", wide=wide)
    return shortened(f"{row}{why}".rstrip())


def shortened(text, wide=80):
    """A line that fits a terminal."""
    return text if len(text) <= wide else text[: wide - 3] + "..."
