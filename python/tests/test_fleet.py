"""What `gmlake.fleet` does with shards, workers and tables. Plain Python: no test framework, no Ray, no simulator.

In place of `gmlake-sim` stands a script that writes a file for each shard, and dies when it is asked to.
`test_fleet_engines.py` has the real one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gmlake.fleet
from gmlake.fleet import Problem, predictions, process, shard

# Does four parts, or those of a shard; dies in a part as often as the file `deaths` says.
STAND_IN = """#!{python}
import json, os, sys
from pathlib import Path
words = sys.argv[2:]
out = Path(words[words.index("--out") + 1])
index, count = map(int, words[words.index("--shard") + 1].split("/")) if "--shard" in words else (0, 1)
out.mkdir(exist_ok=True)
with open(out.parent / "calls", "a") as calls:
    calls.write(json.dumps(words) + chr(10))
if "bogus" in words:
    sys.exit("gmlake-sim: there is no allocator bogus")
for part in range(index, 4, count):
    deaths = out.parent / f"deaths.{{part}}"
    left = int(deaths.read_text()) if deaths.exists() else 0
    if left:
        deaths.write_text(str(left - 1))
        os.kill(os.getpid(), 9)
    (out / f"part-{{part}}").write_text(f"{{part}}" * 1000)
print(json.dumps(dict(result=dict(recordings=4))))
sys.exit(2 if "damaged" in words else 0)
"""


class Fleet:
    """A folder with a stand-in for the simulator."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.program = self.folder / "stand_in"
        self.program.write_text(STAND_IN.format(python=sys.executable))
        self.program.chmod(0o755)

    def run(self, engine, inputs="jobs", **more):
        return gmlake.fleet.run(inputs, self.folder / "out", engine, simulator=str(self.program), **more)

    def parts(self):
        return {path.name: path.read_text() for path in (self.folder / "out").iterdir()}

    def calls(self):
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def die(self, part, times):
        (self.folder / f"deaths.{part}").write_text(str(times))


