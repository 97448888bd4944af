"""What `python -m gmlake predict` answers for small scripts. Plain Python: no test framework is needed.

It needs a PyTorch wheel for CUDA, `gmlake-sim` and libgmlake_gpu.so, and no GPU. Where one of them
is missing it says so, loudly, and tests only what needs none of them.
"""

import argparse
import functools
import json
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import gmlake
import gmlake.fleet
from gmlake import __main__ as program
from gmlake import _sizes, measure
from gmlake._imports import WhenImported
from gmlake.measure import calls
from gmlake.predict import (
    Problem,
    answer,
    children,
    compiling,
    ends,
    flow,
    grid,
    interval,
    library,
    options,
    order,
    pools,
    pytorch,
    recorder,
    run,
    series,
    simulator,
)
from gmlake.predict.facts import Configuration, Facts, Need, Rank, Share
from gmlake.predict.order import Ranks
from stacks import listed

MLP = """
import argparse, torch
options = argparse.ArgumentParser()
options.add_argument("--batch", type=int, default=64)
options.add_argument("--steps", type=int, default=6)
options.add_argument("--accumulate", type=int, default=1)
given = options.parse_args()
width = 1024
layers = [torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)]
net = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(given.steps):
    for _ in range(given.accumulate):
        net(torch.randn(given.batch, width, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, flush=True)
"""


class Answer:
    """What one call of the command brought."""

    def __init__(self, folder, script, *arguments, environment=()):
        path = Path(folder, "job.py")
        path.write_text(script)
        before = [text for text in arguments if not text.startswith("after:")]
        after = [text.removeprefix("after:") for text in arguments if text.startswith("after:")]
        command = [sys.executable, "-m", "gmlake", "predict", *before, "--json", "job.json", "job.py", *after]
        own = {**os.environ, **dict(environment)}
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        found = Path(folder, "job.json")
        self.json = result(json.loads(found.read_text())) if found.exists() else None

    @property
    def rank(self):
        return self.json["ranks"][0]


def result(content):
    """The result in the JSON of the command, which has the shape of all commands."""
    assert list(content) == ["schema_version", "tool_version", "command", "result"], list(content)
    assert content["command"] == "predict" and content["schema_version"] == answer.SCHEMA
    return content["result"]


def predict(script, *arguments, **more):
    """Predicts a script in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return Answer(folder, script, *arguments, **more)


def raises(text, call, *arguments):
    try:
        call(*arguments)
    except Problem as problem:
        assert text in str(problem) and "\n" not in str(problem), problem
    else:
        raise AssertionError(f"nothing says {text!r}")


# Without PyTorch.


def test_a_pytorch_without_what_is_spared_stays_as_it_is():
    for hook in [compiling._tell_nobody, compiling._break_nothing]:
        module = types.ModuleType("torch.anything")
        before = dict(vars(module))
        hook(module)
        assert vars(module) == before


def test_sizes_are_binary():
    for text, size in {"80GiB": 80 << 30, "80gb": 80 << 30, "1.5g": 3 << 29, "512 MiB": 1 << 29, "7": 7}.items():
        assert order.size(text) == size, text
    assert order.size("unlimited") > 1 << 40
    for text in ["", "much", "0", "1g-", "80 apples"]:
        command = [sys.executable, "-m", "gmlake", "predict", "--memory", text, "job.py"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert f"--memory: {text}: write a size such as 80GiB, or 'unlimited'" in done.stderr, done.stderr


def test_a_size_that_is_rounded_up_carries_to_the_next_unit():
    texts = {1023: "1023 B", (1 << 20) - 6: "1023.99 KiB", (1 << 20) - 5: "1.00 MiB", (1 << 30) - 1: "1.00 GiB"}
    assert {count: _sizes.show(count) for count in texts} == texts


def test_a_wrong_tag_is_told_of():
    for name in [None, "", "a,b", 3]:
        try:
            with gmlake.tag(name):
                raise AssertionError(name)
        except ValueError as error:
            assert f"invalid tag {name!r}" in str(error), error


def test_an_order_travels_as_it_is():
    given = order.Order(
        "a.py", ["--lr", "1e-3"], "H200", None, 2, "table.csv", 3, "ones", "W2", "off", "x:1", False, True, False, True,
        "day.csv", 2.5,
    )
    job = order.Job(given, True, False, "a.pickle", "a.json")
    assert order.Job.from_json(job.to_json()) == job


def test_what_is_compiled_begins_with_nothing_and_is_kept_from_real_gpus():
    with tempfile.TemporaryDirectory() as folder:
        wheel = pytorch.Wheel("2.11.0", "13.0", None)
        first, second = (library.environment(folder, wheel)[library.COMPILED] for _ in range(2))
        assert first != second and Path(first).parent == Path(second).parent == Path(folder), (first, second)
        assert os.listdir(first) == os.listdir(second) == []


def test_an_interval_has_whole_segments_of_which_one_is_the_least():
    mib = 1 << 20
    for best, live, clock, values, low, high in [
        (2 * mib, 1536, [], [], 2, 4), (4 * mib, 1536, [], [], 2, 6), (22 * mib, 13 * mib, [], [], 20, 24),
        (662 * mib, 561 * mib, [], [], 660, 664), (1200 * mib, 561 * mib, [], [], 1196, 1204),
        (10 * mib, 6 * mib, [6], [], 6, 12), (4 * mib, 4 * mib, [], [2], 2, 6), (33 * mib, 1 * mib, [], [], 31, 35),
    ]:
        runs = ([simulator.Peak(each * mib, None) for each in peaks] for peaks in (clock, [], values))
        shares = interval.shares(best, live, Facts(), interval.Peaks(*runs))
        assert interval.ends(best, shares) == (low * mib, high * mib), (best, live, shares)


def test_that_values_decide_is_said_as_surely_as_runs_show_it():
    read = {"count": 1, "bytes": 4, "place": "job.py:4 in <module>", "what": "a value of int32"}
    for below, said in [
        (None, "may decide what is requested here; --values forward"), (8, " decide what is requested here; --values forward"),
        (0, "may decide what is requested; runs with other values reserved as much"),
    ]:
        shares = [] if below is None else [Share("values", below, 0, "")]
        given = argparse.Namespace(script="job.py", arguments=[])
        *_, last = answer.reads_of(Rank(0, None, unknown_reads=[read], interval=shares), order.Order.of(given))
        assert said in last and ("may" in last) == ("may" in said), last


USES = {  # what a script does with a value that it reads, and what that decides
    "print(int(read()))": "", "kept = [read()]\nif kept and len(kept) < 3: pass": "",
    "for step in range(2):\n  if step: print(read())": "", "log = {'loss': read()}\nif 'loss' in log: pass": "",
    "import math\nloss = read()\nif math.isnan(loss): raise SystemExit": "",
    "loss = read()\nif loss < 3: pass": ", compared", "kept = []\nkept.append(read())\nwhile kept[-1] < 0: pass": ", compared",
    "def loss(): return read() / 2\nbest, now = 9, loss()\nbest = min(best, now)\nif best < 3: pass": ", compared",
    "class It:\n  def put(self, value): self.stop = value < 0\nit = It()\nit.put(read())\nif it.stop: pass": ", compared",
    "class Job:\n  def step(self): self.loss = read()\n  def go(self): return self.loss < 3 or [1 for _ in () if self.loss]\n"
    "Job().step()": ", compared",
    "def losses():\n  yield read()\nfor each in losses():\n  if each: pass": ", compared",
    "it = lambda: read()\nassert it() >= 0": ", compared", "is_best = read() < 1\nif is_best: pass": ", compared",
    "loss = read()\nsize = int(loss * 1000)": ", made a whole number",
}


def test_what_a_script_does_with_a_value_is_found_in_its_source():
    with tempfile.TemporaryDirectory() as folder:
        for number, (script, decides) in enumerate(USES.items()):
            path, found = Path(folder, f"{number}.py"), []

            def read(path=path, found=found):
                frames, frame = [], sys._getframe(1)
                while frame is not None:
                    frames += [frame] if frame.f_code.co_filename == str(path) else []
                    frame = frame.f_back
                found.append(flow.use(frames))
                return 0.0

            path.write_text(script)
            exec(compile(script, path, "exec"), {"read": read, "print": str})
            assert set(found) == {decides}, (script, found)


def test_a_loop_until_a_time_is_told_from_one_that_waits_or_logs():
    begin = "import time\nbegin = time.monotonic()\n"
    with tempfile.TemporaryDirectory() as folder:
        for loop, found in [
            ("while time.monotonic() - begin < 2: work()", "job.py:3"), ("while True:\n  if time.time() > begin: log()", None),
            ("while time.time() < begin + 9: time.sleep(1)", None), ("for _ in range(3): print(time.time())", None),
            ("def go():\n  end = time.perf_counter() + 2\n  while not done() and time.perf_counter() < end: work()", "job.py:5"),
        ]:
            Path(folder, "job.py").write_text(begin + loop)
            flow._tree.cache_clear()
            assert flow.timed_loop(f"{folder}/job.py") == found, loop
    assert flow.timed_loop("") is flow.timed_loop("/") is flow.timed_loop("\0") is None


def test_a_card_has_its_name_whatever_the_case():
    cards = ["H100 80GB", "H200"]
    assert options.card("h100-80gb", cards) == "H100 80GB" and options.card("h200", cards) == "H200"
    raises("unknown card; expected one of H100 80GB, H200", options.card, "h2000", cards)


def test_values_are_put_in_or_appended():
    assert grid.arguments(["a", "--b={b}"], {"b": "1", "c": "2"}) == ["a", "--b=1", "--c", "2"]


def test_a_grid_is_every_combination():
    found = grid.configurations(["a=1,2", "b=x,y"])
    assert [series.label(each) for each in found] == ["a=1,b=x", "a=2,b=x", "a=1,b=y", "a=2,b=y"]
    assert grid.configurations([]) == []
    for text in ["a", "a=", "=1", "a=1,1"]:
        raises("--vary", grid.configurations, [text])
    raises("twice", grid.configurations, ["a=1", "a=2"])


def test_every_configuration_has_files_of_its_own():
    points = [{"path": path} for path in ["a/b", "a_b", "a b", "a_b-2", "/" * 300, "ü" * 300]]
    found = series.marks(points)
    assert found[:4] == ["path=a_b", "path=a_b-2", "path=a_b-3", "path=a_b-2-2"], found
    assert len(set(found)) == len(found) and all("/" not in mark and len(mark.encode()) <= 100 for mark in found), found


def test_a_number_is_varied_once():
    for text in ["n=8,8.0", "n=1000,1_000"]:
        raises("the same number", grid.configurations, [text])
    assert len(grid.configurations(["n=8,9", "version=1.1,1.10"])) == 4


def test_a_grid_fails_where_all_run_out_of_memory_or_one_fails_otherwise():
    runs, full, fails = Rank(0, None, requests=1), Rank(0, None, requests=1, oom_step=1), Rank(0, None, requests=1, error="no")
    for ranks, code in [([runs, runs], 0), ([runs, full], 0), ([full, full], 1), ([runs, fails], 1), ([full, fails], 1)]:
        assert grid.code([Configuration({"n": "1"}, [], [rank]) for rank in ranks]) == code, ranks


def test_series_are_by_the_first_number():
    found = grid.configurations(["a=1,2,x", "b=u,v"])
    assert [(each.mark, len(each.members)) for each in series.series_of([Configuration(v, [], []) for v in found])] == [
        (".b=u", 2), (".b=v", 2)
    ]


def test_what_served_a_script_is_told_from_its_entries():
    for counts, allocator in [
        ([{"segment_alloc": 2, "alloc": 3}, {}], "caching"), ([{}, {"segment_map": 2}], "expandable"),
        ([{"segment_map": 2}, {"segment_alloc": 1}], None), ([], "caching"),
    ]:
        assert recorder.allocator_of(map(Counter, counts)) == allocator, counts
    ours = Rank(0, None, allocator="gmlake", requests=1, allocators={"gmlake": Need(5, "T4", "T4"), "lake": Need(5, "L4", "L4")})
    assert answer.cards(ours) == "T4 / L4" and "the script enables gmlake's gmlake" in next(answer.allocator_of(ours))
    members = [Configuration({"n": str(size)}, [], [ours]) for size in (1, 2)]
    (found,) = series.series_of(members)
    assert found.own == "gmlake" and simulator.allocators(found.own)[-1] == "gmlake", found.own


def test_steps_that_end_nothing_are_told_of():
    given = argparse.Namespace(script="job.py", arguments=[])
    plain = order.Order.of(given)
    limited = replace(plain, steps=3)
    none, one, failed = (Rank(0, None, requests=1, **more) for more in ({"steps": 0}, {"steps": 1}, {"error": "ValueError: no"}))
    for ranks, is_told in [([none], True), ([none, none], True), ([none, one], False), ([failed], False)]:
        for notes in answer.notes(ranks, limited), list(answer.shared_notes(ranks, limited)):
            assert any(note.startswith("--steps 3 had no effect") for note in notes) == is_told, (ranks, notes)
    assert not any("--steps" in note for note in answer.notes([none], plain))


def test_ranks_come_from_options_or_torchrun():
    class Given:
        world, ranks, per_node, vary = 4, "3,1", 8, []

    assert options.ranks_of(Given) == Ranks(4, [1, 3], False, False, 8, True)
    Given.ranks = "all"
    assert options.ranks_of(Given) == Ranks(4, [0, 1, 2, 3], True, False, 8, True)
    Given.ranks = "4"
    raises("no rank 4; the last of 4 is 3", options.ranks_of, Given)
    Given.ranks = "\N{SUPERSCRIPT TWO}"
    raises("expected numbers such as 0,1", options.ranks_of, Given)
    Given.world, Given.ranks = None, None
    os.environ.update(RANK="2", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2")
    try:
        assert options.ranks_of(Given) == Ranks(4, [2], False, True, 2, True)
        os.environ["WORLD_SIZE"] = "2"
        raises("RANK=2 and WORLD_SIZE=2 in the environment: there is no such rank", options.ranks_of, Given)
        os.environ["RANK"] = "x"
        raises("RANK=x in the environment: expected a number", options.ranks_of, Given)
    finally:
        for name in ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]:
            del os.environ[name]


def test_a_script_is_told_its_rank_only_if_there_is_a_world():
    for world, reply in [(None, {}), (1, {"RANK": "0", "WORLD_SIZE": "1"})]:
        class Given:
            ranks, per_node, vary = None, 8, []

        Given.world = world
        own = run.rank_environment(options.ranks_of(Given), 0, "clock", run.Meeting())
        assert {name: own[name] for name in own if name in ("RANK", "WORLD_SIZE")} == reply


WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
AGAIN = f"""
import os, signal, sys
from gmlake.predict import again
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(again.finish([sys.executable, "-c", {WAITS!r}], dict(os.environ)))
"""


def started(command, **more):
    """A process that ends by signals, also where whoever runs the tests ignores them (nohup, a shell's background)."""

    def by_default():
        for number in signal.SIGHUP, signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=by_default, **more)


