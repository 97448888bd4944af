"""A made-up fleet: copies of small recordings under the names of jobs and ranks.

    FOLDER/2026-11-20/team-a/job-1.r0.pickle.xz ... r7      8 ranks alike
    FOLDER/2026-11-20/team-b/job-2.r5.pickle.xz             one that is unlike its peers
    FOLDER/2026-11-21/large.r0.pickle.xz ... r99            more ranks than a part of the Parquet holds
    FOLDER/2026-11-21/damaged.r0.pickle.xz                  one that cannot be read
"""

import os
import random
import shutil
from pathlib import Path

TRACES = Path(__file__).parents[2] / "traces"
KINDS = ["pools", "graphs", "streams", "detection.expandable-cap20pct"]
RANKS, LARGE = 8, 100
UNLIKE = {"team-b/job-2": (5, "streams"), "team-c/job-7": (0, "graphs")}  # by job, the rank unlike its peers


def make(folder, jobs):
    """Makes the fleet and returns how many recordings can be read."""
    names, chance = [], random.Random(25)
    for number in range(jobs):
        job = f"team-{'abcd'[number % 4]}/job-{number + 1}"
        kind = KINDS[number % len(KINDS)]
        other, its = UNLIKE.get(job, (None, None))
        for rank in range(RANKS):
            names.append((f"2026-11-{20 + number % 3}/{job}.r{rank}", its if rank == other else kind))
    names += [(f"2026-11-21/large.r{rank}", "pools") for rank in range(LARGE)]
    for name, kind in names:
        path = Path(folder, f"{name}.pickle.xz")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TRACES / f"{kind}.pickle.xz", path)
    damaged = Path(folder, "2026-11-21", "damaged.r0.pickle.xz")
    # Cut off it would be a part of a recording, which can be read.
    whole = (TRACES / "pools.pickle.xz").read_bytes()
    damaged.write_bytes(whole[:200] + bytes(200) + whole[400:])
    for path in Path(folder).rglob("*.xz"):
        changed = 1.75e9 + chance.randrange(10**6)
        os.utime(path, (changed, changed))
    return len(names)
