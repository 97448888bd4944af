"""Records the jobs of a list, as many side by side as the memory of a GPU holds.

usage: record.py LIST PREDICTIONS OUT [--memory GIB] [--seconds N]

Jobs are those of PREDICTIONS, in its order: a later one may begin before an earlier one that has no
room yet. No job begins after N seconds. What they need is taken from PREDICTIONS, and 3 GiB each for
CUDA. A job of several ranks takes as many GPUs; one of a single rank sees the first only. OUT gets
a line for each job, as soon as it has ended: PyTorch's own peaks in bytes (of rank 0), its requests,
the seconds of the script, and what went wrong, if anything did.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make import script

HERE = Path(__file__).parent
RECORD = HERE.parent / "jobs" / "record.py"
COLUMNS = ["name", "reserved_peak_bytes", "active_peak_bytes", "requests", "seconds", "failure"]
CONTEXT = 3 << 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("predictions", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", type=float, default=136, help="of the GPU, in GiB")
    parser.add_argument("--seconds", type=float, default=1e9)
    given = parser.parse_args()
    if given.out.exists():
        parser.error(f"{given.out} is there already")
    jobs = {job["name"]: job for job in rows(given.list)}
    todo = [(jobs[row["name"]], int(row["reserved_peak_bytes"]) + CONTEXT) for row in rows(given.predictions)]
    with tempfile.TemporaryDirectory() as folder, open(given.out, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in side_by_side(todo, int(given.memory * 2**30), time.time() + given.seconds, Path(folder)):
            writer.writerow(row)
            file.flush()


def rows(path):
    """The rows of a table, without comments."""
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def side_by_side(todo, free, end, folder):
    """Runs jobs as memory comes free, and yields the line of each when it has ended."""
    running = []
    while running or todo and time.time() < end:
        ready = next(((job, need) for job, need in todo if need <= free and time.time() < end), None)
        done = next((entry for entry in running if entry[0].poll() is not None), None)
        if ready:
            todo.remove(ready)
            job, need = ready
            free -= need
            running.append((begin(job, folder), job, need))
        elif done:
            running.remove(done)
            free += done[2]
            yield outcome(done[1], folder)
        elif running:
            time.sleep(0.2)
        else:
            break


def begin(job, folder):
    """A process that records a job."""
    program, *arguments = script(job)
    words, gpus = [sys.executable], range(int(job["world"]))
    if len(gpus) > 1:
        words += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", job["world"]]
    words += [RECORD, program, folder / job["name"], *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)


def outcome(job, folder):
    """A job's line."""
    world = int(job["world"])
    ranks = [f".r{rank}" for rank in range(world)] if world > 1 else [""]
    for rank in ranks:
        (folder / f"{job['name']}{rank}.pickle").unlink(missing_ok=True)
    facts = folder / f"{job['name']}{ranks[0]}.stats.json"
    if not facts.exists():
        return {"name": job["name"], "failure": "it wrote nothing"}
    facts = json.loads(facts.read_text())
    stats = facts["stats"]
    return {
        "name": job["name"],
        "reserved_peak_bytes": stats["reserved_bytes.all.peak"],
        "active_peak_bytes": stats["active_bytes.all.peak"],
        "requests": stats["allocation.all.allocated"],
        "seconds": facts["seconds"],
        "failure": facts["failure"] or "",
    }


if __name__ == "__main__":
    main()
