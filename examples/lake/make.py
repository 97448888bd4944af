"""Predicts every job of a list, and says what came out in a table.

usage: make.py LIST OUT [--jobs 2] [--only NAME ...] [--varied-steps N]

For each line of LIST, NAME.pickle is written into the folder OUT, and NAME.json with the prediction.
Jobs that OUT has already are left out, so that a list that was interrupted goes on. A job that fails
is named, its messages stay in NAME.log, and the others go on. OUT/summary.csv has a line for each job
that is there; its last column has the estimated seconds of the steps, separated by blanks.
"""

import argparse
import csv
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ["name", "family", "engine", "varied", "steps", "requests", "reserved_peak_bytes", "active_peak_bytes",
           "seconds", "step_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="side by side")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--varied-steps", type=int, metavar="N",
                        help="only the jobs whose lengths vary, with N steps each")
    given = parser.parse_args()
    with open(given.list, newline="") as file:
        jobs = list(csv.DictReader(file))
    if given.varied_steps:
        jobs = [longer(job, given.varied_steps) for job in jobs if job["varied"] == "yes"]
    given.out.mkdir(parents=True, exist_ok=True)
    todo = [job for job in jobs if not given.only or job["name"] in given.only]
    todo = [job for job in todo if not (given.out / f"{job['name']}.pickle").exists()]
    with ThreadPoolExecutor(given.jobs) as pool:
        failed = [name for name in pool.map(lambda job: attempt(job, given.out, jobs), todo) if name]
    summarize(jobs, given.out)
    print(f"{len(todo) - len(failed)} made, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


def longer(job, steps):
    """The same job with this many steps, NAME.STEPS: the last of equal options counts."""
    return {**job, "name": f"{job['name']}.{steps}", "arguments": f"{job['arguments']} --steps {steps}"}


def attempt(job, out, jobs):
    """Predicts one job; returns its name if that failed."""
    name = job["name"]
    with tempfile.TemporaryDirectory(dir=out) as folder:
        with open(out / f"{name}.log", "w") as log:
            done = subprocess.run(command(job, folder), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        snapshots = list(Path(folder).glob("*.pickle"))
        if done.returncode or len(snapshots) != 1:
            print(f"{name}: failed, see {out / name}.log", flush=True)
            return name
        shutil.move(next(path for path in Path(folder).glob("*.json")), out / f"{name}.json")
        shutil.move(snapshots[0], out / f"{name}.pickle")
    (out / f"{name}.log").unlink(missing_ok=True)
    row = summary(job, out)
    print(f"{name}: {row['reserved_peak_bytes'] / 2**30:.1f} GiB, {row['requests']} requests, {row['seconds']:.0f} s",
          flush=True)
    summarize(jobs, out)
    return None


def command(job, folder):
    """The prediction of a job, into a folder."""
    words = [sys.executable, "-m", "gmlake", "predict", "--events", "clock", "--out", folder, "--jobs", "1"]
    if job["world"] != "1":
        words += ["--world", job["world"], "--ranks", "0"]
    return words + script(job)


def script(job):
    """What a job runs: its program, and the arguments."""
    arguments = shlex.split(job["arguments"])
    if job["kind"].endswith(".py"):
        return [str(HERE.parent / job["kind"]), *arguments]
    words = [str(HERE / "jobs" / "train.py"), job["kind"], job["family"], "--engine", job["engine"]]
    return words + ["--varied"] * (job["varied"] == "yes") + arguments


def summary(job, out):
    """A job's line."""
    with open(out / f"{job['name']}.json") as file:
        rank = json.load(file)["result"]["ranks"][0]
    row = {**job, **rank, "step_seconds": " ".join(map(str, rank["step_seconds"]))}
    return {name: row[name] for name in COLUMNS}


def summarize(jobs, out):
    """Writes the table of all jobs that are there, whole or not at all."""
    rows = [summary(job, out) for job in jobs if (out / f"{job['name']}.json").exists()]
    with tempfile.NamedTemporaryFile("w", dir=out, delete=False, newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    os.replace(file.name, out / "summary.csv")


if __name__ == "__main__":
    sys.exit(main())