def test_what_ends_run_ends_its_script():
    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        process = started([sys.executable, "-c", AGAIN], stdout=subprocess.PIPE)
        child = int(process.stdout.readline())
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == 128 + number and "subprocess" not in err, (number, process.returncode, err)
        assert not children.is_running(child), number


def test_run_takes_its_allocator_from_conf_too():
    conf = program.settings("allocator=gmlake, fragment_limit = 2MiB")
    assert program.allocator_of(argparse.Namespace(allocator=None, conf=conf)) == "gmlake"
    assert conf == {"fragment_limit": "2MiB"}, conf


def test_the_snapshot_of_run_is_where_it_was_to_be_and_replaces_none_of_a_real_gpu():
    code = "import gmlake, os; from gmlake import __main__ as it; gmlake.snapshot = print; path = os.path.abspath('own.pickle')"
    code += "; os.chdir('/'); it.write_snapshot('own.pickle', path)"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "own.pickle").write_bytes(b"a recording")
        for real, name in [(True, "own.pickle"), (False, "own.predicted.pickle")]:
            own = {**os.environ, **({} if real else {"GMLAKE_GPU_CUDA": "13000"})}
            done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=own, capture_output=True, text=True)
            assert done.stdout == f"{folder}/{name}\n", done
            shown = name if real else f"{folder}/{name}"
            assert done.stderr.splitlines()[-1] == f"gmlake: next: gmlake-sim compare {shown}", done.stderr


def test_an_import_is_noticed_once():
    seen = []
    WhenImported("colorsys", seen.append)
    import colorsys

    assert seen == [colorsys] and colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)


def wheel(text, **more):
    """What is said of a PyTorch with this version.py."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/torch")
        Path(folder, "torch", "__init__.py").touch()
        Path(folder, "torch", "version.py").write_text(text)
        Path(folder, "job.py").touch()
        command = [sys.executable, "-m", "gmlake", "predict", "job.py"]
        own = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]), **more}
        return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)


def test_a_pytorch_that_cannot_be_used_is_told_of_in_a_line():
    for version, text in {
        "__version__, cuda, hip = '2.11.0+cpu', None, None": "2.11.0+cpu was built without CUDA",
        "__version__, cuda, hip = '2.11.0+rocm7.0', None, '7.0'": "is for AMD's GPUs",
        "__version__, cuda, hip = '2.8.0+cu128', '12.8', None": "2.8.0+cu128 is too old",
    }.items():
        done = wheel(version)
        assert done.returncode == 2 and text in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1 and not done.stdout, done.stderr


def test_a_wheel_names_its_cudnn():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/torch-2.14.1.dist-info")
        metadata = Path(folder, "torch-2.14.1.dist-info", "METADATA")
        head = "Metadata-Version: 2.1\nName: torch\nVersion: 2.14.1\n"
        for line, version in [
            ('nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"', 92400),
            ('nvidia-cudnn-cu12 (==9.10.2.21) ; platform_system == "Linux"', 91002),
            ("filelock", None),
        ]:
            metadata.write_text(f"{head}Requires-Dist: nvidia-cublas==13.1.2.3\nRequires-Dist: {line}\n")
            assert pytorch.cudnn(Path(folder)) == version, line


# With PyTorch.

COUNTED = ["reserved_bytes.all.peak", "active_bytes.all.peak", "allocation.all.allocated"]
SAYS = f"""
stats = torch.cuda.memory_stats()
for name in {COUNTED}:
    print(name, stats[name])
torch.cuda.memory._dump_snapshot("own.pickle")
"""


@functools.cache
def small():
    """What several tests look at: the answer for the small script, which in the end says what PyTorch counted and dumps a
    snapshot; and that snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, MLP + SAYS)
        with open(f"{folder}/own.pickle", "rb") as file:
            return found, pickle.load(file)


def test_a_reader_may_go():
    code = "from gmlake import measure; from gmlake.predict import answer; answer.write_json('-', 'predict', {})"
    code += "; measure.write('-', ['a'], []); exit(3)"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (3, "")


def test_the_answer_of_a_small_script():
    found, _ = small()
    assert found.code == 0, found.err
    assert found.out.splitlines()[0].startswith("rank    PyTorch"), found.out
    assert all(len(line) <= 80 for line in found.out.splitlines()), found.out
    assert "step 5" in found.err and "step 5" not in found.out
    rank = found.rank
    assert rank["reserved_peak_bytes"] >= rank["active_peak_bytes"] > 4 * 8 * 1024**2 * 4, rank
    assert rank["reserved_peak_bytes_low"] <= rank["reserved_peak_bytes"] <= rank["reserved_peak_bytes_high"]
    assert rank["steps"] == 6 and rank["oom_step"] is None and rank["error"] is None and rank["requests"] > 50
    assert len(rank["step_seconds"]) == len(rank["step_end_us"]) == 6
    assert 0.01 < rank["host_pace"] < 100
    assert rank["seconds"] > 0 and rank["host_memory_bytes"] > 1 << 20 and rank["snapshot"] is None
    assert set(rank["allocators"]) == {"caching", "expandable", "lake"}
    assert rank["allocators"]["caching"]["reserved_peak_bytes"] == rank["reserved_peak_bytes"]


def test_the_answer_is_that_of_pytorchs_own_counters():
    found, _ = small()
    counted = dict(line.split() for line in found.err.splitlines() if "." in line and len(line.split()) == 2)
    assert int(counted["reserved_bytes.all.peak"]) == found.rank["reserved_peak_bytes"], found.err
    assert int(counted["active_bytes.all.peak"]) == found.rank["active_peak_bytes"]
    assert int(counted["allocation.all.allocated"]) == found.rank["requests"]


def test_a_script_that_records_or_resets_by_itself_changes_nothing():
    records = """
import torch
torch.cuda.memory._record_memory_history(max_entries=10)
"""
    stops = """
torch.cuda.memory._dump_snapshot("own.pickle")
torch.cuda.memory._record_memory_history(enabled=None)
torch.cuda.reset_peak_memory_stats()
torch.cuda.empty_cache()
"""
    plain = small()[0].rank
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, records + MLP + stops)
        with open(f"{folder}/own.pickle", "rb") as file:
            snapshot = pickle.load(file)
        assert len(snapshot["device_traces"][0]) > 100 and snapshot["gmlake_virtual_gpu"], snapshot.keys()
    for name in ["reserved_peak_bytes", "active_peak_bytes", "requests"]:
        assert found.rank[name] == plain[name], name


def test_steps_end_the_script():
    swallows = MLP.replace("    optimizer.step()\n", "    try: optimizer.step()\n    except Exception: pass\n")
    for accumulate in ["1", "3"]:
        found = predict(swallows, "--steps", "2", "after:--steps", "after:50", "after:--accumulate", f"after:{accumulate}")
        assert found.code == 0 and found.rank["steps"] == 2 and found.rank["error"] is None, found.err
        assert "step 0" in found.err and "step 2" not in found.err


