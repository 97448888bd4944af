"""What `python -m gmlake guard` says of small scripts. Plain Python: no test framework is needed.

As `test_predict.py`: without a PyTorch wheel for CUDA it tests only what needs none, and says so.
"""

import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from gmlake.guard import baseline, change, command
from gmlake.guard.baseline import Baseline, Rank
from gmlake.predict import answer
from test_predict import raises, run_all

MLP = """
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    net(torch.randn(2048, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_every_command_with_json_is_tried():
    def shown(*words):
        return subprocess.run([sys.executable, "-m", "gmlake", *words, "--help"], capture_output=True, text=True).stdout

    names = re.findall(r"^    ([a-z]+) ", shown(), re.MULTILINE)
    assert {name for name in names if "--json" in shown(name)} == {"predict", "guard", "card"}, names


class Guarded:
    """A folder with a script and its baseline."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, script, *options, environment=()):
        Path(self.folder, "job.py").write_text(script)
        words = [sys.executable, "-m", "gmlake", "guard", "--baseline", "memory.json", *options]
        words += [] if "--recording" in options else ["job.py"]
        own = {**os.environ, **dict(environment)}
        return subprocess.run(words, cwd=self.folder, env=own, capture_output=True, text=True)

    def text(self):
        return Path(self.folder, "memory.json").read_text()


# Without PyTorch.


def test_tolerances():
    assert command.tolerance_of("1%") == (True, 0.01) and command.tolerance_of("64MiB") == (False, 64 << 20)
    assert command.tolerance_of("0") == (False, 0) and command.tolerance_of("64B") == (False, 64)
    raises("--tolerance 64: a size needs a unit; write 64MiB, or 64B for bytes", command.tolerance_of, "64")
    for text in ["", "%", "-1%", "nan%", "inf%", "much"]:
        raises("--tolerance", command.tolerance_of, text)
    for before, after, reply, beyond in [
        (1000, 1010, "1%", False), (1000, 1011, "1%", True), (1000, 900, "0", False), (1000, 1001, "0", True),
        (1000, 1000 + (1 << 20), "1MiB", False), (0, 1, "1%", True),
    ]:
        assert change.is_beyond(before, after, command.tolerance_of(reply)) == beyond, (before, after, reply)


def test_lines_that_moved_are_the_same_lines():
    before = {"a.py:10 f": [10, 1], "a.py:12 f": [20, 2], "b.py:7 g": [3, 1], "gone.py:1 h": [5, 1], "x": [1, 1]}
    after = {"a.py:11 f": [10, 1], "a.py:13 f": [24, 2], "b.py:8 g": [3, 1], "new.py:1 h": [7, 1], "x": [1, 1]}
    found = change.lines(before, after)
    assert [tuple(line) for line in found] == [("new.py:1 h", 0, 7), ("a.py:13 f", 20, 24), ("gone.py:1 h", 5, 0)]
    # Every line moved on to the number of the next; one was put in before them.
    before = {f"a.py:{line} f": [line, 1] for line in range(3, 9)}
    after = {f"a.py:{line + 1} f": [line, 1] for line in range(3, 9)} | {"a.py:3 f": [100, 1]}
    assert [tuple(line) for line in change.lines(before, after)] == [("a.py:3 f", 0, 100)]


def test_growths_add_up():
    before = {"a.py:1 f": [10, 1], "a.py:2 f": [20, 1], "b.py:1 g": [5, 1]}
    after = {"a.py:1 f": [20, 1], "a.py:2 f": [11, 1], "a.py:9 f": [4, 1], "c": [1, 1]}
    whole = sum(row[0] for row in after.values()) - sum(row[0] for row in before.values())
    assert sum(line.after - line.before for line in change.lines(before, after)) == whole


