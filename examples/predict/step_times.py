"""Steps: how long those of jobs take on a GPU, and each kernel of one of them.

usage: step_times.py LIST OUT [--only NAME ...] [--steps N] [--kernels FOLDER] [--seconds N]

Jobs of LIST (as in `examples/lake`) that have one rank run one after the other; the next one imports its libraries
meanwhile. OUT gets a line for each: how long each step took, in seconds, separated by blanks, from the end of the
step before on the host. Steps 5 and later are steady. With --kernels, the sixth is profiled, and FOLDER/NAME.csv says
of each kernel and number of threads how often it ran and the nanoseconds of all its runs. No job begins after N seconds.
"""

import argparse
import collections
import csv
import json
import math
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROFILED = 6


def main():
    sys.path.insert(1, str(Path(__file__).parent.parent / "lake"))
    from record import rows

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--steps", type=int, help="instead of those that the list says")
    parser.add_argument("--kernels", type=Path, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=1e9)
    given = parser.parse_args()
    jobs = [job for job in rows(given.list) if job["world"] == "1" and (not given.only or job["name"] in given.only)]
    if not jobs:
        parser.error(f"{given.list} has no such job of one rank")
    if given.out.exists():
        parser.error(f"{given.out} is there already")
    if given.kernels:
        given.kernels.mkdir(parents=True, exist_ok=True)
    with open(given.out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "step_seconds", "failure"])
        for row in one_by_one(jobs, given):
            writer.writerow(row)
            file.flush()


def one_by_one(jobs, given):
    """Runs jobs, and yields the line of each when it has ended."""
    end = time.time() + given.seconds
    following = begin(jobs[0], given)
    for job, later in zip(jobs, [*jobs[1:], None]):
        process, following = following, later and begin(later, given)
        if time.time() > end:
            process.kill()
            continue
        output, errors = process.communicate("go\n")
        failure = errors.strip().rpartition("\n")[2] if process.returncode else ""
        yield job["name"], output.strip(), failure


def begin(job, given):
    """A process that waits for a line before it runs a job."""
    from make import script

    kernels = given.kernels / f"{job['name']}.csv" if given.kernels else ""
    words = [sys.executable, __file__, "--alone", str(kernels), *script(job)]
    words += ["--steps", str(given.steps)] if given.steps else []
    pipe, environment = subprocess.PIPE, {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def alone(kernels, program, *arguments):
    """Runs a job as `python PROGRAM ARGUMENTS...` would, and prints the seconds of its steps."""
    import torch
    import transformers  # noqa: F401
    from torch.optim.optimizer import register_optimizer_step_post_hook

    sys.stdin.readline()
    ends = [time.perf_counter()]
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    def ended(*_):
        if kernels and len(ends) == PROFILED:
            torch.cuda.synchronize()
        ends.append(time.perf_counter())
        if kernels and len(ends) == PROFILED:
            torch.cuda.synchronize()
            profile.start()
        if kernels and len(ends) == PROFILED + 1:
            profile.stop()

    register_optimizer_step_post_hook(ended)
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)
    output, sys.stdout = sys.stdout, sys.stderr
    runpy.run_path(program, run_name="__main__")
    print(*(f"{end - start:.5f}" for start, end in zip(ends, ends[1:])), file=output)
    if kernels:
        write(profile, kernels)


def write(profile, path):
    """A profile's kernels, those that took longest first."""
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        profile.export_chrome_trace(trace.name)
        events = json.loads(Path(trace.name).read_text())["traceEvents"]
    found = collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            threads = math.prod((*event["args"]["grid"], *event["args"]["block"]))
            found[event["name"], threads].append(event["dur"])
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kernel", "threads", "count", "ns"])
        for (name, threads), times in sorted(found.items(), key=lambda entry: -sum(entry[1])):
            writer.writerow([name, threads, len(times), round(1000 * sum(times))])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        alone(*sys.argv[2:])
    else:
        main()