def test_steps_end_a_script_that_catches_everything_or_trains_in_a_thread():
    loop = MLP[MLP.index("for step"):]
    tries = loop.replace("    optimizer.step()", "    try: optimizer.step()\n    except: print('caught')")
    thread = "import threading\ndef train():\n" + "".join(f"    {line}\n" for line in loop.splitlines())
    thread += "thread = threading.Thread(target=train)\nthread.start()\nthread.join()\nprint('after')\n"
    # A thread that nobody joins ends the script, though another goes on for ever.
    left = thread.partition("thread.join()")[0] + "threading.Thread(target=threading.Event().wait).start()\n"
    found = predict(MLP.replace(loop, left), "--steps", "2")
    assert found.code == 0 and (found.rank["steps"], found.rank["ended"]) == (2, "finished"), found.err
    # In a thread nothing ends what catches all; that is said.
    both = thread.replace("        optimizer.step()", "        try: optimizer.step()\n        except: pass")
    for other, last, goes_on in [(tries, "step 1\n", False), (thread, "step 0\n", False), (both, "step 5\n", True)]:
        found = predict(MLP.replace(loop, other), "--steps", "2")
        assert found.code == 0 and found.rank["steps"] == 2 and "after" not in found.err.partition("gmlake")[0], found.err
        steps = [line for line in found.err.splitlines(keepends=True) if line.startswith("step")]
        assert steps[-1] == last and "Traceback" not in found.err, found.err
        assert ("a thread of the script has caught its end after --steps 2" in found.err) == goes_on, found.err


def test_optimizers_that_take_turns_make_one_step_a_round():
    turns = """
import torch
nets = [torch.nn.Linear(64, 64).cuda() for _ in range(2)]
optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]
for round in range(9):
    for net, optimizer in zip(nets, optimizers):
        net(torch.ones(1, 64, device="cuda")).sum().backward()
        optimizer.step()
    print("round", round, flush=True)
"""
    found = predict(turns, "--steps", "3")
    assert found.rank["steps"] == 3 and "round 1" in found.err and "round 3" not in found.err, found.err


def test_a_step_takes_as_long_as_its_work():
    products = """
import torch
weight = torch.nn.Parameter(torch.ones(8192, 8192, device="cuda"))
optimizer = torch.optim.SGD([weight], 0.1)
for count in [1, 4, 4, 16]:
    with torch.autocast("cuda", torch.bfloat16):
        for _ in range(count):
            weight @ weight
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
"""
    rank = predict(products).rank
    first, four, again, sixteen = rank["step_seconds"]
    # An H200 takes 1.49 ms for such a product.
    assert 4 * 0.001 < again < 4 * 0.004 and 2 * again < sixteen < 6 * again, rank
    assert first > 0 and four > 0 and rank["step_end_us"] == sorted(rank["step_end_us"]), rank


OOM = """
import torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
kept = []
for step in range(9):
    kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
    net(torch.ones(1, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_out_of_memory_is_an_answer():
    found = predict(OOM, "--memory", "4GiB")
    assert found.code == 1 and found.rank["oom_step"] == 4 and found.rank["steps"] == 3, found.err
    assert "out of memory in step 4" in found.out and "OutOfMemoryError" in found.err
    caught = OOM.replace("    kept.append", "    try: kept.append") + ""
    caught = caught.replace("device=\"cuda\"))\n    net", "device=\"cuda\"))\n    except torch.OutOfMemoryError: pass\n    net")
    found = predict(caught, "--memory", "4GiB")
    assert found.code == 0 and found.rank["oom_step"] == 4 and found.rank["steps"] == 9, found.err
    assert "  ran out in step 4 and went on\n" in found.out and "the script went on, so these numbers are" in found.err, found
    found = predict(OOM, "--memory", "unlimited")
    assert found.code == 0 and found.rank["oom_step"] is None and found.rank["active_peak_bytes"] > 9 << 30


POOL = """
import torch, weakref
pool, weight = torch.cuda.MemPool(), torch.nn.Parameter(torch.ones(1, device="cuda"))
weakref.finalize(weight, print, "the script's last word")
with torch.cuda.use_mem_pool(pool):
    blocks = [torch.empty(1 << 32, dtype=torch.uint8, device="cuda") for _ in range(5)]
