"""The paper's evaluation without a GPU: each cell of its figures predicted on a virtual A100 of 80 GB.

usage: evaluate.py [--out FOLDER] [--steps 4] [--events clock] [--side-by-side 2]
                   [--colossal FOLDER] [--only TEXT] [--table-only]

Every job of `cells.csv` is predicted by `python -m gmlake predict`, on a card whose memory has no
end. `gmlake-sim` then serves the same requests on an A100, by PyTorch's allocator and by others.
Each job leaves one line in FOLDER/results.jsonl, and is not run again where it has one: a run that
was stopped goes on where it stopped. FOLDER/table.md is written from these lines.

`--colossal` names the folder with Colossal-AI; `gemini.py` tells how to fill it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import cells
import table

HERE = os.path.dirname(os.path.abspath(__file__))
# What the driver leaves of an A100 of 80 GB, less 1.5 GiB for the context and NCCL, as in `plan`.
DEVICE_GIB = 77.75


def options():
    """The command line."""
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--out", default="paper-evaluation")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--events", default="clock", help="as of `predict`")
    parser.add_argument("--side-by-side", type=int, default=2)
    parser.add_argument("--colossal", help="folder with Colossal-AI and what it needs")
    parser.add_argument("--only", default="", help="jobs whose name contains this")
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--limit", type=int, default=900, help="seconds for one job")
    return parser.parse_args()


def main():
    given = options()
    os.makedirs(given.out, exist_ok=True)
    results = os.path.join(given.out, "results.jsonl")
    if not given.table_only:
        predict_all(given, results)
    with open(os.path.join(given.out, "table.md"), "w", encoding="utf-8") as file:
        file.write(table.write(cells.read(), read(results), given.steps, DEVICE_GIB))


def read(path):
    """The lines of the results, by the job's name; of several the last."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    return {line["job"]: line for line in lines}


def predict_all(given, results):
    """Runs what has no line yet, and adds its line as soon as it is there."""
    done = {name for name, line in read(results).items() if not line["error"]}
    jobs = list(dict.fromkeys(cell.job for cell in cells.read()))
    jobs = [job for job in jobs if given.only in job.name and job.name not in done]
    writing = Lock()

    def one(job):
        line = predict(job, given)
        with writing, open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{job.name}: {line['error'] or summary(line)}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(given.side_by_side) as pool:
        list(pool.map(one, jobs))


def summary(line):
    """One job's line in the progress."""
    caching = line["runs"]["caching"]
    held = "out of memory" if caching["oom"] else f"{caching['reserved'] / 2**30:.1f} GiB"
    return f"{held}, {line['seconds']:.0f} s"


def predict(job, given):
    """The line of one job; `error` says why there are no numbers."""
    line = {"job": job.name, "error": obstacle(job, given)}
    if line["error"]:
        return line
    folder = tempfile.mkdtemp(prefix="paper-")
    try:
        return {**line, **simulate(*run(job, given, folder))}
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return {**line, "error": last_line(error)}
    finally:
        shutil.rmtree(folder)


def obstacle(job, given):
    """Why a job cannot be predicted on this machine, or None."""
    if job.engine == "gemini" and not given.colossal:
        return "Colossal-AI is not installed (--colossal)"
    return None


def run(job, given, folder):
    """Predicts rank 0, and returns its part of the JSON."""
    reply = os.path.join(folder, "prediction.json")
    command = [sys.executable, "-m", "gmlake", "predict", "--gpu", "a100-80gb"]
    command += ["--memory", "unlimited", "--events", given.events, "--world", str(job.gpus)]
    command += ["--out", folder, "--json", reply, os.path.join(HERE, "train.py")]
    command += ["--engine", job.engine, "--model", job.model, "--strategy", job.strategy]
    command += ["--batch", str(job.batch), "--steps", str(given.steps)]
    surroundings = dict(os.environ)
    if job.engine == "gemini":
        paths = [os.path.abspath(given.colossal), surroundings.get("PYTHONPATH", "")]
        surroundings["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    done = subprocess.run(
        command, env=surroundings, capture_output=True, text=True, timeout=given.limit
    )
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr)
    with open(reply, encoding="utf-8") as file:
        rank = json.load(file)["result"]["ranks"][0]
    return rank, folder


def simulate(rank, folder):
    """What each allocator makes of the snapshot on the card."""
    program = os.environ.get("GMLAKE_SIM") or shutil.which("gmlake-sim")
    if not program:
        raise OSError("gmlake-sim is not on PATH; GMLAKE_SIM names it")
    snapshot = os.path.join(folder, os.path.basename(rank["snapshot"]))
    command = [program, "compare", snapshot, "--allocators", ",".join(table.ALLOCATORS)]
    command += ["--device-memory", f"{DEVICE_GIB}GiB", "--on-oom", "stop"]
    command += ["--set", "gmlake.fragment_limit=2MiB", "--export-json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr)
    runs = {each["allocator"]: each for each in json.loads(done.stdout)["result"]["runs"]}
    kept = {"reserved": "reserved_peak_bytes", "live": "active_peak_bytes", "oom": "oom_count"}
    kept["retries"] = "alloc_retries"
    return {
        "runs": {
            name: {key: runs[name][of] for key, of in kept.items()} for name in table.ALLOCATORS
        },
        "requests": rank["requests"],
        "seconds": rank["seconds"],
        "host_memory_bytes": rank["host_memory_bytes"],
    }


def last_line(error):
    """The end of a message, where Python's and our own say what happened."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]


if __name__ == "__main__":
    main()