def raises(text, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except Problem as problem:
        assert text in str(problem) and "\n" not in str(problem), problem
    else:
        raise AssertionError(f"nothing says {text!r}")


WHOLE = {f"part-{part}": str(part) * 1000 for part in range(4)}


def test_an_import_takes_no_engine_with_it():
    code = "import sys, gmlake, gmlake.fleet; print([n for n in ('ray', 'pyarrow', 'pandas', 'torch') if n in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]", said


def test_the_words_of_a_shard():
    found = shard.words(
        Path("a"), "/out",
        {"allocators": ("caching", "lake"), "settings": {"lake.handle": ["2MiB", "4MiB"]}, "device_memory": "80GiB",
         "steps": True, "manifest": "m.csv"},
    )
    assert found == [
        "a", "--out", "/out", "--manifest", "m.csv", "--allocators", "caching,lake",
        "--set", "lake.handle=2MiB,4MiB", "--set", "device-memory=80GiB", "--steps",
    ]
    assert shard.words(["s3://b/a", "c"], "out", {}) == ["s3://b/a", "c", "--out", os.path.abspath("out")]


def test_an_argument_that_there_is_not_is_an_error():
    for function in [gmlake.fleet.run, gmlake.fleet.sweep, gmlake.fleet.predict]:
        try:
            function("x", {}, sharsd=3)
        except TypeError as error:
            assert "unexpected keyword argument 'sharsd'" in str(error)
        else:
            raise AssertionError(f"{function.__name__} takes anything")


def test_one_machine_is_one_process():
    fleet = Fleet()
    result = fleet.run("local", progress=False)
    assert fleet.parts() == WHOLE and result.failed == {} and result.path == str(fleet.folder / "out")
    (words,) = fleet.calls()
    assert "--shard" not in words and "--quiet" in words and "--jobs" not in words, words
    raises("one machine is one process", fleet.run, "local", shards=2)


def test_an_executor_does_every_shard_once():
    fleet = Fleet()
    with ThreadPoolExecutor(2) as pool:
        result = fleet.run(pool, shards=3)
    assert fleet.parts() == WHOLE and result.failed == {}
    shards = sorted(words[words.index("--shard") + 1] for words in fleet.calls())
    assert shards == ["0/3", "1/3", "2/3"], shards
    fleet = Fleet()
    with ThreadPoolExecutor(2) as pool:
        fleet.run(pool)
    assert len(fleet.calls()) == 8  # four for each worker


def test_files_that_cannot_be_used_are_no_failure():
    fleet = Fleet()
    assert fleet.run("local", inputs=["jobs", "damaged"]).failed == {} and fleet.parts() == WHOLE


def test_a_process_that_was_killed_is_started_again():
    for engine in ["local", ThreadPoolExecutor(2)]:
        fleet = Fleet()
        fleet.die(1, times=2)
        fleet.die(2, times=1)
        assert fleet.run(engine, retries=3).failed == {} and fleet.parts() == WHOLE, engine


def test_shards_that_died_too_often_are_named_and_the_next_call_does_them():
    fleet = Fleet()
    fleet.die(2, times=2)
    with ThreadPoolExecutor(2) as pool, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = fleet.run(pool, shards=4, retries=1)
        assert list(result.failed) == [2] and "killed by SIGKILL" in result.failed[2], result.failed
        assert "1 of 4 shards failed" in str(said[-1].message) and said[-1].filename == __file__, said[-1]
        assert fleet.parts() == {name: text for name, text in WHOLE.items() if name != "part-2"}
        assert fleet.run(pool, shards=4, retries=1).failed == {} and fleet.parts() == WHOLE


def test_what_cannot_be_done_at_all_is_said_in_a_line():
    fleet = Fleet()
    for engine in ["local", ThreadPoolExecutor(2)]:
        raises("there is no allocator bogus", fleet.run, engine, allocators=["bogus"], retries=0)
    raises("expected 'local', 'ray'", fleet.run, "spark")
    raises("out=DIR", gmlake.fleet.run, "jobs", engine="local")
    raises("is not a program", gmlake.fleet.run, "jobs", fleet.folder / "out", "local", simulator="/none")


def test_a_program_ends_with_its_worker():
    code = "from gmlake.fleet import process; process.finish(['/bin/sleep', '61.5'])"
    worker = subprocess.Popen([sys.executable, "-c", code])
    sleeper = waited(lambda: [pid for pid in children(worker.pid) if "sleep" in command(pid)])[0]
    worker.kill()
    worker.wait()
    waited(lambda: "61.5" not in command(sleeper))


def test_an_interrupt_ends_the_program():
    # Where tests run in the background, interrupts are ignored from the start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; from gmlake.fleet import process; process.finish(['/bin/sleep', '62.5'])"
    worker = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    sleeper = waited(lambda: [pid for pid in children(worker.pid) if "sleep" in command(pid)])[0]
    worker.send_signal(2)
    assert worker.wait(10) != 0
    waited(lambda: "62.5" not in command(sleeper))


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def waited(condition):
    """What a condition answers as soon as it is true, within 10 seconds."""
    for _ in range(500):
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about")


def test_what_is_not_installed_is_named():
    hidden = {name: sys.modules.get(name) for name in ["pyarrow", "pyarrow.dataset", "ray", "ray.data"]}
    try:
        sys.modules.update(dict.fromkeys(hidden))
        raises("pip install pyarrow", gmlake.fleet.Result("out").runs)
        raises("pip install 'gmlake[ray]'", gmlake.fleet.Result("out").dataset)
        raises("pip install 'gmlake[ray]'", gmlake.fleet.run, "jobs", "out")
    finally:
        for name, module in hidden.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})


def test_a_grid_has_a_folder_for_each_configuration():
    found = predictions.grid_of({"batch": range(8, 25, 8), "lr": "1e-3"})
    assert found == [{"batch": str(batch), "lr": "1e-3"} for batch in (8, 16, 24)], found
    assert predictions.grid_of({}) == [{}]
    assert predictions.homes_of("/out", found)[0] == "/out/batch=8,lr=1e-3" and predictions.homes_of("/out", [{}]) == ["/out"]
    homes = predictions.homes_of("/out", predictions.grid_of({"data": ["a/b", "a_b"]}))
    assert homes == ["/out/data=a_b", "/out/data=a_b-2"], homes
    raises("given twice", predictions.grid_of, {"data": [8, "8"]})


def test_options_that_no_task_can_have_are_refused():
    for options, text in [(["--vary", "n=1,2"], "--vary does not work in a fleet; use vary={...}"), ("--json=x", "--json")]:
        raises(text, gmlake.fleet.predict, "job.py", out="out", options=options, engine="local")
    raises("out=DIR", gmlake.fleet.predict, "train.py")


def test_all_rows_have_all_columns():
    assert predictions.uniform([{"a": 1}, {"a": 2, "b": 3}]) == [{"a": 1, "b": None}, {"a": 2, "b": 3}]


def test_messages_are_one_line():
    assert process.Ended(1, "", "a\nprogram: b\n").reason("program") == "b"
    assert process.Ended(3, "", "").reason("program") == "exit code 3"


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name, flush=True)


if __name__ == "__main__":
    main()
