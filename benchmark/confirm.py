"""How many traces of a set have the peak that PyTorch reserved when the same script ran on a GPU.

usage: confirm.py [--set full] [--least N]        ends with 1 if fewer than N are equal to the byte
       confirm.py [--set full] --steps ALLOCATOR  its driver time in a step, as a share of the steps that were recorded

`caching` serves each trace, with the addresses of an H200's driver. GMLAKE_SIM names the program. Steps are those of
examples/lake/recorded-steps.csv, the mean from the fifth on.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def rows(allocator, chosen):
    command = [os.environ.get("GMLAKE_SIM", "gmlake-sim"), "bench", "--set", chosen, "--allocators", allocator, "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)["result"]["rows"]


def shares(allocator, chosen):
    with open(ROOT / "examples" / "lake" / "recorded-steps.csv", newline="") as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        seconds = {line["name"]: statistics.mean(map(float, line["step_seconds"].split()[4:])) for line in lines}
    found = {row["trace"]: row["driver_step_ns"] / 1e9 / seconds[row["trace"]]
             for row in rows(allocator, chosen) if row["trace"] in seconds}
    for name, share in sorted(found.items(), key=lambda item: -item[1]):
        print(f"{name}: {100 * share:.3f} %")
    print(f"{len(found)} traces: {100 * statistics.median(found.values()):.3f} % in the median")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="full")
    parser.add_argument("--least", type=int, default=0)
    parser.add_argument("--steps", metavar="ALLOCATOR")
    given = parser.parse_args()
    if given.steps:
        return shares(given.steps, given.set)
    with open(ROOT / "src" / "bench" / f"{given.set}.csv", newline="") as file:
        recorded = {row["name"]: int(row["recorded_peak_bytes"]) for row in csv.DictReader(file) if row["recorded_peak_bytes"]}
    found = rows("caching", given.set)
    off = {row["trace"]: row["reserved_peak_bytes"] / recorded[row["trace"]] - 1 for row in found if row["trace"] in recorded}
    for name, share in sorted(off.items(), key=lambda item: -abs(item[1])):
        if share:
            print(f"{name}: {100 * share:+.2f} %")
    equal = sum(not share for share in off.values())
    print(f"{equal} of {len(off)} that were recorded on a GPU have its peak, to the byte")
    return 1 if equal < given.least else 0


if __name__ == "__main__":
    sys.exit(main())
