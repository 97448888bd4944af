"""Pinned memory: PyTorch's own allocator and our model of it, side by side, on random programs.

    python python/tests/differential/pinned.py [--cells N] [--seed N] [--model FILE] PYTHON ...

Each PYTHON has a PyTorch. It runs N programs on the virtual GPU, with random settings, which pin memory, use
it on streams and free it. After every step PyTorch's counters (`torch.cuda.host_memory_stats()`, from 2.7
on), the block that a request got, and the pinned memory that the driver holds must be the model's. The exit
code is 1 if anything differs. A program with a thread in the background, which may be late, has three runs,
and one must be the same; how many needed more than one is said. From 2.14 on PyTorch records the programs, and
`gmlake-sim verify --host` must make every decision again. The model: cargo build -p gmlake-allocators --example pinned.
"""

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from wheels import versions

from gmlake.predict import library, simulator

MODEL = Path(__file__).parents[3] / "target/debug/examples/pinned"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cells", type=int, default=200, help="programs for each version (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first (default 0)")
    parser.add_argument("--model", default=str(MODEL), help="the example that runs the model")
    parser.add_argument("python", nargs="+", help="a Python with PyTorch for CUDA")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library.links(library.find(), folder)
        same = [one_version(python, options, folder) for python in options.python]
    sys.exit(not all(same))


def one_version(python, options, folder):
    """Runs the programs of one PyTorch and prints its line; whether nothing differs."""
    wheel = versions(python)
    torch = wheel.torch.split("+")[0]
    environment = library.environment(folder, wheel, events="late")
    recordings = Path(folder, torch)
    recordings.mkdir()
    cell = [python, str(Path(__file__).with_name("pinned_cell.py")), str(recordings), torch.split(".")[1]]
    total = collections.Counter()
    for found in run([*cell, str(options.seed), str(options.cells)], environment):
        wrong = differences(options.model, torch, found)
        for _ in range(2 if "background" in found["settings"] else 0):
            if wrong:
                total.update(again=1)
                wrong = differences(options.model, torch, *run([*cell, str(found["seed"]), "1"], environment))
        total.update(cells=1, steps=len(found["steps"]), differences=len(wrong))
        total.update(alloc=sum(step.startswith("alloc") for step in found["steps"]))
        for problem in wrong[:1]:
            print(f"program {found['seed']}, {found['settings']!r}: {problem}")
    total.update(verified(torch, sorted(recordings.glob("*.pickle"))))
    print(f"PyTorch {torch}: {total['cells']} programs, {total['steps']:,} steps, {total['alloc']:,} requests, "
          f"{total['again']} runs again, {total['recorded']:,} decisions recorded, "
          f"{total['differences']} differences", flush=True)
    return total["cells"] == options.cells and not total["differences"]


def verified(torch, files):
    """Decisions in recordings, and how many of them our model makes otherwise."""
    if not files:
        return {}
    command = [simulator.find(), "verify", "--host", "--quiet", "--json", "--torch-version", torch, *map(str, files)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["result"]
    assert len(found) == len(files)
    for one in found:
        for wrong in one["first_differences"][:1]:
            print(f"{one['file']}: entry {wrong['entry']}: PyTorch {wrong['recorded']}; the model {wrong['model']}")
    return {"recorded": sum(one["requests"] for one in found), "differences": sum(one["differences"] for one in found)}


def run(command, environment):
    """Runs programs, and what each saw."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as cells:
        yield from map(json.loads, cells.stdout)
    assert not cells.returncode, command


def differences(model, torch, found):
    """What is not the same after a step, in words."""
    program = "\n".join(found["steps"])
    done = subprocess.run([model, torch, found["settings"]], input=program, capture_output=True, text=True, check=True)
    wrong, places = [], {}
    steps = zip(found["steps"], found["seen"], map(json.loads, done.stdout.splitlines()))
    for number, (step, own, ours) in enumerate(steps):
        expected = dict(own)
        address = expected.pop("address")
        if address is not None and places.setdefault(ours["block"], address) != address:
            wrong.append(f"step {number}, {step}: not the block at {places[ours['block']]:#x}, but at {address:#x}")
        # What is registered was the program's memory before, and the driver does not count it in pages.
        own_bytes = own["driver"][1] if "register" in found["settings"] else ours["driver_bytes"][0]
        driver = [ours["driver_calls"][0], own_bytes]
        said = {name: ours[name] for name in expected if name != "driver"} | {"driver": driver}
        if said != expected:
            differ = [name for name in said if said[name] != expected[name]]
            wrong += [f"step {number}, {step}: {name}: PyTorch: {expected[name]}; model: {said[name]}" for name in differ]
    return wrong


if __name__ == "__main__":
    main()
