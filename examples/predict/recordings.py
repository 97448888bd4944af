"""Recordings: those of real GPUs whose scripts are at hand, predicted again.

    python examples/predict/recordings.py --scripts CAPTURE --traces TRACES [NAME ...] [--markdown FILE]

`CAPTURE` has the scripts that made the recordings, `TRACES` PyTorch's own counters next to each one
(`NAME.stats.json`). Prints a line a recording: reserved and live peak, recorded and predicted. With
`--check` the exit code is 1 unless every prediction is as good as the table below says.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ONE, MANY = "workloads.py", "dist_workloads.py"

# Name of the recording; script and arguments (OUT is a folder); ranks of how many, and the rank.
# Last, what is promised: `exact` to the byte, or the share by which the peak may differ.
EXACT = 0.0
RECORDINGS = {
    "graphs": (ONE, "graphs OUT", None, EXACT),
    "pools": (ONE, "pools OUT", None, EXACT),
    "streams": (ONE, "streams OUT", None, 0.03),
    "opt-1.3b-N": (ONE, "opt-1.3b-N OUT", None, EXACT),
    "opt-1.3b-R": (ONE, "opt-1.3b-R OUT", None, EXACT),
    "opt-1.3b-LR": (ONE, "opt-1.3b-LR OUT", None, EXACT),
    "opt-1.3b-LR.expandable": (ONE, "opt-1.3b-LR OUT --conf expandable_segments:True", None, EXACT),
    "opt-1.3b-RO": (ONE, "opt-1.3b-RO OUT", None, EXACT),
    "opt-1.3b-LRO": (ONE, "opt-1.3b-LRO OUT", None, EXACT),
    "opt-1.3b-LR-var": (ONE, "opt-1.3b-LR-var OUT", None, EXACT),
    "opt-1.3b-LR-var.expandable": (
        ONE, "opt-1.3b-LR-var OUT --conf expandable_segments:True", None, EXACT,
    ),
    "opt-1.3b-LR-var.split128": (
        ONE, "opt-1.3b-LR-var OUT --conf max_split_size_mb:128", None, EXACT,
    ),
    "opt-1.3b-LR-var.gc60-cap16pct": (
        ONE,
        "opt-1.3b-LR-var OUT --conf garbage_collection_threshold:0.6 --fraction 0.16 --steps 4",
        None, EXACT,
    ),
    "opt-1.3b-LR-var.frames": (ONE, "opt-1.3b-LR-var OUT --frames --steps 6", None, EXACT),
    "opt-13b-LR": (ONE, "opt-13b-LR OUT", None, EXACT),
    "glm-10b-LR": (ONE, "glm-10b-LR OUT --steps 4", None, EXACT),
    "generate-7b": (ONE, "generate-7b OUT --steps 6", None, EXACT),
    "detection.expandable-cap20pct": (
        ONE, "detection OUT --conf expandable_segments:True --fraction 0.20 --steps 2", None, 0.03,
    ),
    "fsdp2-gpt-neox-20b-LR-w4.r0": (MANY, "fsdp2 gpt-neox-20b LR 24 512 OUT", (4, 0), EXACT),
    "fsdp1-opt-13b-LR-w4.r0": (MANY, "fsdp1 opt-13b LR 24 512 OUT", (4, 0), 0.03),
    "zero3-opt-1.3b-LR-w4.r0": (MANY, "zero3 opt-1.3b LR 64 512 OUT", (4, 0), 0.03),
    "zero3-opt-1.3b-LR-w4.b32.r0": (MANY, "zero3 opt-1.3b LR 32 512 OUT --steps 4", (4, 0), 0.03),
    "zero3-opt-1.3b-LR-w4.b160.r0": (MANY, "zero3 opt-1.3b LR 160 512 OUT --steps 4", (4, 0), 0.03),
    "zero3-opt-1.3b-LRO-w4.b24.r0": (MANY, "zero3 opt-1.3b LRO 24 512 OUT --steps 4", (4, 0), 0.03),
    "zero3-opt-1.3b-N-w4.b24.r0": (MANY, "zero3 opt-1.3b N 24 512 OUT --steps 4", (4, 0), 0.03),
    "zero3-opt-1.3b-R-w4.b24.r0": (MANY, "zero3 opt-1.3b R 24 512 OUT --steps 4", (4, 0), 0.03),
    "zero3-opt-13b-LR-w1.r0": (MANY, "zero3 opt-13b LR 24 512 OUT --steps 5", (1, 0), 0.03),
    "zero3-opt-13b-LR-w2.r0": (MANY, "zero3 opt-13b LR 24 512 OUT --steps 5", (2, 0), 0.03),
    "zero3-opt-13b-LR-w2.r1": (MANY, "zero3 opt-13b LR 24 512 OUT --steps 5", (2, 1), 0.03),
    "zero3-opt-13b-LR-w4.r0": (MANY, "zero3 opt-13b LR 24 512 OUT --steps 5", (4, 0), 0.03),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which recordings; default: all that are at hand")
    parser.add_argument("--scripts", required=True, metavar="DIR")
    parser.add_argument("--traces", required=True, metavar="DIR")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there too")
    parser.add_argument("--check", action="store_true", help="fail if a prediction is not as good as promised")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="side by side, which makes each of them slower")
    given = parser.parse_args()
    rows, bad, truths = [], [], {}
    for name in given.names or RECORDINGS:
        truth = os.path.join(given.traces, f"{name}.stats.json")
        if not os.path.exists(truth):
            print(f"{name}: no {truth}; left out", file=sys.stderr)
            continue
        with open(truth) as file:
            truths[name] = json.load(file)
    with ThreadPoolExecutor(given.jobs) as pool:
        predictions = pool.map(lambda name: predict(given.scripts, name), truths)
        for (name, recorded), found in zip(truths.items(), predictions):
            rows.append(row(name, recorded, found))
            print(rows[-1], flush=True)
            if not is_kept(RECORDINGS[name][3], recorded["stats"], found):
                bad.append(name)
    if given.markdown:
        write(given.markdown, rows)
    print(f"{len(rows) - len(bad)} passed, {len(bad)} failed")
    return 1 if given.check and bad else 0


def predict(scripts, name):
    """The prediction's JSON for the recording's rank, or what went wrong."""
    script, arguments, ranks, _ = RECORDINGS[name]
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "prediction.json")
        command = [sys.executable, "-m", "gmlake", "predict", "--json", place]
        if ranks:
            command += ["--world", str(ranks[0]), "--ranks", str(ranks[1])]
        arguments = [folder if word == "OUT" else word for word in arguments.split()]
        command += [os.path.join(scripts, script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if not os.path.exists(place):
            return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1]}
        with open(place) as file:
            return json.load(file)["result"]["ranks"][0]


def is_kept(promise, stats, found):
    """Whether a prediction is as good as promised: the interval holds the truth, the guess is near."""
    truth, guess = stats["reserved_bytes.all.peak"], found.get("reserved_peak_bytes")
    if not guess:
        return False
    low, high = found["reserved_peak_bytes_low"], found["reserved_peak_bytes_high"]
    return guess == truth or abs(guess - truth) <= promise * truth and low <= truth <= high


def row(name, recorded, found):
    """A line of the table."""
    stats = recorded["stats"]
    truth, live = stats["reserved_bytes.all.peak"], stats["active_bytes.all.peak"]
    guess = found.get("reserved_peak_bytes")
    if not guess:
        return f"| {name} | {gib(truth)} | {found.get('error')} | | | | | |"
    low, high = found["reserved_peak_bytes_low"], found["reserved_peak_bytes_high"]
    interval = f"{gib(low)} to {gib(high)}" if low < high else ""
    difference = "0 B" if guess == truth else f"{100 * (guess - truth) / truth:+.2f} %"
    requests = f"{stats['allocation.all.allocated']:,} / {found['requests']:,}"
    seconds = f"{recorded['seconds']:.0f} / {found['seconds']:.0f}"
    return (f"| {name} | {gib(truth)} | {gib(guess)} | {difference} | {interval} "
            f"| {gib(live)} / {gib(found['active_peak_bytes'])} | {requests} | {seconds} |")


def gib(size):
    return f"{size / 2**30:.3f}"


HEAD = """| recording | reserved GiB | predicted | difference | interval | live GiB | requests | seconds |
|---|---:|---:|---:|---|---|---|---|"""


def write(path, rows):
    with open(path, "w") as file:
        print(HEAD, *rows, sep="\n", file=file)


if __name__ == "__main__":
    sys.exit(main())
