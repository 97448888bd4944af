"""Ray tasks and Ray Data as the way to run shards: what each takes beyond the shards themselves, in seconds and memory.

    python tasks.py [SHARDS [SECONDS]]      64 shards that sleep 0.2 s, on two CPUs, twice each
"""

import os
import subprocess
import sys
import time
from pathlib import Path


def shard(row):
    """A process that takes its time."""
    subprocess.run(["sleep", str(row["seconds"])], check=True)
    return row


def as_tasks(ray, rows):
    task = ray.remote(shard).options(num_cpus=1)
    return ray.get([task.remote(row) for row in rows])


def as_data(ray, rows):
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    return ray.data.from_items(rows, override_num_blocks=len(rows)).map(shard, num_cpus=1).take_all()


def held():
    """MiB that all processes of Ray hold; pages of several processes count once."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if command.startswith(b"ray::") or b"/site-packages/ray/" in command:
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            pass  # it has ended
    return total // 1024


def main(shards="64", seconds="0.2"):
    import ray

    rows = [{"index": index, "seconds": float(seconds)} for index in range(int(shards))]
    print(f"Ray {ray.__version__}; at best {len(rows) * float(seconds) / 2:.1f} s")
    for way in [as_tasks, as_data]:
        ray.init(num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
        for _ in range(2):
            begin = time.monotonic()
            found = way(ray, rows)
            assert sorted(row["index"] for row in found) == list(range(len(rows)))
            print(f"{way.__name__}: {time.monotonic() - begin:.1f} s, {held()} MiB")
        ray.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main(*sys.argv[1:])