del blocks
block = torch.empty(5 << 32, dtype=torch.uint8, device="cuda")
weight.sum().backward()
torch.optim.SGD([weight]).step()
"""


def test_entries_have_the_pool_that_had_their_segment_then():
    events = [("segment_alloc", 0, 10), ("alloc", 4, 2), ("segment_alloc", 20, 10), ("free_completed", 4, 2),
              ("segment_free", 0, 10), ("segment_alloc", 0, 10), ("alloc", 0, 2), ("oom", 40, 2)]
    trace = [{"action": action, "addr": addr, "size": size, "time_us": at} for at, (action, addr, size) in enumerate(events)]
    seen = [pools.Look(3.5, 0, 0, 10, (0, 3)), pools.Look(pools.NEVER, 0, 20, 30, (1, 0))]
    found = list(pools.pools_of(trace, seen))
    assert found == [(0, 3), (0, 3), (1, 0), (0, 3), (0, 3), (0, 0), (0, 0), (0, 0)], found


def test_a_pool_that_the_script_has_at_its_end_counts_for_the_card():
    inside = "def main():" + POOL.replace("\n", "\n    ") + "\nmain()"
    for script, steps in [(POOL, []), (inside, ["--steps", "1"]), (POOL + "del pool", [])]:
        found = predict(script, *steps)
        assert found.code == 0 and found.rank["allocators"]["caching"]["smallest_card"] == "L40S", found.out + found.err
        assert found.err.count("the script's last word") == 1, found.err


EXPANDABLE = """
import torch
def empty(size): return torch.empty(size << 20, dtype=torch.uint8, device="cuda")
kept = [empty(4000) for _ in range(10)]
TOGGLE
del kept
kept = [empty(2000) for _ in range(20)]
del kept[::2]
kept.append(empty(20000))
"""


def test_the_card_for_pytorch_is_that_of_the_scripts_settings():
    settings = "torch._C._accelerator_setAllocatorSettings('expandable_segments:{}')"
    for script, options_, allocator, card in [
        (EXPANDABLE.replace("TOGGLE", ""), ["--conf", "expandable_segments:True"], "expandable", "L40S"),
        (EXPANDABLE.replace("TOGGLE", settings.format(True)), [], None, "unknown"),
        (EXPANDABLE.replace("TOGGLE", ""), [], "caching", "A100 80GB"),
    ]:
        found = predict(script, *options_)
        assert found.rank["allocator"] == allocator and f"  {card} / " in found.out, found.out + found.err
        assert ("not known" in found.err) == (card == "unknown"), found.err


def test_an_exception_has_its_own_traceback_and_what_was_recorded():
    fails = MLP.replace("    optimizer.zero_grad()\n", "    if step == 2: raise ValueError('the third')\n")
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, fails, "--out", "kept")
        with open(f"{folder}/{found.rank['snapshot']}", "rb") as file:
            snapshot = pickle.load(file)
        assert len(snapshot["device_traces"][0]) > 100 and snapshot["gmlake_virtual_gpu"], snapshot.keys()
        assert sorted(os.listdir(f"{folder}/kept")) == ["job.json", "job.pickle"]
    assert found.code == 1 and found.rank["steps"] == 3 and found.rank["reserved_peak_bytes"] > 0
    assert found.rank["allocators"] == {} and "failed in step 4: ValueError" in found.out, found.out
    assert all(len(line) <= 80 for line in found.out.splitlines()), found.out
    lines = found.err.splitlines()
    assert "Traceback (most recent call last):" in lines and "ValueError: the third" in lines, found.err
    assert "runpy" not in found.err and "predict" not in found.err.split("Traceback")[1].split("gmlake:")[0]
    notes = [line for line in lines if line.startswith("gmlake: rank 0: ")]
    assert notes[-1].startswith("gmlake: rank 0: the script failed in step 4: ValueError"), lines


def test_what_the_script_dumps_says_that_its_gpu_is_virtual():
    found, dumped = small()
    assert found.code == 0 and dumped["gmlake_virtual_gpu"], found.err


def test_what_the_script_dumps_replaces_no_recording_of_a_real_gpu():
    dumps = MLP + "torch.cuda.memory._dump_snapshot('own.pickle')\n"
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/own.pickle", "wb") as file:
            pickle.dump({"segments": [], "device_traces": []}, file)
        for _ in range(2):  # its own of the first run may be replaced
            found = Answer(folder, dumps)
            assert found.code == 0, found.err
            told = [line for line in found.err.splitlines() if "own.predicted.pickle" in line]
            assert told == ["gmlake: own.pickle is kept as it was; the script's snapshot is in own.predicted.pickle"]
        with open(f"{folder}/own.pickle", "rb") as file:
            assert "gmlake_virtual_gpu" not in pickle.load(file)
        with open(f"{folder}/own.predicted.pickle", "rb") as file:
            assert pickle.load(file)["gmlake_virtual_gpu"]
        open(f"{folder}/own.pickle", "wb").close()  # one of a temporary file's: nothing is lost
        Answer(folder, dumps)
        with open(f"{folder}/own.pickle", "rb") as file:
            assert pickle.load(file)["gmlake_virtual_gpu"]


READS = """
import sys, torch
lines = [next(sys.stdin), sys.stdin.read()]
x = torch.randn(1 << 20, device="cuda")
assert int(x.sum() > 0) in (0, 1) and lines == ["1\\n", "2\\n"], lines
torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
"""


def test_each_run_of_a_script_has_the_same_standard_input():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.py").write_text(READS)
        Path(folder, "lines").write_text("1\n2\n")
        command = [sys.executable, "-m", "gmlake", "predict", "--json", "job.json"]
        for shell in ["cat lines | {} job.py", "{} job.py < lines", "cat lines | {} --world 2 --ranks 0,1 job.py"]:
            shell = shell.format(" ".join(command))
            done = subprocess.run(shell, shell=True, cwd=folder, capture_output=True, text=True)
            ranks = result(json.loads(Path(folder, "job.json").read_text()))["ranks"]
            assert done.returncode == 0 and all("values" in str(rank["interval"]) for rank in ranks), done.stderr
            assert not any(rank["open_ends"] for rank in ranks), done.stderr
        # Who does not read leaves it to others.
        Path(folder, "job.py").write_text("import torch\ntorch.ones(9, device='cuda')")
        shell = f"cat lines | (while read line; do {' '.join(command)} job.py; echo $line >> found; done)"
        subprocess.run(shell, shell=True, cwd=folder, capture_output=True, check=True)
        assert Path(folder, "found").read_text() == "1\n2\n"
        for name in ("-", "/dev/stdin"):
            done = subprocess.run([*command, name], cwd=folder, input=READS, capture_output=True, text=True)
            said = f"gmlake: {name}: the script may run several times; write it into a file, such as train.py\n"
            assert (done.returncode, done.stderr) == (2, said), done.stderr


def test_a_script_may_go_to_another_folder():
    goes = "import os\nos.mkdir('work')\nos.chdir('work')\n"
    records = "import gmlake\nwith gmlake.record('own.pickle'):\n    os.chdir('..')\n    torch.ones(9, device='cuda')\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shares").write_text("1 3")
        found = Answer(folder, goes + MLP + records, "--out", "kept", "--routing", "shares", "--steps", "9")
        assert found.code == 0 and found.rank["snapshot"] == "kept/job.pickle", found.err
        assert sorted(os.listdir(f"{folder}/kept")) == ["job.json", "job.pickle"]
        assert os.listdir(f"{folder}/work") == ["own.pickle"], os.listdir(folder)


def test_record_replaces_no_recording_of_a_real_gpu():
    records = "import gmlake, torch\nwith gmlake.record('own.pickle'):\n    torch.ones(1 << 20, device='cuda')\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "own.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
        found = Answer(folder, records)
        assert found.code == 0 and "own.pickle is kept as it was" in found.err, found.err
        assert "gmlake_virtual_gpu" not in pickle.loads(Path(folder, "own.pickle").read_bytes())
        assert pickle.loads(Path(folder, "own.predicted.pickle").read_bytes())["gmlake_virtual_gpu"]


def test_record_says_at_once_that_it_cannot_write():
    found = predict("import gmlake\nwith gmlake.record('absent/own.pickle'):\n    print('trained')\n")
    assert found.code == 1 and "trained" not in found.err, found.err
    assert "OSError: gmlake: absent/own.pickle: its folder does not exist" in found.err, found.err


def test_the_end_of_the_terminal_ends_a_prediction():
    starts = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, file=sys.stderr, flush=True)"
    for number in signal.SIGHUP, signal.SIGKILL:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "job.py").write_text(f"import torch\ntorch.ones(9, device='cuda')\n{starts}\n{WAITS}")
            command = [sys.executable, "-m", "gmlake", "predict", "job.py"]
            process = started(command, cwd=folder, env={**os.environ, "TMPDIR": folder})
            others, child = int(process.stderr.readline()), int(process.stderr.readline())
            process.send_signal(number)
            if number == signal.SIGKILL:  # then the script ends alone
                process.wait()
                time.sleep(0.2)
                assert not children.is_running(child) and children.is_running(others)
                os.kill(others, signal.SIGKILL)
                process.stderr.close()
                continue
            process.communicate()
            assert process.returncode == 130 and not children.is_running(child) and not children.is_running(others)
            assert not [name for name in os.listdir(folder) if name.startswith("gmlake-predict")], os.listdir(folder)


def refused(folder, *words, script="print('ran')"):
    """The one line with which a command refuses to run a script."""
    Path(folder, "job.py").write_text(script)
    done = subprocess.run([sys.executable, "-m", "gmlake", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1, (words, done)
    assert Path(folder, "job.py").read_text() == script
    return done.stderr.removeprefix("gmlake: ").strip()


def test_a_size_without_its_unit_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        for words, text in [
            ("--memory 80", "--memory: 80 B is less than any GPU has; write a unit, such as 80GiB"),
            ("--memory 7KiB", "--memory: 7.00 KiB is less than any GPU has; write a unit, such as 80GiB"),
            ("--memory 99999999999999999999GiB",
             "argument --memory: 99999999999999999999GiB: write at most 4096.00 GiB, or 'unlimited'; see"),
            ("--gpus 1000000", "argument --gpus: 1000000: a machine of the virtual GPU has at most 64; see"),
            ("--per-node 65", "argument --per-node: 65: a machine of the virtual GPU has at most 64; see"),
        ]:
            found = refused(folder, "predict", *words.split(), "job.py")
            assert found.startswith(text), (words, found)


def test_files_that_cannot_be_written_are_told_of_before_the_run():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.json").write_text('{"mine": 1}')
        Path(folder, "shares").write_text("1 3")
        for words, text in [
            ("--unknown absent/x.csv", "--unknown absent/x.csv: its folder does not exist"),
            ("--json .", "--json .: it is a folder"),
            ("--json /proc/x.json", "--json /proc/x.json: No such file or directory"),
            ("--json job.py", "--json job.py: this command reads the file; choose another name"),
            ("--routing shares --unknown ./shares", "--unknown ./shares: this command reads the file; choose another name"),
            ("--json x --unknown x", "--json and --unknown write the same file: x"),
            ("--out .", "--out .: ./job.json is not from predict, and would be replaced; choose another folder"),
            ("--out job.json", "--out: job.json: File exists"),
        ]:
            assert refused(folder, "predict", *words.split(), "job.py") == text, words
        assert sorted(os.listdir(folder)) == ["job.json", "job.py", "shares"]


def test_a_file_that_fails_takes_no_table_with_it():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.py").write_text("import torch\ntorch.ones(1 << 20, device='cuda')")
        command = [sys.executable, "-m", "gmlake", "predict", "--json", "/dev/full", "job.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 2 and done.stdout.startswith("rank ") and "--json: /dev/full: No space" in done.stderr, done
        with open("/dev/full", "w") as full:
            done = subprocess.run([*command[:-2], "b.json", "job.py"], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and done.stderr == "gmlake: standard output: No space left on device\n", done
        assert Path(folder, "b.json").exists()


def test_run_says_in_a_line_what_it_cannot_do():
    with tempfile.TemporaryDirectory() as folder:
        for words, text in [
            ("absent.py", "absent.py: no such file"),
            ("-m absent.module", "-m absent.module: no such module"),
            ("--snapshot absent/x.pickle job.py", "--snapshot absent/x.pickle: its folder does not exist"),
            ("--snapshot job.py job.py", "--snapshot job.py: this command reads the file; choose another name"),
            ("--allocator lake --conf allocator=gmlake job.py",
             "--allocator lake and --conf allocator=gmlake are two allocators; leave one of them out"),
        ]:
            assert refused(folder, "run", *words.split()) == text, words


ONE = "import torch\ntorch.ones(1 << 20, device='cuda')\n"


def test_allocators_that_cannot_be_recorded_are_told_of_in_a_line():
    outside = "import torch.cuda.memory as m\nm.change_current_allocator(m.CUDAPluggableAllocator({}, 'free', 'free'))\n"
    for script, words, environment, text in [
        (ONE, ["--conf", "backend:cudaMallocAsync"], {}, "predict cannot record backend:cudaMallocAsync"),
        (ONE, [], {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
        ("import os\nos.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'] = ''\n" + ONE, [], {}, "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
        (outside.format(repr(library.find())) + ONE, [], {}, "an allocator from outside (CUDAPluggableAllocator)"),
    ]:
        found = predict(script, *words, environment=environment)
        (line,) = [line for line in found.err.splitlines() if line.startswith("gmlake: ")]
        assert found.code == 2 and text in line and "Traceback" not in found.err, found.err


def test_gpus_that_the_script_hides_are_missing():
    hides = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
    for value, shown in [("''", "''"), ("'-1'", "-1")]:
        found = predict(hides.replace("''", value) + ONE)
        assert found.code == 1 and found.rank["error"] == "RuntimeError: No CUDA GPUs are available", found.err
        assert f"the script hides every GPU by CUDA_VISIBLE_DEVICES={shown}" in found.err, found.err
    found = predict(hides.replace("''", "'1'") + ONE.replace("torch.ones", "assert torch.cuda.is_available()\ntorch.ones"))
    assert found.rank["error"] == "AssertionError" and "predict one that has more with --gpus 2" in found.err, found.err
    found = predict(hides.replace("''", "'0'") + "import torch\ntorch.cuda.is_available()\n")
    assert "the script requested no GPU memory" in found.err and "CUDA_VISIBLE_DEVICES" not in found.err, found.err
    found = predict(ONE + hides)
    assert found.code == 0 and found.rank["requests"] == 1, found.err


SEES = """\
import os, subprocess, sys
if len(sys.argv) == 1:
    for devices in ["", "2", "3,1"]:
        subprocess.run([sys.executable, __file__, devices], check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": devices})
else:
    import torch
    count = len([text for text in sys.argv[1].split(",") if text])
    assert torch.cuda.is_available() == (count > 0) and torch.cuda.device_count() == torch._C._cuda_getDeviceCount() == count
    for device in range(count):
        torch.ones(1 << 20, device=f"cuda:{device}")
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        assert uuid.endswith(sys.argv[1].split(",")[device]), uuid
"""


def test_a_process_has_the_gpus_that_it_sees_and_pays_for_no_others():
    found = predict(SEES, "--gpus", "4")
    one, two = found.json["ranks"]
    assert (one["gpus"], two["gpus"]) == ([2], [3, 1]), found.err
    assert two["beside_pytorch_bytes"] - one["beside_pytorch_bytes"] == 14 << 20
    assert not [line for line in found.err.splitlines() if "CUDA_VISIBLE_DEVICES" in line], found.err


def test_there_is_nothing_to_watch_on_the_virtual_gpu():
    found = predict("import gmlake\ngmlake.watch()\n" + ONE)
    assert found.code == 0 and found.err.count("there is nothing to watch on the virtual GPU") == 1, found.err


def test_bad_ends_are_told_of_in_a_line():
    for script, code, text in [
        ("import sys; sys.exit(3)", 1, "it ended by sys.exit(3)"),
        ("import os; os._exit(4)", 1, "its process ended early, with exit code 4"),
        ("print('nothing')", 1, "requested no GPU memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 1, "killed by SIGSEGV"),
    ]:
        found = predict(script)
        assert found.code == code and text in found.err.splitlines()[-1], found.err
        assert not found.out, found.out


PINS = """\
import torch
kept = [torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True) for _ in range(24)]
on_gpu = torch.empty(1 << 30, dtype=torch.float16, device="cuda")
for host in kept:
    host.copy_(on_gpu.view(torch.uint8)[: 1 << 30], non_blocking=True)
    on_gpu.view(torch.uint8)[: 1 << 30].copy_(host, non_blocking=True)
del kept[:]
"""


def test_pinned_memory_is_counted_and_costs_nothing():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, PINS, "--world", "12", "--ranks", "0,9", "--events", "clock")
    for rank in found.json["ranks"]:
        assert rank["pinned_peak_bytes"] == 24 << 30 and rank["error"] is None, found.err
        assert rank["host_memory_bytes"] < 2 << 30, rank["host_memory_bytes"]
    assert found.json["nodes"] == [
        {"node": 0, "ranks": 8, "predicted": 1, "pinned_peak_bytes": 8 * 24 << 30},
        {"node": 1, "ranks": 4, "predicted": 1, "pinned_peak_bytes": 4 * 24 << 30},
    ], found.json["nodes"]
    assert "rank 0: pins at most 24.00 GiB of host memory" in found.err and "about 192.00 GiB" in found.err, found.err


OFFLOADED = """\
import torch
weights = torch.empty(1 << 27, device="cuda")
host = weights.cpu()
first, second = torch.zeros_like(host), torch.zeros_like(host)
for _ in range(3):
    gradient = weights.cpu()
    first.lerp_(gradient, 0.1)
    second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
    host.mul_(0.9).addcdiv_(first, (second.sqrt() / 0.5).add_(1e-8), value=-0.1)
    weights.copy_(host)
del gradient, first, second, weights
assert not host.any()

