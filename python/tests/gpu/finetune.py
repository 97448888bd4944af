"""Fine-tuning on stock PyTorch and on ours: losses, step times, memory; simulated against real; and under a cap.

usage: finetune.py OUT SECONDS, with ALLOCATORS (names, also with options: gmlake,chunk=32MiB), and optionally
CAPS="0.19 0.2" (shares of the GPU's memory to try), STEPS (8), FIXED_STEPS (6), LARGE_STEPS (4) and
JOBS ("small fixed large cap"). The table is in OUT/finetune.md, the numbers in OUT/finetune.json.
"""

import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUT, LIMIT = Path(sys.argv[1]), float(sys.argv[2])
HERE = Path(__file__).parent
OURS = os.environ["ALLOCATORS"].split()
MODES = ["stock", OURS[0], *OURS[1:], "expandable"]
STEPS, LARGE_STEPS = os.environ.get("STEPS", "8"), os.environ.get("LARGE_STEPS", "4")
FIXED_STEPS = os.environ.get("FIXED_STEPS", "6")
JOBS = os.environ.get("JOBS", "small fixed large cap").split()
CAPS = os.environ.get("CAPS", "0.19").split()
START = time.time()
SCRATCH = Path(tempfile.mkdtemp())
GIB = 2**30
results = []


def left():
    return LIMIT - (time.time() - START)


def run(title, mode, *arguments, trace=False):
    """One training run; its result, or None if there was no time or it failed."""
    if left() < 20:
        print(f"{title} {mode}: no time left", flush=True)
        return None
    file = SCRATCH / "result.json"
    file.unlink(missing_ok=True)
    snapshot = SCRATCH / f"{title}.{mode}.pickle"
    more = ["--trace", str(snapshot)] if trace else []
    command = [sys.executable, str(HERE / "train.py"), mode, str(file), *arguments, *more]
    begin = time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(20, min(120, left())))
        errors = done.stderr
    except subprocess.TimeoutExpired as expired:
        errors = f"out of time: {expired}"
    if not file.exists():
        print(f"{title} {mode}: FAILED\n{errors[-3000:]}", flush=True)
        results.append(dict(title=title, mode=mode, failed=errors[-3000:]))
        return None
    result = dict(title=title, seconds=round(time.time() - begin, 1), **json.loads(file.read_text()))
    if trace and snapshot.exists():
        result["simulated"] = simulate(snapshot, mode)
        with open(snapshot, "rb") as plain, lzma.open(OUT / f"{snapshot.name}.xz", "wb", preset=1) as packed:
            shutil.copyfileobj(plain, packed)
    results.append(result)
    print(row(result), flush=True)
    write()
    return result


def simulate(snapshot, mode):
    """The same requests on a simulated GPU."""
    export = SCRATCH / "simulated.json"
    name, *options = mode.split(",")
    options = [word for each in options for word in ("--set", f"{name}.{each}")]
    command = ["gmlake-sim", "compare", str(snapshot), "--allocators", name, *options, "--export-json", str(export)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return dict(failed=done.stderr[-500:])
    runs = json.loads(export.read_text())["result"]["runs"]
    found = next(run for run in runs if run["allocator"] == name)
    return dict(reserved_peak_bytes=found["reserved_peak_bytes"], active_peak_bytes=found["active_peak_bytes"])


HEAD = ["run", "allocator", "steps", "first step s", "steady s", "reserved GiB", "driver GiB", "in tensors GiB",
        "simulated reserved GiB", "losses as stock", "out of memory"]


def stock_of(title):
    return next((each for each in results if each["title"] == title and each["mode"] == "stock" and "losses" in each), None)


def cells(result):
    steps, stock = result["step_s"], stock_of(result["title"])
    steady = sorted(steps[2:])[len(steps[2:]) // 2] if len(steps) > 2 else float("nan")
    same = "-"
    if stock and result is not stock:
        pairs = list(zip(stock["losses"], result["losses"]))
        same = "all equal" if all(a == b for a, b in pairs) else f"off by {max(abs(a - b) for a, b in pairs):.2g}"
    simulated = result.get("simulated", {}).get("reserved_peak_bytes")
    return [result["title"], result["mode"], str(len(steps)), f"{steps[0]:.3f}" if steps else "-", f"{steady:.3f}",
            f"{result['reserved_peak_bytes'] / GIB:.2f}", f"{result['driver_peak_bytes'] / GIB:.2f}",
            f"{result['allocated_peak_bytes'] / GIB:.2f}", f"{simulated / GIB:.2f}" if simulated else "-", same,
            "yes" if result["oom"] else "no"]


def row(result):
    return "| " + " | ".join(cells(result)) + " |"


def write():
    (OUT / "finetune.json").write_text(json.dumps(results, indent=1))
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    lines += [row(each) for each in results if "losses" in each]
    (OUT / "finetune.md").write_text("\n".join(lines) + "\n")


small = ("--model", "opt-1.3b", "--batch", "32", "--steps", STEPS)
runs = {
    "small": ("opt-1.3b-LR-var", *small),
    "fixed": ("opt-1.3b-LR", "--model", "opt-1.3b", "--batch", "32", "--steps", FIXED_STEPS, "--fixed"),
    "large": ("opt-13b-LR-var", "--model", "opt-13b", "--batch", "24", "--steps", LARGE_STEPS),
}
for job, (title, *arguments) in runs.items():
    for mode in MODES if job in JOBS else []:
        run(title, mode, *arguments, trace=mode in OURS)
for cap in CAPS if "cap" in JOBS else []:
    for mode in ["stock", "expandable", OURS[0]]:
        run(f"opt-1.3b-LR-var at most {cap}", mode, *small, "--fraction", cap)
write()
print((OUT / "finetune.md").read_text())
