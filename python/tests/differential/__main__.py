"""The differential test: PyTorch's own allocator and our model of it, side by side, on random scripts.

    python python/tests/differential [--cells N] [--seed N] [--jobs N] [--keep FOLDER] PYTHON ...

Each PYTHON has a PyTorch. It runs N scripts (cells) on the virtual GPU, with random settings, streams,
pools, graphs and memory fractions on devices of several sizes, and PyTorch records them. Then
`gmlake-sim verify` makes every decision again; its peaks must be PyTorch's counters, too. The exit
code is 1 if anything differs; the cells that do are kept.
"""

import argparse
import collections
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from wheels import versions

from gmlake.predict import library, simulator

MIB = 1 << 20
BATCH = 50  # cells in a process

# The devices, by turns: bytes of memory, and when work on them completes.
DEVICES = [(4096 * MIB, "late"), (1536 * MIB, "late"), (4096 * MIB, "early"), (12288 * MIB, "clock")]

# The fraction that every fifth process begins with, from PyTorch 2.10 on.
INITIAL = 0.35

# Fields of a verification, and PyTorch's names of these counters.
PEAKS = {"reserved_peak_bytes": "reserved_bytes.peak", "active_peak_bytes": "active_bytes.peak"}


def main():
    options = parse()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="differential-"))
    folder.mkdir(parents=True, exist_ok=True)
    links = folder / "lib"
    if not links.exists():
        links.mkdir()
        library.links(library.find(), str(links))
    failed = False
    for python in options.python:
        failed |= not one_version(python, options, folder, str(links))
    if failed:
        print(f"what differs is in {folder}")
    elif not options.keep:
        shutil.rmtree(folder)
    sys.exit(failed)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000, help="scripts for each version (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes side by side")
    parser.add_argument("--keep", help="folder for all cells, instead of only those that differ")
    parser.add_argument("python", nargs="+", help="a Python with PyTorch for CUDA")
    return parser.parse_args()


def one_version(python, options, folder, links):
    """Runs the cells of one PyTorch and prints its line; whether nothing differs."""
    wheel = versions(python)
    torch = wheel.torch.split("+")[0]
    place = folder / torch
    shutil.rmtree(place, ignore_errors=True)
    can_begin = int(torch.split(".")[1]) >= 10
    starts = range(options.seed, options.seed + options.cells, BATCH)
    ends = options.seed + options.cells

    def batch(first):
        device = DEVICES[first // BATCH % len(DEVICES)]
        count = min(BATCH, ends - first)
        return device, make(python, wheel, links, place / str(first), first, count, device, can_begin)

    with ThreadPoolExecutor(options.jobs) as pool:
        batches = list(pool.map(batch, starts))
    total = collections.Counter()
    for device, cells in batches:
        total += compare(torch, device, cells, bool(options.keep))
    print(f"PyTorch {torch}: {total['cells']} cells, {total['entries']:,} decisions, "
          f"{total['ooms']:,} out of memory, {total['elsewhere']:,} served by another pool, "
          f"{total['whole']:,} pools not split, {total['differences']} differences", flush=True)
    return total["cells"] == options.cells and not total["differences"]


def make(python, wheel, links, place, first, count, device, can_begin):
    """Records a batch of cells; their files without ending."""
    place.mkdir(parents=True)
    memory, events = device
    environment = library.environment(links, wheel, memory=memory, events=events)
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if can_begin and first // BATCH % 5 == 4:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = f"per_process_memory_fraction:{INITIAL}"
    cells = Path(__file__).with_name("cells.py")
    with open(place / "log", "w") as log:
        command = [python, str(cells), str(place), str(first), str(count)]
        code = subprocess.run(command, env=environment, stdout=log, stderr=log).returncode
    if code:
        print(f"{place}/log: exit code {code}: {(place / 'log').read_text().strip()[-300:]}")
    return sorted(name.removesuffix(".json") for name in glob.glob(f"{place}/*.json"))


def compare(torch, device, cells, keep):
    """Verifies cells of one device, those with the same memory fraction together."""
    by_fraction = collections.defaultdict(list)
    for cell in cells:
        own = json.loads(Path(cell + ".json").read_text())
        by_fraction[own["fraction"]].append((cell, own))
    total = collections.Counter()
    for fraction, group in by_fraction.items():
        found = verify(torch, device[0], fraction, [cell for cell, _ in group])
        for (cell, own), verified in zip(group, found):
            wrong = differences(own, verified)
            total.update(cells=1, entries=verified["entries"], differences=len(wrong))
            total.update(ooms=own["counters"]["num_ooms"], elsewhere=verified["served_elsewhere"],
                         whole=len(verified["no_split_pools"]))
            for problem in wrong[:1]:
                print(f"{cell}.pickle: {own['settings']}: {problem}")
            if not wrong and not keep:
                os.unlink(cell + ".pickle")
                os.unlink(cell + ".json")
    return total


def verify(torch, memory, fraction, cells):
    command = [simulator.find(), "verify", "--quiet", "--json", "--torch-version", torch]
    command += ["--device-memory", str(memory)]
    if fraction is not None:
        command += ["--memory-fraction", str(fraction)]
    files = [cell + ".pickle" for cell in cells]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    found = json.loads(done.stdout)["result"]
    assert [one["file"] for one in found] == files
    return found


def differences(own, verified):
    """What is not the same, in words."""
    counters = own["counters"]
    wrong = [f"entry {one['entry']}: PyTorch: {one['recorded']}; model: {one['model']}"
             for one in verified["first_differences"]]
    is_all_known = len(verified["no_split_pools"]) == len(own["no_split"])
    for field, name in PEAKS.items():
        if field == "active_peak_bytes" and not is_all_known and counters[name] > verified[field]:
            continue  # a block was handed out whole, and no later decision tells
        if verified[field] != counters[name]:
            wrong.append(f"{name}: PyTorch: {counters[name]}; model: {verified[field]}")
    # Some flushes of a malloc look like something else in a recording: like a collection of garbage, or like the
    # program's own. But none is made up.
    if verified["alloc_retries"] > counters["num_alloc_retries"]:
        wrong.append(f"retries: PyTorch: {counters['num_alloc_retries']}; model: {verified['alloc_retries']}")
    made_up = [pool for pool in verified["no_split_pools"] if pool not in own["no_split"]]
    if made_up:
        wrong.append(f"pools that are split: {made_up}")
    return wrong


if __name__ == "__main__":
    main()