def check(count):
    ones, zeros = torch.ones(count), torch.zeros(count)
    assert (zeros * 0.5 + ones).sum() == count and (zeros / 0).isnan().all() and (zeros * float("nan")).isnan().all()
    assert not ones.clone().zero_().any() and not ones.clone().copy_(zeros).any() and ones.clone().copy_(ones).all()
    assert ones.clone().copy_(torch.tensor(0.5)).sum() == count / 2
    assert (zeros.clone().lerp_(ones, 0.5) == 0.5).all() and (ones.clone().lerp_(zeros, 0.5) == 0.5).all()
    assert (zeros.clone().addcmul_(ones, ones) == 1).all() and (zeros.clone().addcdiv_(zeros, zeros)).isnan().all()
    row, column, halves = torch.zeros(1, count), torch.zeros(2, 1), torch.zeros(2, count)
    assert (row / (column + 1)).shape == (2, count) and (halves / (column + 1)).sum() == 0
    assert (halves * row).shape == (2, count) and (torch.ones(2, count).copy_(row)).sum() == 0
    assert (torch.ones(2, count).lerp_(halves, 0.5) == 0.5).all() and halves.t().add(1).t().copy_(halves).sum() == 0
    mixed = torch.zeros(count)
    mixed[[3, count // 2, -2]] = torch.tensor([4.0, 16.0, 9.0])
    assert mixed.sqrt().sum() == 9 and (mixed / 2).sum() == 14.5 and mixed.clone().mul_(2).sum() == 58
    assert mixed.half().sum() == 29 and ones.clone().copy_(mixed).sum() == 29 and mixed.clone().zero_().sum() == 0
    assert ones.clone().addcdiv_(mixed, ones).sum() == count + 29
    part = ones.clone()
    part[5:-5].zero_()
    assert part.sum() == 10 and part.sqrt().sum() == 10 and (part / 2).sum() == 5

check(1000)
check((1 << 22) + 3)
"""


def test_zeros_of_the_host_take_no_memory_and_arithmetic_stays_right():
    found = predict(OFFLOADED)
    assert found.code == 0 and found.rank["error"] is None, found.err
    assert found.rank["host_memory_bytes"] < 5 << 28, found.rank["host_memory_bytes"]


def test_the_documented_stacks_are_those_that_are_tried():
    documented = (Path(__file__).parents[2] / "docs/predict.md").read_text()
    assert listed.table() in documented, "docs/predict.md: tests/stacks --table prints what it should say"
    assert all(stack.mib and stack.title and "==" in package for stack in listed.all_stacks() for package in stack.packages)


ASSERTS = """\
import torch
for count in [1 << 22, 1 << 23, 3 << 22, 100 << 20]:
    x = torch.empty(count, device="cuda", dtype=torch.bfloat16)
    assert torch.isfinite(x).all() and torch.isfinite(x.view(-1, 8)).all(1).all(), count
    assert not torch.isnan(x).any() and not torch.isinf(x).any(), count
    assert (x >= 0).all() and (~(x > 0)).all() and not (x > 0).all() and not (x != 0).any(), count
    assert torch.isfinite(x.sum())
    mask = torch.isfinite(x)
    mask.fill_(False)
    assert not mask.all(), count
    mask = torch.isfinite(x)
    mask &= False
    assert not mask.all(), count
    del x, mask
    assert not torch.empty(count, device="cuda", dtype=torch.bool).all(), "the next in the same memory"
"""


def test_a_check_of_many_unknown_values_does_not_end_the_script():
    found = predict(ASSERTS)
    assert found.code == 0 and found.rank["error"] is None, found.err
    assert found.rank["host_memory_bytes"] < 1 << 30 and sum(read["count"] for read in found.rank["unknown_reads"]) > 20


def test_a_failed_script_gets_no_recommendation():
    uses = "import torch\nx = torch.ones(1 << 28, device='cuda')\n"
    for end, why in [
        ("raise ValueError('bad data')", "failed in step 1: ValueError"),
        ("import sys; sys.exit(3)", "failed in step 1: sys.exit(3)"),
        ("raise torch.distributed.DistBackendError('a: b')", "failed in step 1: DistBackendError"),
    ]:
        found = predict(uses + end)
        row = found.out.splitlines()[-1]
        assert found.code == 1 and row.endswith(why) and found.rank["allocators"] == {}, found.out
        assert found.rank["reserved_peak_bytes"] == 1 << 30 and len(row) <= 90, row


def test_what_predict_does_not_see_is_named():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cupy.py").write_text("import ctypes\nctypes.CDLL(None).cuGetExportTable()\nraise RuntimeError('801')\n")
        Path(folder, "jax.py").touch()
        try_both = "try: import cupy\nexcept RuntimeError: pass\nimport torch\ntorch.ones(9, device='cuda')"
        copes, fails = Answer(folder, try_both), Answer(folder, "import sys; sys.modules['rmm'] = sys\nimport cupy")
        other = Answer(folder, "import jax")
    for found, who in [(copes, "a library of the script"), (fails, "RAPIDS")]:
        lines = [line for line in found.err.splitlines() if "CUDA runtime linked into it" in line]
        assert len(lines) == 1 and who in lines[0] and "lacks" not in found.err, found.err
    assert copes.code == 0 and copes.rank["allocators"], copes.err
    assert "only PyTorch is predicted; what JAX asks for is not seen" in other.err and other.code == 1, other.err


def test_the_compiler_is_imported_only_by_who_compiles():
    checked = "import sys\nassert torch.is_grad_enabled() and ('torch._dynamo' in sys.modules) == {}\n"
    plain = predict(MLP + checked.format(False))
    compiled = predict(
        MLP.replace("optimizer =", "net = torch.compile(net, backend='eager')\noptimizer =") + checked.format(True)
    )
    assert plain.code == compiled.code == 0, plain.err + compiled.err
    assert plain.rank["allocators"] == compiled.rank["allocators"]


def test_settings_reach_pytorch_and_stacks_the_snapshot():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, MLP, "--out", "kept", "--stacks", "--conf", "expandable_segments:True")
        with open(f"{folder}/kept/job.pickle", "rb") as file:
            snapshot = pickle.load(file)
    assert snapshot["segments"][0]["is_expandable"], found.err
    frames = [frame["filename"] for entry in snapshot["device_traces"][0] for frame in entry["frames"]]
    assert any(name.endswith("job.py") for name in frames)


def test_categories_are_noted():
    script = MLP.replace("    optimizer.zero_grad()\n", "")
    with tempfile.TemporaryDirectory() as folder:
        Answer(folder, script, "--out", "kept", "--stacks", "--categories", "--steps", "3")
        (reply,) = simulator.ask("blame", f"{folder}/kept/job.pickle", "--by", "category")
        bytes_ = {row["name"]: row["bytes"] for row in reply["rows"]}
    whole = 4 * (2 * 1024 * 4096 + 4096 + 1024)
    found = [bytes_.get(name) for name in ["parameters", "gradients", "optimizer state"]]
    assert found == [whole, whole, 2 * whole], bytes_


def test_a_script_notes_categories_by_itself():
    own = "import gmlake\nwith gmlake.record('own.pickle', frames=True, categories=True):\n"
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, own + "".join(f"    {line}\n" for line in MLP.splitlines()), "--stacks")
        assert found.code == 0, found.err
        (reply,) = simulator.ask("blame", f"{folder}/own.pickle", "--by", "category")
        bytes_ = {row["name"]: row["bytes"] for row in reply["rows"]}
    whole = 4 * (2 * 1024 * 4096 + 4096 + 1024)
    assert (bytes_["parameters"], bytes_["optimizer state"]) == (whole, 2 * whole), bytes_


CONVOLUTION = """
import torch
layer = torch.nn.Conv2d(64, {outputs}, 3, padding=1).cuda()
layer(torch.zeros(64, 64, 56, 56, device="cuda")).sum().backward()
"""


def test_a_convolution_that_was_not_measured_is_called_an_estimate():
    known, other = (predict(CONVOLUTION.format(outputs=outputs)) for outputs in (64, 77))
    counts = [each.rank["estimated_workspaces"] for each in (known, other)]
    assert counts == [{}, {"convolutions": 1}], counts
    noted = "workspaces are estimates for convolutions (1), which the interval allows for"
    assert "estimates" not in known.err and noted in other.err, other.err
    elsewhere = predict(CONVOLUTION.format(outputs=64), "--gpu", "a100-80gb")
    assert elsewhere.rank["estimated_workspaces"] == {"convolutions": 1}, elsewhere.err


def test_a_workspace_that_was_measured_takes_the_place_of_an_estimate():
    with tempfile.TemporaryDirectory() as folder:
        listed, table = f"{folder}/layers.csv", f"{folder}/table.csv"
        before = predict(CONVOLUTION.format(outputs=77), "--unknown", listed)
        rows = measure.read(listed)
        assert len(rows) == len(before.rank["estimated"]) > 0, rows
        large = 3 << 30

        def write(card):
            of = {"card": card, "library": "cudnn", "version": 91900, "bytes": large}
            measure.write(table, measure.TABLE, [{**row, **of} for row in rows])

        write("NVIDIA H200")
        known = predict(CONVOLUTION.format(outputs=77), "--workspaces", table)
        assert known.rank["estimated_workspaces"] == {} and "estimates" not in known.err, known.err
        assert known.rank["reserved_peak_bytes"] >= large > before.rank["reserved_peak_bytes"], known.rank
        write("another")
        other = predict(CONVOLUTION.format(outputs=77), "--workspaces", table)
        assert f"ignored {len(rows)} lines of --workspaces: they are for another card" in other.err, other.err
        assert other.rank["reserved_peak_bytes"] == before.rank["reserved_peak_bytes"]


OF_EVERY_KIND = """
import torch
linalg, eye = torch.linalg, torch.eye(64, device="cuda")
torch.fft.rfft(torch.zeros(64, 44100, device="cuda"))
torch.fft.fftn(torch.zeros(4, 60, 70000, device="cuda"), dim=(1, 2))
for run in linalg.cholesky, linalg.inv, linalg.qr, linalg.eigh, linalg.svdvals, linalg.ldl_factor:
    run(eye)
linalg.eigh(torch.eye(600, device="cuda"))
linalg.svd(eye, driver="gesvda")
sparse, dense = torch.eye(100).to_sparse_csr().cuda(), torch.zeros(100, 32, device="cuda")
sparse @ dense, sparse @ dense[:, 0].contiguous(), sparse + sparse
torch.sparse.mm(torch.eye(100).to_sparse().cuda(), dense)
torch.sparse.sampled_addmm(sparse, dense, dense.t())
for steps in 10, 500:
    network = torch.nn.LSTM(16, 512, 2, dropout=0.1).cuda()
    network(torch.zeros(steps, 4, 16, device="cuda"))[0].sum().backward()
lengths = torch.tensor([7, 5, 2])
packed = torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(7, 3, 16, device="cuda"), lengths)
torch.nn.GRU(16, 32, bidirectional=True).cuda()(packed)
scores = torch.zeros(50, 4, 20, device="cuda").log_softmax(2)
torch._cudnn_ctc_loss(scores, torch.ones(37, dtype=torch.int32), [50] * 4, [10, 10, 9, 8], 0, False, False)
x = torch.zeros(4, 16, 8, 8, device="cuda", requires_grad=True).to(memory_format=torch.channels_last)
torch.nn.BatchNorm2d(16).cuda()(x).sum().backward()
torch.nn.Conv1d(16, 33, 5).cuda()(torch.zeros(2, 16, 777, device="cuda")).sum().backward()
"""


def test_every_kind_is_listed_measured_and_then_known():
    """On the virtual GPU the libraries answer by our rules, so a table measured there changes nothing but what is known."""
    with tempfile.TemporaryDirectory() as folder:
        listed, table, after = (f"{folder}/{name}.csv" for name in ("listed", "table", "after"))
        before = predict(OF_EVERY_KIND, "--unknown", listed)
        kinds = {row["kind"] for row in measure.read(listed)}
        assert kinds == set(measure.KINDS), kinds ^ set(measure.KINDS)
        shares = {share["source"]: share["why"] for share in before.rank["interval"]}
        for what in "recurrent layers", "Fourier transforms", "decompositions", "sparse matrices", "convolutions":
            assert what in before.rank["estimated_workspaces"] and what in shares["workspaces"], (what, shares)

        os.mkdir(f"{folder}/links")
        library.links(library.find(), f"{folder}/links")
        virtual = library.environment(f"{folder}/links", pytorch.versions(), card="h200")
        command = [sys.executable, "-m", "gmlake", "measure", listed, "--out", table]
        done = subprocess.run(command, capture_output=True, text=True, env=virtual)
        count = len(measure.read(listed))
        assert done.stderr == f"gmlake: {count} of {count} operations measured\n", done.stderr
        known = predict(OF_EVERY_KIND, "--workspaces", table, "--unknown", after)
        assert measure.read(after) == [] and known.rank["estimated_workspaces"] == {}, known.err
        assert known.rank["reserved_peak_bytes"] == before.rank["reserved_peak_bytes"]

        # Every kind takes what the table says: each another size, that nothing else has.
        size = {kind: (3 << 30) + (place << 20) for place, kind in enumerate(measure.KINDS)}
        rows = [dict(row, bytes=size[row["kind"]]) for row in measure.read(table, measure.TABLE)]
        measure.write(table, measure.TABLE, rows)
        changed = Answer(folder, OF_EVERY_KIND, "--workspaces", table, "--memory", "unlimited", "--out", "kept")
        with open(f"{folder}/kept/job.pickle", "rb") as file:
            requested = {entry["size"] for entry in pickle.load(file)["device_traces"][0] if entry["action"] == "alloc"}
        assert set(size.values()) <= requested, {kind for kind in size if size[kind] not in requested}
        assert changed.rank["reserved_peak_bytes"] >= 3 << 30, changed.err


def test_lengths_have_their_sum_and_their_maximum():
    for whole, longest, count in (37, 10, 4), (7, 7, 1), (40, 10, 4), (11, 10, 2):
        found = calls.lengths(whole, longest, count)
        assert (sum(found), max(found), found[0], len(found)) == (whole, longest, longest, count), found


def test_what_is_no_table_of_workspaces_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        table = f"{folder}/table.csv"
        Path(table).write_text("a,b\n1,2\n")
        refused = predict("pass", "--workspaces", table)
        assert refused.code == 2 and "no column 'card'" in refused.err, refused.err


def test_estimates_widen_the_interval_and_measurements_narrow_it():
    script = CONVOLUTION.format(outputs=77)
    with tempfile.TemporaryDirectory() as folder:
        listed, table = f"{folder}/layers.csv", f"{folder}/table.csv"
        estimated = predict(script, "--unknown", listed).rank
        rows = measure.read(listed)
        of = {"card": "NVIDIA H200", "library": "cudnn", "version": 91900, "bytes": 0}
        measure.write(table, measure.TABLE, [{**row, **of} for row in rows])
        measured = predict(script, "--workspaces", table).rank
    shares = {share["source"]: share for share in estimated["interval"]}
    assert shares["workspaces"]["above"] > 0 and "convolutions" in shares["workspaces"]["why"], shares
    # All the more bytes that the ends may have come from workspaces that were drawn: at most two at a time.
    assert shares["workspaces"]["above"] < 6 * 64 * 77 * 56 * 56 * 4, shares
    assert [share["source"] for share in measured["interval"]] == ["unexplained"], measured["interval"]
    low, high = measured["reserved_peak_bytes_low"], measured["reserved_peak_bytes_high"]
    assert low < measured["reserved_peak_bytes"] < high < estimated["reserved_peak_bytes_high"], measured


DECIDED = """
import torch
x = torch.randn(1 << 22, device="cuda")
kept = x[x > 0]
twice = torch.cat([kept] * 40)
"""


def test_values_that_decide_a_size_widen_the_interval_and_name_the_line():
    for script in (DECIDED, DECIDED.replace("1 << 22", "9 << 20")):  # few enough to be assumed one by one, and too many
        found = predict(script)
        (share,) = [share for share in found.rank["interval"] if share["source"] == "values"]
        # Zeros are none of them, and of random numbers it is every second.
        assert share["above"] > 40 * (1 << 21) * 4 * 0.99, share
        assert "job.py:4" in share["why"] and "job.py:4" in found.err, found.err
        assert found.rank["unbounded"] == [], found.rank
    alone = predict(DECIDED, "--events", "clock")
    assert alone.rank["unbounded"] == ["values"] and "no run bounds values" in alone.err, alone.err
    blind = predict(DECIDED, "--values", "off", "--assume", "random")
    assert blind.rank["unbounded"] == ["values"] and blind.rank["unknown_reads"] is blind.rank["assume"] is None, blind.rank
    assert "with --values off nothing is known of the values" in blind.err and "no run bounds" not in blind.err, blind.err


UNTIL = """
import torch
kept = []
for _ in range(20):
    kept.append(torch.randn(1 << 24, device="cuda"))
    error = kept[-1].mean()
    {read}
"""


def test_where_values_end_a_loop_runs_with_others_are_no_ends():
    for read in ("if error.item() <= 0: break", "error = float(error)\n    if error <= 0: break"):
        rank, said = (found := predict(UNTIL.format(read=read))).rank, found.err
        (share,) = [share for share in rank["interval"] if share["source"] == "values"]
        assert share["above"] >= 18 << 26 and rank["unbounded"] == ["values"], rank
        assert "job.py:7 in <module> (a value of float32, compared) decides how the script goes on" in said, said
    rank = predict(UNTIL.format(read="print(error.item())")).rank
    assert [share["source"] for share in rank["interval"]] == ["unexplained"] and not rank["unbounded"], rank


def test_no_run_bounds_a_loop_until_a_time():
    loop = "kept = []\nwhile time.time() - begin < 0.2: kept.append(torch.empty(1 << 20, device='cuda'))"
    found = predict(f"import time, torch\nbegin = time.time()\n{loop}")
    assert found.rank["unbounded"] == ["clock"] and found.rank["timed_loop"] == "job.py:4", found.rank
    assert "job.py:4 loops until a time has gone by" in found.err and "no run bounds" not in found.err, found.err


CAUGHT = """
import torch
torch.cuda.set_per_process_memory_fraction(0.01)
net = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
batch, done = 1 << 16, 0
while done < 3:
    try:
        net(torch.randn(batch, 2048, device="cuda")).sum().backward()
        done += 1
    except torch.OutOfMemoryError:
        batch //= 2
"""


def test_a_script_that_catches_its_out_of_memory_has_an_interval():
    rank = predict(CAUGHT).rank
    assert rank["error"] is None and rank["oom_step"] == 1, rank
    assert [share["source"] for share in rank["interval"]] == ["clock", "unexplained"], rank
    assert rank["reserved_peak_bytes_low"] <= rank["reserved_peak_bytes"] < rank["reserved_peak_bytes_high"], rank
    assert not rank["unbounded"], rank


def test_after_memory_ran_out_no_run_bounds_estimated_workspaces():
    convolved = CAUGHT.replace("(batch, 2048, device", "(batch // 64, 3, 64, 64, device").replace("net(", "net(seen(")
    convolved = convolved.replace('="cuda")).sum()', '="cuda")).flatten(2).mean(2)[:, :1].expand(-1, 2048)).sum()')
    seen = "seen = torch.nn.Conv2d(3, 97, 5, padding=2).cuda()\nbatch, done"
    found = predict(convolved.replace("batch, done", seen, 1))
    rank = found.rank
    assert rank["error"] is None and rank["oom_step"] == 1 and rank["estimated_workspaces"], (rank, found.err)
    assert rank["unbounded"] == ["workspaces"], rank
    assert "memory ran out, and no run bounds workspaces after that" in found.err, found.err


def test_few_drawings_show_both_kinds_of_luck_of_each_family():
    guesses = [["convolutions", 1 << 20, 0, 1 << 30, 20, 15, family % 9] for family in range(18)]
    for seed in range(20):
        drawings = ends.drawn(random.Random(seed), guesses)
        assert len(drawings) == ends.DRAWINGS and all(sizes[:9] == sizes[9:] for sizes in drawings)
        for sizes in zip(*drawings):
            assert min(sizes) < 1 << 20 < max(sizes) and sizes.count(1 << 20) >= 8, sizes


def test_no_interval_without_a_source_of_doubt_goes_below_what_is_live():
    rank = predict("import torch\nx = torch.empty(1 << 20, dtype=torch.uint8, device='cuda')").rank
    low, high = rank["reserved_peak_bytes_low"], rank["reserved_peak_bytes_high"]
    assert rank["active_peak_bytes"] == 1 << 20 and (low, high) == (2 << 20, 4 << 20), rank


READ = """
import io, torch
x = torch.nn.Linear(1000, 1000).cuda()(torch.rand(1, 1000, device="cuda")).detach().flatten().sigmoid()
def empty(size): return torch.empty(size << 20, dtype=torch.uint8, device="cuda")
"""


def test_what_the_host_counts_and_indices_decide_and_what_is_saved_does_not():
    for line, low, high, decides in [
        ("c = x.cpu(); y = empty(len(c[c > 0.5]))", 0, 1000, True),
        ("c = x.cpu(); y = empty(len(torch.masked_select(c, c > 0.5)))", 0, 1000, True),
        ("y = empty(int(x.argmax()))", 0, 999, True), ("y = empty(int(x.argmin()))", 0, 999, True),
        ("c = x.cpu(); y = empty(len(torch.ones(7).nonzero()))", 7, 7, False),
        ("torch.save({'x': x}, io.BytesIO())", 0, 0, False),
    ]:
        found = predict(READ + line)
        rank, sources = found.rank, [share["source"] for share in found.rank["interval"]]
        below, above = rank["reserved_peak_bytes_low"] >> 20, rank["reserved_peak_bytes_high"] >> 20
        assert ("values" in sources) == decides == ("decide what is requested" in found.err), (line, found.err)
        assert below <= low + 60 and above >= high and (decides or above < 70), (line, below, above)


def test_the_card_for_the_upper_end_is_named_too():
    script = "import torch\nx = torch.randn(1 << 22, device='cuda')\n"
    script += "if not torch.allclose(x, x): x = torch.empty(15 << 30, device='cuda')"
    found = predict(script)
    need = found.rank["allocators"]["caching"]
    assert (need["smallest_card"], need["smallest_card_high"]) == ("T4", "A100 80GB"), need
    assert found.out.splitlines()[-1].endswith("T4 to A100 80GB / T4 to A100 80GB"), found.out


def test_what_the_host_computes_is_no_surer_than_what_it_computes_is():
    """A GPU rounds otherwise: the interval is that of the integers alone, around a better guess."""
    product = "(torch.randn(2048, 64).cuda() @ torch.randn(64, 2048).cuda()).flatten()"
    script = DECIDED.replace('torch.randn(1 << 22, device="cuda")', product)
    guessed, computed = predict(script).rank, predict(script, "--values", "forward")
    assert not computed.rank["unknown_reads"] and not guessed["computed_reads"], computed.rank
    assert [read["place"] for read in computed.rank["computed_reads"]] == ["job.py:4 in <module>"], computed.rank
    assert computed.rank["reserved_peak_bytes"] > guessed["reserved_peak_bytes"], computed.rank
    for rank in (guessed, computed.rank):
        assert rank["reserved_peak_bytes_low"] < guessed["reserved_peak_bytes"], rank
        assert rank["reserved_peak_bytes_high"] > computed.rank["reserved_peak_bytes"], rank
    said = "values that this machine computed decide what is requested, most at job.py:4"
    assert said in computed.err and "as wide as without them" in computed.err, computed.err


ROUTED = """
import torch
tokens, experts = 4096, 16
weight = torch.nn.Parameter(torch.ones(1, device="cuda"))
optimizer = torch.optim.SGD([weight], 0.1)
for step in range(8):
    scores = torch.randn(tokens, experts, device="cuda") @ torch.randn(experts, experts, device="cuda")
    counts = torch.bincount(scores.topk(2).indices.flatten(), minlength=experts).tolist()
    print("counts", *counts, flush=True)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
"""


def test_tokens_choose_experts_as_the_scenario_says():
    """Every scenario is tried in `test_values.py`."""
    def counts(*options):
        found = predict(ROUTED, *options)
        assert found.code == 0, found.err
        lines = [line.split()[1:] for line in found.err.splitlines() if line.startswith("counts")]
        return [[int(word) for word in line] for line in lines]

    # The runs that bound the answer print nothing, so that one with them is enough.
    assert counts("--routing", "balanced", "--events", "interval") == [[512] * 16] * 8
    rotating = counts("--routing", "W6_rotating_hotspot", "--events", "clock")
    assert [line.index(max(line)) // 4 for line in rotating[::3]] == [0, 1, 2], rotating


def test_a_wrong_scenario_is_refused_in_a_line():
    for scenario in ["skew:0", "skew:x", "W8", "no/such/file"]:
        refused = predict(ROUTED, "--routing", scenario)
        assert refused.code == 2 and f"--routing {scenario}" in refused.err, refused.err


CHILDREN = """
import multiprocessing, os, subprocess, sys
import torch
import torch.multiprocessing as mp
SIZE = 64 << 20
def work(rank, world):
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=world
    )
    block = torch.ones((rank + 1) * SIZE, device="cuda", dtype=torch.uint8)
    torch.distributed.all_reduce(block)