def test_a_baseline_is_read_as_it_was_written():
    found = Baseline({"script": "a.py"}, {}, "line", [Rank(0, 2, 1, {"a.py:1 f": [1, 1]})])
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/memory.json"
        assert baseline.read(path) is None
        baseline.write(path, found)
        assert baseline.read(path) == found and '"a.py:1 f": [1, 1]' in Path(path).read_text()
        assert os.listdir(folder) == ["memory.json"]
        for text in ["", "[]", "{}", "no", '{"schema_version": 1}', '{"schema_version": 1, "source": {}, "ranks": [{}]}']:
            Path(path).write_text(text)
            raises("baseline", baseline.read, path)
        Path(path).write_text(json.dumps(found.to_json() | {"schema_version": 7}))
        raises("--update", baseline.read, path)
    other = replace(found, source={"script": "b.py"})
    raises("script was a.py and is b.py", baseline.check_same, "m.json", found, other)
    baseline.check_source("m.json", found, {"script": os.path.abspath("a.py")})
    raises("module was None and is True", baseline.check_source, "m.json", found, {"script": "./a.py", "module": True})
    raises("m.json is of a run of a script, and this is a recording;", baseline.check_source, "m.json", found, {"recording": "a"})


def test_wrong_usage_is_told_of_in_a_line():
    with tempfile.TemporaryDirectory() as folder:
        guarded = Guarded(folder)
        for options, text in [
            ([], "memory.json: no such file; write it with --update"),
            (["--tolerance", "x"], "invalid --tolerance x; expected a share"),
            (["--update", "--recording", "absent.pickle"], "absent.pickle: no such file"),
            (["--update", "--json", "x.json"], "--json writes a comparison, and --update makes none"),
            (["--update", "--baseline", "job.py"], "--baseline job.py: this command reads the file; choose another name"),
            (["--update", "--baseline", "/proc/x"], "--baseline /proc/x: No such file"),
            (["--json", "memory.json/x"], "--json memory.json/x: its folder does not exist"),
            (["--recording", "absent.pickle", "--steps", "3"], "--steps does not work with --recording"),
            (["--recording", "absent.pickle", "--per-node", "4"], "--per-node does not work with --recording"),
        ]:
            done = guarded.run(MLP, *options)
            assert done.returncode == 2 and text in done.stderr, done.stderr
            assert len(done.stderr.splitlines()) == 1 and not done.stdout, done.stderr
        assert os.listdir(folder) == ["job.py"]
        Path(folder, "mine.txt").write_text("a list")
        done = guarded.run(MLP, "--update", "--baseline", "mine.txt")
        assert done.returncode == 2 and "mine.txt: not a baseline" in done.stderr, done.stderr
        assert Path(folder, "mine.txt").read_text() == "a list"


# With PyTorch.


def test_the_same_program_gives_the_same_file():
    with tempfile.TemporaryDirectory() as folder:
        guarded = Guarded(folder)
        assert guarded.run(MLP, "--update").returncode == 0
        first = guarded.text()
        assert "job.py:6 <module>" in first and folder not in first, first
        done = guarded.run(MLP, "--tolerance", "0")
        assert done.returncode == 0 and "as before" in done.stdout, done.stdout + done.stderr
        done = guarded.run(MLP, "--update", environment={"PYTHONHASHSEED": "7"})
        assert guarded.text() == first, done.stderr


