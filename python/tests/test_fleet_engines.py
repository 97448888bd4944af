"""A fleet on one machine and on Ray, whose processes and workers are killed: the same Parquet, to the byte.

    python python/tests/test_fleet_engines.py FOLDER [KILLS]     FOLDER/jobs is the fleet; writes FOLDER/results

Needs `gmlake-sim`, Ray and pyarrow. Every finished folder is compared with that of one undisturbed process.
"""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import gmlake.fleet
from gmlake.predict import simulator
from test_fleet import children, command

CHANCE = random.Random()
SHARDS = 12
EXAMPLES = Path(__file__).parents[2] / "examples" / "fleet"
TASK = "ray::gmlake.fleet"  # what a Ray worker calls itself while it works for us


def content(folder):
    """Every file that readers see, by its hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*")) if path.is_file() and not path.name.startswith(".")
    }


def left_over(folder):
    """Files that a killed process had begun."""
    return sum(path.name.startswith(".") for path in Path(folder).rglob("*"))


def check(folder, expected):
    """The folder is the expected one; it is removed."""
    found = content(folder)
    different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    assert not different, f"{len(different)} of {len(expected)} files differ: {different[:3]}"
    shutil.rmtree(folder)


def start(out):
    words = [simulator.find(), "fleet", "jobs", "--out", out, "--quiet", "--json"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def undisturbed():
    """The result of one process, and the seconds that it took."""
    begin = time.monotonic()
    result = gmlake.fleet.run("jobs", "results", engine="local", progress=False)
    assert not result.failed
    return content("results"), time.monotonic() - begin


def one_machine(expected, seconds, kills):
    """A process that is killed and started again until it comes to its end, as often as it takes for all kills."""
    done, finished, begun = 0, 0, 0
    while done < kills:
        process = start("killed")
        try:
            process.wait(CHANCE.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
            begun += left_over("killed") > 0
            continue
        check("killed", expected)
        finished += 1
    assert start("killed").wait() == 2  # one recording is damaged
    check("killed", expected)
    print(f"ok one process, killed {done} times, finished {finished + 1} times, {begun} times within a file", flush=True)


class Killer(threading.Thread):
    """Kills workers of our Ray that are at work, at random moments, and now and then the process of a shard."""

    def __init__(self, kills):
        super().__init__(daemon=True)
        self.left, self.programs = kills, 0

    def run(self):
        while self.left:
            time.sleep(CHANCE.uniform(0.05, 0.8))
            workers = [pid for pid in descendants(os.getpid()) if TASK in command(pid)]
            if workers:
                worker = CHANCE.choice(workers)
                if CHANCE.random() < 0.25 and children(worker):
                    self.programs += kill(children(worker)[0])
                else:
                    self.left -= kill(worker)


def kill(pid):
    """Whether there was such a process to be killed."""
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def descendants(pid):
    """Processes that this one has started, and those that they have."""
    for child in all_children(pid):
        yield child
        yield from descendants(child)


def all_children(pid):
    """Children of every thread of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found = []
    for thread in threads:
        with contextlib.suppress(OSError):
            found += [int(child) for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return found


def on_ray(expected, kills):
    """Ray without and with kills."""
    import ray

    ray.init(num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
    begin = time.monotonic()
    result = gmlake.fleet.run("jobs", "ray", shards=SHARDS)
    assert not result.failed
    tables(result)
    check("ray", expected)
    print(f"ok Ray, {SHARDS} shards, {time.monotonic() - begin:.1f} s", flush=True)
    sweeps()
    killer, finished = Killer(kills), 0
    killer.start()
    while killer.left:
        result = gmlake.fleet.run("jobs", "ray", shards=SHARDS, retries=4 * kills)
        assert not result.failed, result.failed
        check("ray", expected)
        finished += 1
    print(f"ok Ray, {kills} workers and {killer.programs} programs killed, finished {finished} times", flush=True)
    ray.shutdown()


def sweeps():
    """A grid in one process, by an Executor and on Ray: the same rows in the same order, but for times."""
    recording = str(next(Path("jobs").rglob("*r0*.pickle*")))
    found = {}
    with ProcessPoolExecutor(2) as pool:
        for name, engine, shards in (("local", "local", None), ("pool", pool, 5), ("ray", "ray", 3)):
            def run():
                return gmlake.fleet.sweep(
                    recording, {"caching.max_split_size_mb": ["default", 64, 128], "lake.handle": "2MiB..16MiB:x2"},
                    f"sweep-{name}", engine, shards=shards, device_memory=["1GiB", "40GiB", "80GiB"],
                )
            result, table = run(), run().table()
            assert not result.failed, result.failed
            found[name] = table.drop_columns([column for column in table.column_names if column.startswith("host_")])
            before = [os.stat(file).st_mtime_ns for file in result.files]
            assert run().files == result.files and [os.stat(file).st_mtime_ns for file in result.files] == before
    assert found["local"].num_rows == (3 + 4) * 3, found["local"].num_rows
    assert found["local"].equals(found["pool"]) and found["local"].equals(found["ray"])
    print("ok a sweep by one process, an Executor and Ray", flush=True)


def tables(result):
    """What the result says, as Arrow and as a Ray Dataset."""
    assert result.ranks().num_rows == 292 and result.runs().num_rows == 4 * 292
    (error,) = result.errors().to_pylist()
    assert error["job"].endswith("damaged.r*") and "damaged" in error["problem"], error
    assert result.errors().schema.equals(empty_errors()), result.errors().schema
    data = result.dataset("runs")
    jobs = {row["job"] for row in result.runs().to_pylist()}
    assert data.count() == 4 * 292 and {row["job"] for row in data.select_columns(["job"]).take_all()} == jobs


def examples(expected):
    """The scripts for Slurm and Kubernetes and the program for Ray, as they are, without a cluster."""
    import yaml

    shards = {**os.environ, "PATH": f"{Path(simulator.find()).parent}:{os.environ['PATH']}"}
    for index in range(3):
        own = {**shards, "SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_TASK_COUNT": "3"}
        subprocess.run(["bash", EXAMPLES / "slurm.sh", "jobs", "slurm"], env=own, check=True)
    check("slurm", expected)
    job = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())["spec"]
    shell, option, line = job["template"]["spec"]["containers"][0]["command"]
    assert f'"$JOB_COMPLETION_INDEX/{job["completions"]}"' in line, line
    line = line.replace("/data/snapshots", "jobs").replace("/data/results", "kubernetes")
    for index in reversed(range(job["completions"])):
        subprocess.run([shell, option, line], env={**shards, "JOB_COMPLETION_INDEX": str(index)}, check=True)
    check("kubernetes", expected)
    wrong = {**shards, "JOB_COMPLETION_INDEX": str(job["completions"])}
    assert subprocess.run([shell, option, line], env=wrong).returncode != 0
    words = [sys.executable, EXAMPLES / "on_ray.py", "jobs", "--out", "program", "--shards", "2"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "292 ranks, 1168 runs, 1 errors" in said, said
    check("program", expected)
    print("ok the examples for Slurm, Kubernetes and Ray", flush=True)


def empty_errors():
    """The columns of a table of errors that was not written."""
    return gmlake.fleet.Result("/none").errors().schema


def main(folder, kills="20"):
    os.chdir(folder)
    expected, seconds = undisturbed()
    print(f"ok one process, {len(expected)} files, {seconds:.1f} s", flush=True)
    with ProcessPoolExecutor(2) as pool:
        assert not gmlake.fleet.run("jobs", "pool", engine=pool, shards=5).failed
    check("pool", expected)
    print("ok an Executor", flush=True)
    one_machine(expected, seconds, int(kills))
    on_ray(expected, int(kills))
    examples(expected)


if __name__ == "__main__":
    main(*sys.argv[1:])