def forked():
    torch.ones(5 * SIZE, device="cuda", dtype=torch.uint8)
if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
    start = f"import torch; x = torch.ones({{}} * {SIZE}, device='cuda', dtype=torch.uint8); print(1, flush=True);"
    subprocess.run([sys.executable, "-c", start.format(3)], check=True)
    command = [sys.executable, "-c", start.format(4) + "import time; time.sleep(600)"]
    subprocess.Popen(command, stdout=subprocess.PIPE).stdout.readline()
    child = multiprocessing.get_context("fork").Process(target=forked)
    child.start()
    child.join()
    rows = torch.utils.data.DataLoader(range(4), num_workers=2, multiprocessing_context="spawn")
    assert len(list(rows)) == 4
"""


def test_processes_that_the_script_starts_are_predicted_too():
    found = predict(CHILDREN, "--gpus", "2")
    assert found.code == 0, found.err
    ranks = found.json["ranks"]
    assert [rank["process"] for rank in ranks] == [1, 2, 3, 4, 5], found.err
    sizes = sorted(rank["active_peak_bytes"] >> 26 for rank in ranks)
    assert sizes == [1, 2, 3, 4, 5] and all(rank["allocators"] for rank in ranks), sizes
    assert found.out.count("0+") == 5 and "(ForkProcess-" in found.err, found.out + found.err


FAILING = """
import multiprocessing, subprocess, sys, torch
def work(end):
    torch.ones(1 << 26, dtype=torch.uint8, device="cuda")
    exec(end)