COMPILED = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
compiled = torch.compile(net)
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
for step in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(torch.randn(256, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_what_was_compiled_before_changes_nothing():
    if not importlib.util.find_spec("triton"):
        print("SKIPPED: no Triton: whether a guard depends on what was compiled before was NOT tried")
        return
    with tempfile.TemporaryDirectory() as folder:
        guarded, own = Guarded(folder), {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
        assert guarded.run(COMPILED, "--update", environment=own).returncode == 0
        first = guarded.text()
        assert '"torch.compile:' in first and "torchinductor" not in first, first
        done = guarded.run(COMPILED, "--update", environment=own)
        assert guarded.text() == first and not Path(folder, "cache").exists(), done.stderr


def test_another_run_is_refused_before_it_is_made():
    with tempfile.TemporaryDirectory() as folder:
        guarded = Guarded(folder)
        assert guarded.run(MLP, "--update").returncode == 0
        touch = MLP + "open('ran', 'w')\n"
        for environment in [{"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}]:
            ((name, value),) = environment.items()
            done = guarded.run(touch, environment=environment)
            assert done.returncode == 2 and f"{name} was None and is {value}" in done.stderr, done.stderr
        done = guarded.run(touch, "--steps", "1", environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        assert done.returncode == 2 and not Path(folder, "ran").exists(), done.stderr
        done = guarded.run(MLP, "--recording", "job.py")
        assert done.returncode == 2 and "is of a run of a script, and this is a recording" in done.stderr, done.stderr
        command = [sys.executable, "-m", "gmlake", "guard", "--baseline", "memory.json", "./job.py"]
        assert subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


def test_a_line_that_grew_is_named_first():
    with tempfile.TemporaryDirectory() as folder:
        guarded = Guarded(folder)
        guarded.run(MLP, "--update")
        live = json.loads(guarded.text())["ranks"][0]["live_peak_bytes"]
        for share, code in [(0.9, 0), (1.1, 1)]:
            kept = f"\nkept = torch.empty({int(live * share / 100)}, dtype=torch.uint8, device='cuda')\nfor step"
            done = guarded.run(MLP.replace("\nfor step", kept), "--json", "reply.json")
            whole = json.loads(Path(folder, "reply.json").read_text())
            assert list(whole) == ["schema_version", "tool_version", "command", "result"], list(whole)
            assert whole["command"] == "guard" and whole["schema_version"] == answer.SCHEMA
            reply = whole["result"]["ranks"][0]
            assert reply["lines"][0]["name"] == "job.py:5 <module>", reply
            assert ("live_peak_bytes" in reply["beyond"]) == bool(code), reply
        assert done.returncode == 1 and done.stdout.startswith("job.py:5 <module> made it grow: +"), done.stdout
        done = guarded.run(MLP, "--steps", "2")
        assert done.returncode == 2 and "steps was None and is 2" in done.stderr, done.stderr
        for options, text in [(["--gpus", "4"], "gpus was None and is"), (["--routing", "balanced"], "routing was None and is")]:
            done = guarded.run(MLP, "--steps", "1", *options)
            assert done.returncode == 2 and text in done.stderr, done.stderr
        done = guarded.run(MLP, environment={"PYTORCH_ALLOC_CONF": "max_split_size_mb:32"})
        assert "PYTORCH_ALLOC_CONF was None and is max_split_size_mb:32" in done.stderr, done.stderr
        done = guarded.run(MLP.replace("2048", "1024"))
        assert done.returncode == 0 and "lower the baseline with --update" in done.stderr, done.stderr
        done = guarded.run(MLP.replace("for step", "raise ValueError('no')\nfor step"))
        assert done.returncode == 1 and "the script failed: ValueError: no" in done.stderr, done.stderr


def test_pinned_memory_that_grew_is_named():
    with tempfile.TemporaryDirectory() as folder:
        guarded = Guarded(folder)
        pins = "\nkept = torch.empty({} << 20, dtype=torch.uint8, pin_memory=True)\nfor step"
        guarded.run(MLP.replace("\nfor step", pins.format(12)), "--update")
        assert json.loads(guarded.text())["ranks"][0]["pinned_peak_bytes"] >> 20 == 16, guarded.text()
        done = guarded.run(MLP.replace("\nfor step", pins.format(16)))
        assert done.returncode == 0 and "rank 0 pinned:        16" in done.stdout, done.stdout
        done = guarded.run(MLP.replace("\nfor step", pins.format(17)))
        assert done.returncode == 1 and "pins more host memory" in done.stdout.splitlines()[0], done.stdout
        assert "rank 0 pinned:        16.00 MiB to 32.00 MiB (+16.00 MiB, +100.0%)   more than 1%" in done.stdout, done.stdout
        # A baseline from before this was watched still is one.
        Path(folder, "memory.json").write_text(re.sub(r',\s*"pinned_peak_bytes": \d+', "", guarded.text()))
        done = guarded.run(MLP.replace("\nfor step", pins.format(17)))
        assert done.returncode == 0 and "pinned" not in done.stdout, done.stdout


CHILDREN = """
import multiprocessing, torch
def work(size): torch.empty(size << 20, dtype=torch.uint8, device="cuda")
if __name__ == "__main__":
    children = [multiprocessing.get_context("spawn").Process(target=work, args=(size,)) for size in (100, 200)]
    for child in children: child.start()
    for child in children: child.join()
"""


def test_processes_that_the_script_starts_are_guarded_too():
    with tempfile.TemporaryDirectory() as folder:
        guarded = Guarded(folder)
        done = guarded.run(CHILDREN, "--update")
        assert done.returncode == 0 and "rank 0+2: 200.00 MiB live" in done.stdout, done.stdout + done.stderr
        done = guarded.run(CHILDREN, "--tolerance", "0")
        assert done.returncode == 0 and done.stdout.count("as before") == 4, done.stdout + done.stderr
        done = guarded.run(CHILDREN.replace("200", "300"))
        grown = "rank 0+2 live:          200.00 MiB to 300.00 MiB"
        assert done.returncode == 1 and grown in done.stdout and "job.py:3 work made it grow" in done.stdout, done.stdout
        done = guarded.run(CHILDREN.replace("(100, 200)", "(100,)"))
        assert done.returncode == 2 and "has rank 0+1, rank 0+2 and this run rank 0+1;" in done.stderr, done.stderr
        done = guarded.run(CHILDREN.replace('device="cuda")', 'device="cuda") + [1]'))
        assert done.returncode == 1 and "(SpawnProcess-2): the script failed: TypeError" in done.stderr, done.stderr


def test_what_lines_do_not_explain_is_fragmentation():
    def told(reserved, live, lines):
        now = Rank(0, 1000 + reserved, 500 + live, {})
        return list(command.reasons(command.difference(Rank(0, 1000, 500, {}), now, change.Tolerance(False, 50)), lines))

    line = change.Line("a.py:4 f", 1, 3)
    (little,) = told(400, 2, [line])
    assert little.startswith("Lines explain little of what PyTorch reserves more: the cause is fragmentation"), little
    (none,) = told(400, 0, [])
    assert none.startswith("No line holds more at the peak: the cause is fragmentation"), none
    assert told(400, 40, [change.Line("a.py:4 f", 0, 40)]) == ["a.py:4 f made it grow: +40 B"]
    both = told(4000, 60, [change.Line("a.py:4 f", 0, 60)])
    assert [text.partition(" ")[0] for text in both] == ["a.py:4", "Lines"], both


def test_a_recording_is_guarded_too():
    with tempfile.TemporaryDirectory() as folder:
        guarded = Guarded(folder)
        Path(folder, "job.py").write_text(MLP)
        words = ["-m", "gmlake", "predict", "--stacks", "--events", "early", "--out", "."]
        for batch in ["2048", "4096"]:
            Path(folder, "job.py").write_text(MLP.replace("2048", batch))
            subprocess.run([sys.executable, *words, "job.py"], cwd=folder, check=True, capture_output=True)
            os.rename(f"{folder}/job.pickle", f"{folder}/{batch}.pickle")
        os.rename(f"{folder}/2048.pickle", f"{folder}/run.pickle")
        assert guarded.run(MLP, "--update", "--recording", "run.pickle").returncode == 0
        assert guarded.run(MLP, "--recording", "run.pickle").returncode == 0
        os.rename(f"{folder}/4096.pickle", f"{folder}/run.pickle")
        done = guarded.run(MLP, "--recording", "run.pickle")
        assert done.returncode == 1 and done.stdout.startswith("job.py:6 <module> made it grow"), done.stdout
        whole = pickle.loads(Path(folder, "run.pickle").read_bytes())
        whole["device_traces"][0] = whole["device_traces"][0][-20:]
        Path(folder, "run.pickle").write_bytes(pickle.dumps(whole))
        done = guarded.run(MLP, "--recording", "run.pickle")
        assert done.returncode == 2 and "run.pickle is not the recording of a whole job: " in done.stderr, done.stderr


if __name__ == "__main__":
    run_all(list(globals().items()), "test_the_same_program_gives_the_same_file", "no script was guarded")
