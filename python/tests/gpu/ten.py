"""Ten jobs of the validation list in stock PyTorch, with expandable segments and under lake, by turns, three times each.

usage: ten.py OUT SECONDS      with GPUS, each of which has its own jobs (1), and JOBS, names in place of the ten
       ten.py --job NAME       one job; it imports its libraries, waits for a line, and writes a line

No job was used to choose lake's settings. OUT/ten.csv has a line for each run as soon as it is known: what was reserved at
most, and the seconds of each step, to the end of its kernels. `ten.py --table OUT` makes the table of reports/torch.
"""

import contextlib
import csv
import json
import math
import os
import runpy
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIST = ROOT / "examples/lake/validation.csv"
# Of those with one rank and varied lengths: one of each kind that runs in 80 GB in stock PyTorch.
NAMES = (
    "attentive-v neox-lora-v wavlm-averaged-v whisper-v swin-v maskrcnn-v dlrm-v gat-v cohere-policy-v qwen3-moe-v"
).split()
MODES, ROUNDS, PATIENCE = ["stock", "expandable", "lake"], 3, 120
# Steps that are not counted: libraries start up, and sizes come for the first time.
WARM = 3


def job(name):
    """Runs a job in this process, and writes what it took."""
    import torch
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    sys.path.insert(0, str(ROOT / "examples/lake"))
    from make import script
    from record import rows
    from torch.optim.optimizer import register_optimizer_step_post_hook

    row = next(row for row in rows(LIST) if row["name"] == name)
    words = script(row)
    ends = []

    def ended(*_):
        torch.cuda.synchronize()
        ends.append(time.perf_counter())

    register_optimizer_step_post_hook(ended)
    print("ready", flush=True)
    sys.stdin.readline()
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    with_output, sys.stdout = sys.stdout, sys.stderr
    with contextlib.suppress(SystemExit):
        runpy.run_path(words[0], run_name="__main__")
    import gmlake

    is_ours = gmlake.enabled()
    reserved = gmlake.stats(0)["peak"]["reserved"] if is_ours else torch.cuda.max_memory_reserved()
    print(json.dumps({
        "reserved": reserved, "live": torch.cuda.max_memory_allocated(), "mount": gmlake.mounted() if is_ours else "",
        "seconds": [round(after - before, 5) for before, after in zip(ends, ends[1:])],
    }), file=with_output, flush=True)


def begin(name, mode, gpu):
    """Starts a job's process, which will wait."""
    ours = ["-m", "gmlake", "run", "--allocator", "lake"] if mode == "lake" else []
    conf = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"} if mode == "expandable" else {}
    return subprocess.Popen(
        [sys.executable, *ours, __file__, "--job", name], env={**os.environ, **conf, "CUDA_VISIBLE_DEVICES": str(gpu)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )


def result(process):
    """Lets it go on, and returns what it wrote."""
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    out, errors = process.communicate("go\n")
    timer.cancel()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"failed": errors[-1500:]}


def lane(gpu, names, write, end):
    """The jobs of one GPU, one at a time; the next one imports its libraries meanwhile."""
    turns = [(name, mode, turn) for turn in range(ROUNDS) for name in names for mode in MODES[turn:] + MODES[:turn]]
    following = begin(*turns[0][:2], gpu)
    for place, (name, mode, turn) in enumerate(turns):
        process = following
        if time.time() > end:
            process.kill()
            return
        following = begin(*turns[place + 1][:2], gpu) if place + 1 < len(turns) else None
        write({"name": name, "mode": mode, "round": turn, **result(process)})


def measure(out, seconds):
    """All jobs on all GPUs."""
    names, gpus = os.environ.get("JOBS", " ".join(NAMES)).split(), int(os.environ.get("GPUS", "1"))
    Path(out).mkdir(parents=True, exist_ok=True)
    lock, fields = threading.Lock(), ["name", "mode", "round", "reserved", "live", "mount", "seconds", "failed"]
    with open(Path(out, "ten.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()

        def write(found):
            with lock:
                shown = {**found, "seconds": " ".join(map(str, found.get("seconds", [])))}
                writer.writerow(shown)
                file.flush()
                print({**shown, "seconds": shown["seconds"][-40:]}, flush=True)

        end = time.time() + seconds
        lanes = [threading.Thread(target=lane, args=(gpu, names[gpu::gpus], write, end)) for gpu in range(gpus)]
        for each in lanes:
            each.start()
        for each in lanes:
            each.join()


def of(values, digits):
    """Mean and standard error; one figure if all are the same."""
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) == 1:
        return f"{mean} (once)"
    error = statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean} ± {error:.{digits}f}" if error else mean


def table(out):
    """What is reserved in GiB, and a step's seconds from the fourth step on."""
    with open(Path(out, "ten.csv")) as file:
        runs = list(csv.DictReader(file))
    headings = [f"{mode} {unit}" for unit in ["GiB", "ms a step"] for mode in MODES]
    print(f"| job | {' | '.join(headings)} |")
    print("|---" + "|---:" * 2 * len(MODES) + "|")
    for name in dict.fromkeys(run["name"] for run in runs):
        held, steps = [], []
        for mode in MODES:
            mine = [run for run in runs if run["name"] == name and run["mode"] == mode]
            ended = [run for run in mine if run["reserved"]]
            seconds = [list(map(float, run["seconds"].split()))[WARM:] for run in ended]
            sizes = [int(run["reserved"]) / 2**30 for run in ended]
            parts = [" to ".join(sorted({f"{min(sizes):.2f}", f"{max(sizes):.2f}"}))] if ended else []
            parts += [f"{len(mine) - len(ended)} failed"] if len(mine) > len(ended) else []
            held.append(", ".join(parts) or "-")
            steps.append(of([1000 * statistics.mean(each) for each in seconds if each], 1) if ended else "-")
        print(f"| `{name}` | " + " | ".join(held + steps) + " |")
    totals(runs)


def totals(runs):
    """What is reserved over what is live, and lake's steps against the others', each job once."""
    held, steps = {mode: [] for mode in MODES}, {mode: [] for mode in MODES}
    for name in dict.fromkeys(run["name"] for run in runs):
        mine = {mode: [run for run in runs if (run["name"], run["mode"]) == (name, mode)] for mode in MODES}
        live = max(int(run["live"]) for run in mine["expandable"])
        for mode in MODES:
            held[mode].append(max(int(run["reserved"]) for run in mine[mode]) / live)
            seconds = [list(map(float, run["seconds"].split()))[WARM:] for run in mine[mode]]
            steps[mode].append(statistics.mean(statistics.mean(each) for each in seconds))
    for mode in MODES:
        print(f"{mode}: reserved over live {statistics.mean(held[mode]):.3f} in the mean, {max(held[mode]):.3f} at worst")
    for mode in MODES[:-1]:
        more = [100 * (ours / theirs - 1) for ours, theirs in zip(steps["lake"], steps[mode])]
        print(f"lake's steps against {mode}: {of(more, 1)} %")


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        job(sys.argv[2])
    elif sys.argv[1] == "--table":
        table(sys.argv[2])
    else:
        measure(sys.argv[1], float(sys.argv[2]))