if __name__ == "__main__":
    for end in ["pass", "raise ValueError('bad')", "sys.exit(3)"]:
        child = multiprocessing.get_context("spawn").Process(target=work, args=(end,))
        child.start()
        child.join()
        subprocess.run([sys.executable, "-c", f"import sys, job; job.work({end!r})"])
"""


def test_a_process_of_the_script_that_fails_gets_no_recommendation():
    found = predict(FAILING, environment={"PYTHONPATH": os.pathsep.join([".", os.environ.get("PYTHONPATH", "")])})
    ends = sorted(str(rank["error"]) for rank in found.json["ranks"])
    assert ends == ["None"] * 2 + ["ValueError: bad"] * 2 + ["it ended by sys.exit(3)"] * 2, ends
    assert found.code == 1 and found.out.count("failed in step 1: ValueError") == 2, found.out
    assert all(bool(rank["allocators"]) == (rank["error"] is None) for rank in found.json["ranks"]), found.out


FOR_ANOTHER = """
import time, torch, torch.multiprocessing as mp
def work(rank):
    x = torch.empty(1 << 26, dtype=torch.uint8, device="cuda")
    while rank: time.sleep(1)
    torch.cuda.set_per_process_memory_fraction(0.01)
    try: torch.empty(1 << 40, device="cuda")
    except torch.OutOfMemoryError: pass
    time.sleep(2)
    raise ValueError("unrelated")
if __name__ == "__main__": mp.spawn(work, nprocs=2)
"""


def test_a_process_that_ends_for_another_has_no_card_and_memory_is_blamed_for_its_own_failures():
    found = predict(FOR_ANOTHER)
    one, other = sorted(found.json["ranks"][1:], key=lambda rank: rank["ended"])
    assert (one["error"], one["oom_step"], other["ended"]) == ("ValueError: unrelated", 1, "terminated"), found.err
    assert other["error"].startswith("it was ended by SIGTERM") and one["allocators"] == other["allocators"] == {}, other
    assert "failed in step 1: ValueError" in found.out and "failed in step 1: ended by SIGTERM" in found.out, found.out
    first = "ProcessRaisedException: -- Process 0 terminated with the following error"
    assert found.code == 1 and found.rank["error"].endswith(first) and "memory ran out;" not in found.err, found.err


LATE = """
import atexit, os, sys, threading, time, torch, torch.multiprocessing as mp
kept = []
def take(mib): kept.append(torch.empty(mib << 20, dtype=torch.uint8, device="cuda"))
def late(mib):
    take(mib)
    time.sleep(1)
    take(mib)
def work(): threading.Thread(target=late, args=(64,)).start()
if __name__ == "__main__":
    if not os.fork():
        take(32)
        os._exit(0)
    atexit.register(take, 50)
    atexit.register(lambda: print("as", sys.modules["__main__"].late.__name__, file=sys.stderr))
    threading.Thread(target=late, args=(100,)).start()
    mp.get_context("spawn").Process(target=work).start()
    sys.stdout.close()
    sys.exit(0)
"""

REPLACED = """
import os, sys
if "AGAIN" not in os.environ: os.execvpe(sys.executable, [sys.executable, *sys.argv], {**os.environ, "AGAIN": "yes"})
import torch
torch.ones(9, device="cuda")
os._exit(3)
"""


def test_what_python_waits_for_at_its_end_is_in_the_answer():
    found = predict(LATE)
    sizes = sorted(rank["active_peak_bytes"] >> 20 for rank in found.json["ranks"])
    assert found.code == 0 and sizes == [32, 128, 250] and "as late\n" in found.err, (sizes, found.err)
    found = predict(REPLACED)
    assert found.code == 1 and found.out.endswith("failed in step 1: exit code 3\n"), found.out + found.err


SHARING = """
import torch, torch.multiprocessing as mp
def work(barrier):
    x = torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    if barrier: barrier.wait()
if __name__ == "__main__":
    spawn = mp.get_context("spawn")
    barrier = spawn.Barrier(2)
    children = [spawn.Process(target=work, args=(BARRIER,)) for _ in range(2)]
    for child in children:
        child.start()
        if not BARRIER: child.join()
    for child in children: child.join()
