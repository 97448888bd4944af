"""How many traces of a set have the peak that PyTorch reserved when the same script ran on a GPU.

usage: confirm.py [--set full] [--least N]        ends with 1 if fewer than N are equal to the byte

`caching` serves each trace, with the addresses of an H200's driver. GMLAKE_SIM names the program.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="full")
    parser.add_argument("--least", type=int, default=0)
    given = parser.parse_args()
    with open(ROOT / "src" / "bench" / f"{given.set}.csv", newline="") as file:
        recorded = {row["name"]: int(row["recorded_peak_bytes"]) for row in csv.DictReader(file) if row["recorded_peak_bytes"]}
    command = [os.environ.get("GMLAKE_SIM", "gmlake-sim"), "bench", "--set", given.set, "--allocators", "caching", "--json"]
    rows = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)["result"]["rows"]
    off = {row["trace"]: row["reserved_peak_bytes"] / recorded[row["trace"]] - 1 for row in rows if row["trace"] in recorded}
    for name, share in sorted(off.items(), key=lambda item: -abs(item[1])):
        if share:
            print(f"{name}: {100 * share:+.2f} %")
    equal = sum(not share for share in off.values())
    print(f"{equal} of {len(off)} that were recorded on a GPU have its peak, to the byte")
    return 1 if equal < given.least else 0


if __name__ == "__main__":
    sys.exit(main())
