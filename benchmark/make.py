"""Makes the traces of a set that were predicted, or some of them.

usage: make.py [--set src/bench/full.csv] [--only NAME ...] [--out FOLDER] [--jobs 2]

Each job runs on the virtual GPU (`python -m gmlake predict`); no GPU is needed. What is written is the program alone:
requests, frees and the ends of steps, up to the last request: what is freed while Python ends differs from run to run.
Numbers stand for addresses, and a clock that only moves between steps, by 10 µs for each event, for the time. Frees with
nothing between them stand in the order of these numbers: which of them Python makes first is a matter of addresses. So the
file does not depend on the machine, and the same script makes the same bytes again.
Recordings of real GPUs are left out: they stand in traces/.
"""

import argparse
import csv
import heapq
import io
import itertools
import lzma
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Microseconds of an event, and bytes between the numbers that stand for addresses.
PACE, STRIDE = 10, 1 << 38
# Sets go through tensors by their addresses, so these stay the same where the system lets them.
STILL = ["setarch", "-R"] if not subprocess.call("setarch -R true 2>/dev/null", shell=True) else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, default=ROOT / "src" / "bench" / "full.csv")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, help="folder to write to, in place of the set's own")
    parser.add_argument("--jobs", type=int, default=2, help="side by side")
    given = parser.parse_args()
    with open(given.set, newline="") as file:
        entries = [entry for entry in csv.DictReader(file) if entry["made"].startswith("predicted")]
    known = [entry["name"] for entry in entries]
    unknown = set(given.only or []) - set(known)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no predicted trace of the set; there are: {', '.join(known)}")
    todo = [entry for entry in entries if not given.only or entry["name"] in given.only]
    with ThreadPoolExecutor(given.jobs) as pool:
        failed = [name for name in pool.map(lambda entry: make(entry, given.out), todo) if name]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def make(entry, out):
    """Makes one trace; returns its name if that failed."""
    target = ROOT / entry["file"]
    if out:
        target = out / target.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        words = [*STILL, sys.executable, "-m", "gmlake", "predict", "--events", "early", "--out", folder, "--jobs", "1"]
        done = subprocess.run(words + steady(shlex.split(entry["script"])), cwd=ROOT, stdin=subprocess.DEVNULL,
                              env={**os.environ, "PYTHONHASHSEED": "0", **caches(folder)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        snapshots = list(Path(folder).glob("*.pickle"))
        if done.returncode or len(snapshots) != 1:
            print(f"{entry['name']}: {done.stdout[-2000:]}", file=sys.stderr)
            return entry["name"]
        with open(snapshots[0], "rb") as file:
            text = table(pickle.load(file))
    target.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{entry['name']}: {text.count(chr(10))} rows, {target.stat().st_size} bytes", flush=True)
    return None


def caches(folder):
    """Folders of its own for what `torch.compile` keeps: a job that finds its kernels there asks for other memory."""
    return {name: os.path.join(folder, name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}


def steady(words):
    """The same job, whose tensors die at fixed places."""
    at = next(place for place, word in enumerate(words) if word.endswith(".py"))
    return [*words[:at], "benchmark/steady.py", *words[at:]]


def table(snapshot):
    """A snapshot's program as CSV, the same for every run of the program."""
    marks = sorted((mark["time_us"], mark["stage"].lower(), mark["name"]) for mark in snapshot["external_annotations"])
    entries = next(trace for trace in snapshot["device_traces"] if trace)
    rows, facts, clock = [], [], 0
    for time, *row in program(entries):
        while marks and marks[0][0] < time:
            _, stage, name = marks.pop(0)
            clock = len(rows) * PACE
            facts.append((f"annotation_{stage}", name, 0, 0, clock))
        rows.append((*row, clock + 1))
    facts += [(f"annotation_{stage}", name, 0, 0, len(rows) * PACE) for _, stage, name in marks]
    while rows and rows[-1][0] != "alloc":
        rows.pop()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("action", "addr", "size", "stream", "time_us"))
    writer.writerows(facts + list(ordered(rows)))
    return out.getvalue()


def ordered(rows):
    """The same rows; frees between which nothing is requested, and no mark stands, by number."""
    for (action, _), run in itertools.groupby(rows, key=lambda row: (row[0], row[-1])):
        yield from sorted(run, key=lambda row: int(row[1], 16)) if action == "free" else run


def program(entries):
    """Time, action, address, size and number of the stream of each event, without those of the allocator itself."""
    blocks, streams, vacant, count = {}, {}, [], 0
    requested = None
    following = [*entries[1:], {"action": "", "addr": None}]
    for entry, after in zip(entries, following):
        action, address = entry["action"], entry["addr"]
        stream = streams.setdefault(entry["stream"], len(streams))
        if action == "alloc":
            # The lowest number that is vacant: a step that repeats itself then reads the same.
            blocks[address] = heapq.heappop(vacant) if vacant else (count := count + 1)
        elif action not in ("free_requested", "free_completed") or address not in blocks:
            continue
        is_half = (after["action"], after["addr"]) == ("free_completed", address)
        if action == "free_requested" and is_half:
            requested = entry
            continue
        is_at_once = action == "free_completed" and requested is not None
        requested = None
        yield entry["time_us"], "free" if is_at_once else action, hex(blocks[address] * STRIDE), entry["size"], stream
        if action == "free_completed":
            heapq.heappush(vacant, blocks.pop(address))


if __name__ == "__main__":
    sys.exit(main())