"""


def test_a_grid_says_where_processes_share_a_gpu():
    use = {"requests": 1, "gpus": [0], "gpu_use_s": [1, 9], "reserved_peak_bytes": 1}
    one, other = (Rank(0, None, process, **use) for process in (1, 2))
    ranks = Ranks(1, [0], False, False, 8, False)
    (note,) = grid.sharers([Configuration({"n": "1"}, [], [one]), Configuration({"n": "2"}, [], [one, other])], ranks)
    assert note.startswith("n=2: processes share a GPU"), note


def test_needs_of_processes_on_one_gpu_at_a_time_add_up():
    found = predict(SHARING.replace("BARRIER", "barrier"))
    (shared,) = found.json["shared_gpus"]
    assert (shared["gpu"], shared["processes"], shared["smallest_card"]) == (0, ["0+1", "0+2"], "A100 80GB"), shared
    assert shared["reserved_peak_bytes"] == 60 << 30, shared
    assert "ranks 0+1, 0+2 share GPU 0 of node 0: at most 60.00 GiB" in found.err, found.err
    found = predict(SHARING.replace("BARRIER", "None"))
    assert found.json["shared_gpus"] == [] and found.out.count("RTX 5090 / RTX 5090") == 2, found.out + found.err


def test_steps_end_a_child_of_the_script_too():
    wrapped = MLP.replace("\n", "\n    ").replace("options = argparse", "import sys; sys.argv = ['job']\n    options = argparse")
    spawns = f"import torch.multiprocessing as mp\ndef work(rank):{wrapped}\nif __name__ == '__main__': mp.spawn(work)\n"
    found = predict(spawns, "--steps", "2")
    assert found.code == 0 and found.rank["process"] == 1 and found.rank["steps"] == 2, found.err


SHARED_HEADS = """
import torch
import torch.nn.functional as F
def part(heads):
    return torch.empty(1, heads, 16384, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
shared = {shared}
query, key, value = part(32), part(shared), part(shared)
out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=shared < 32)
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
out.backward(torch.empty_like(out))
print("sizes", *sorted(
    entry["size"] for entry in torch.cuda.memory._snapshot()["device_traces"][0] if entry["action"] == "alloc"
)[-2:])
"""


ATTENTION = """
import torch
whole, k, v = (torch.zeros(4, 16, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
mask = torch.zeros(1, 1, 1024, 1024, device="cuda", dtype=torch.bfloat16)
for count, masked, causal in [(1024, 0, 0), (1024, 0, 1), (1, 0, 0), (2, 1, 0), (1, 1, 0)]:
    q, bias = whole[:, :, :count], mask[:, :, :count] if masked else None
    torch.cuda.reset_peak_memory_stats()
    out = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, 0.0, bool(causal), False)
    stats = torch.cuda.memory_stats()
    print("momentary", stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"])
    del out
"""


def test_attention_takes_as_much_with_a_mask_as_without_but_for_one_query():
    found = predict(ATTENTION)
    assert re.findall(r"momentary (\d+)\n", found.err) == ["256"] * 4 + ["0"], found.err  # as on an H100


def test_heads_that_share_keys_need_more_workspace_backwards():
    def workspace(shared):
        found = predict(SHARED_HEADS.format(shared=shared))
        assert found.code == 0, found.err
        (line,) = [line for line in found.err.splitlines() if line.startswith("sizes")]
        return int(line.split()[-1])

    # An H100 was asked for 270,532,864 bytes with 8 heads of keys, by an unchanged PyTorch 2.11.
    assert workspace(8) == 270_532_864
    assert workspace(32) == 270_532_864 - 2 * 32 * 16384 * 64 * 2


def test_a_grid_has_a_row_for_each_configuration_and_for_each_card():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, MLP, "--out", "kept", "--steps", "2", "--vary", "batch=64,4096,none")
        files = sorted(os.listdir(f"{folder}/kept"))
    assert found.code == 1, found.err
    first, second, failed = found.json["configurations"]
    held = [each["ranks"][0]["reserved_peak_bytes"] for each in (first, second)]
    assert held[0] < held[1] and failed["ranks"][0]["error"], held
    assert "job.batch=64.pickle" in files and "job.json" in files and "job.svg" in files, files
    lines = found.out.splitlines()
    assert any(line.strip().startswith("none ") and "sys.exit(2)" in line for line in lines), found.out
    assert any(line.split()[:2] == ["H200", "4096+"] for line in lines), found.out
    assert all(len(line) <= 80 for line in lines), found.out
    (reply,) = found.json["series"]
    assert reply["quantity"] == "batch" and reply["values"] == [64, 4096]


PATHS = """
import sys, torch
count, path = int(sys.argv[2]), sys.argv[4]
torch.empty((count * (30 if path == "m/x" else 5000)) << 20, dtype=torch.uint8, device="cuda")
"""


def test_values_that_differ_in_punctuation_share_no_files():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, PATHS, "--out", "kept", "--vary", "n=1,1_0", "--vary", "path=m/x,m x")
        files = set(os.listdir(f"{folder}/kept"))
    assert found.code == 0, found.err
    assert [each["ranks"][0]["active_peak_bytes"] >> 20 for each in found.json["configurations"]] == [30, 300, 5000, 50000]
    assert [each["values"] for each in found.json["series"]] == [[1, 10]] * 2, found.json["series"]
    small, large = (each["limits"] for each in found.json["series"])
    assert small != large and {"job.path=m_x.svg", "job.path=m_x-2.svg", "job.n=1,path=m_x-2.pickle"} <= files, files


def test_a_failed_chart_takes_no_answer_with_it():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kept", "job.svg").mkdir(parents=True)
        found = Answer(folder, MLP, "--out", "kept", "--steps", "1", "--vary", "batch=64,128")
    assert found.code == 0 and "128" in found.out and len(found.json["configurations"]) == 2, found.err
    assert "no cards by batch: gmlake-sim plan: " in found.err and found.json["series"] == [], found.err


def test_configurations_and_ranks_are_tasks_of_an_engine():
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        script, out = Path(folder, "job.py"), Path(folder, "kept")
        script.write_text(MLP)
        found = gmlake.fleet.predict(
            script, vary={"batch": [4096, "none"]}, world=2, ranks=[0, 1], out=out, engine=pool, options=["--steps", "2"]
        )
        alone = Answer(folder, MLP, "--world", "2", "--ranks", "1", "--steps", "2", "after:--batch", "after:4096").rank
        files = sorted(path.name for path in Path(out, "batch=4096").iterdir())
        assert not list(out.rglob(".part-*")) and all(Path(row["snapshot"]).exists() for row in found.rows[:2])
    assert found.failed == {} and [(row["batch"], row["rank"]) for row in found.rows] == [
        ("4096", 0), ("4096", 1), ("none", 0), ("none", 1)
    ]
    assert files == [f"job.r{rank}.{ending}" for rank in (0, 1) for ending in ("json", "log", "pickle")], files
    held = alone["allocators"]["lake"]["reserved_peak_bytes"]
    assert found.rows[1]["reserved_peak_bytes"] == alone["reserved_peak_bytes"] > 0
    assert found.rows[1]["lake_reserved_peak_bytes"] == held and found.rows[2]["lake_reserved_peak_bytes"] is None
    assert found.rows[0]["error"] is None and "sys.exit(2)" in found.rows[2]["error"], found.rows[2]


def test_ranks_of_a_world_each_have_a_line():
    script = MLP.replace("\nwidth", "\nimport os\nprint('rank', os.environ['RANK'], os.environ['WORLD_SIZE'])\nwidth")
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, script, "--world", "4", "--ranks", "0,2", "--out", "kept", "--steps", "1")
        files = sorted(os.listdir(f"{folder}/kept"))
    assert [rank["rank"] for rank in found.json["ranks"]] == [0, 2], found.err
    assert files == ["job.json", "job.r0.pickle", "job.r2.log", "job.r2.pickle"], files


OBJECTS = """\
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
if rank == 0:
    dist.send_object_list([{"shape": (3, 5)}], dst=1, device=device)
else:
    found = [None]
    dist.recv_object_list(found, src=0, device=device)
    assert found == [{"shape": (3, 5)}], found
large = bytes(range(256)) * (40 << 12)  # more than is known of other small integers
kept = [large if rank == 0 else None]
dist.broadcast_object_list(kept, src=0, device=device)
assert kept == [large]
"""


def test_objects_go_from_rank_to_rank():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, OBJECTS, "--world", "2", "--ranks", "all")
    assert [rank["error"] for rank in found.json["ranks"]] == [None, None], found.err


EXCHANGED = """\
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
rows = 1 << 19
mine = torch.arange(3 * rows, device="cuda", dtype=torch.float32).view(3, rows) + 10 * rank
sent, received = ([1, 2], [1, 1]) if rank == 0 else ([1, 2], [2, 2])
got = torch.empty(sum(received), rows, device="cuda")
dist.all_to_all_single(got, mine, received, sent)
everyone = torch.empty(6, rows, device="cuda")
dist.all_gather_into_tensor(everyone, mine)
first = mine.clone()
dist.broadcast(first, 1)
summed = mine.clone()
dist.all_reduce(summed)
whole = torch.arange(3 * rows, dtype=torch.float32).view(3, rows)
zero, one = whole, whole + 10
assert torch.equal(got.cpu(), torch.cat([zero[:1], one[:1]] if rank == 0 else [zero[1:], one[1:]]))
assert torch.equal(everyone.cpu(), torch.cat([zero, one])) and torch.equal(first.cpu(), one)
print("read", bool(summed[0, 0] > 0), flush=True)
"""


def test_values_of_large_tensors_go_from_rank_to_rank_where_they_are_computed():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, EXCHANGED, "--world", "2", "--ranks", "all", "--values", "forward", "--events", "clock")
    assert [rank["error"] for rank in found.json["ranks"]] == [None, None], found.err
    # Sums are not made, so that they are unknown, and nothing else is.
    places = [[read["place"] for read in rank["unknown_reads"]] for rank in found.json["ranks"]]
    assert places == [["job.py:20 in <module>"]] * 2, places


DOOMED = """
import torch
scale = torch.randn(1 << 22, device="cuda").abs().mean()
if scale.item() <= {least}:
    raise ValueError("step underflows")
torch.ones(1 << 24, device="cuda")
"""


def test_a_script_that_fails_by_unknown_values_runs_again_with_others():
    found = predict(DOOMED.format(least=0))
    assert found.code == 0 and found.rank["assume"] == "ones" and found.rank["error"] is None, found.err
    assert found.rank["reserved_peak_bytes"] >= 4 << 24 and "again with ones" in found.err, found.err
    found = predict(DOOMED.format(least=100))
    assert found.code == 1 and found.rank["error"] == "ValueError: step underflows", found.err
    assert "again with random" in found.err and found.rank["assume"] == "zeros", found.err


ALONE = """\
import torch, torch.distributed as dist
from torch.distributed.distributed_c10d import broadcast_object_list
dist.init_process_group("cpu:gloo,cuda:nccl")
rank, world = dist.get_rank(), dist.get_world_size()
host = dist.new_group(backend="gloo")
torch.cuda.set_device(rank)
for group in [None, host]:
    for src in range(world):
        found = [{"from": rank}] if src == rank else [None]
        broadcast_object_list(found, src=src, group=group)
        assert found == ([{"from": rank}] if src == rank else [None]), found
    found = [None] * world
    dist.all_gather_object(found, rank, group=group)
    assert found == [rank] * world, found
    found = [None]
    dist.scatter_object_list(found, [5, 6] if rank == 0 else None, src=0, group=group)
    assert found == ([5] if rank == 0 else [None]), found
    dist.recv_object_list(found, src=1 - rank, group=group)
for receive in [lambda to: dist.broadcast(to, src=1 - rank, group=host), lambda to: dist.recv(to, src=1 - rank, group=host)]:
    size = torch.full((3,), 140053759954176)
    receive(size)
    assert size.tolist() == [0, 0, 0], size
mine = torch.full((3,), 7)
dist.broadcast(mine, src=rank, group=host)
assert mine.tolist() == [7, 7, 7], mine
torch.ones(1 << 20, device="cuda")
"""


def test_a_rank_alone_receives_no_garbage():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, ALONE, "--world", "2", "--ranks", "0,1")
    assert [rank["error"] for rank in found.json["ranks"]] == [None, None], found.err


LEAVES = """\
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("no")
time.sleep(60)
"""


def test_a_rank_that_is_ended_for_another_says_so():
    found = predict(LEAVES, "--world", "2", "--ranks", "all")
    errors = [rank["error"] for rank in found.json["ranks"]]
    assert errors == ["it was ended 10 seconds after another rank had failed", "ValueError: no"], found.err


APART = """\
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
weight = torch.ones(64, 64, device="cuda")
if rank == 0:
    dist.all_reduce(weight)  # the other does not
    torch.cuda.synchronize()
else:
    dist.recv(weight, 0)
"""


def test_ranks_that_wait_for_each_other_end_in_seconds_with_a_way_out():
    with tempfile.TemporaryDirectory() as folder:
        found = Answer(folder, APART, "--world", "2", "--ranks", "all")
    assert found.code == 1 and all(rank["error"] for rank in found.json["ranks"]), found.err
    assert max(rank["seconds"] for rank in found.json["ranks"]) < 120, found.json["ranks"]
    assert "no rank has done anything for 30 seconds" in found.err and "--assume random" in found.err, found.err
    assert "job.py, line" in found.err.replace('"', ""), found.err


def missing():
    """What is needed and not here."""
    for check in (pytorch.versions, simulator.find, library.find):
        try:
            check()
        except Problem as problem:
            return str(problem)
    return None


def run_all(tests, first, what):
    """Runs all tests of a module, each in a process, as many side by side as there are cores, up to four; those from `first`
    on need PyTorch, and what is skipped without it is said. Names on the command line choose among them."""
    lack = missing()
    tests = dict(tests)
    names = list(tests)
    if lack:
        names = names[: names.index(first)]
        print(f"!!! SKIPPED: {what}: {lack}", file=sys.stderr)
    chosen = [name for name in names if name.startswith("test_") and (not sys.argv[1:] or name in sys.argv[1:])]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), context, FUNCTIONS.update, (tests,)) as pool:
        failed = [name for name, passed in zip(chosen, pool.map(passes, chosen)) if not passed]
    sys.exit(f"FAILED: {' '.join(failed)}" if failed else 0)


FUNCTIONS = {}  # the tests by name, in a process that runs them


def passes(name):
    begin = cpu_seconds()
    try:
        FUNCTIONS[name]()
    except Exception:
        traceback.print_exc()
        print("FAILED", name, flush=True)
        return False
    print(f"ok {name} ({cpu_seconds() - begin:.1f} s)", flush=True)
    return True


def cpu_seconds():
    """Of processors, by this process and those that it has waited for."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    run_all(list(globals().items()), "test_the_answer_of_a_small_script", "no prediction was tried")
