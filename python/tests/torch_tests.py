"""PyTorch's own tests of its allocator (its test/test_cuda.py), in stock PyTorch and under the full mount.

    python -m gmlake run --virtual h200 python/tests/torch_tests.py FILE OUT.json     # on the virtual GPU
    python python/tests/torch_tests.py FILE OUT.json --jobs 8                         # on a real one

FILE is test_cuda.py of PyTorch's source, which is no part of this repository, or torch_later.py next to this script.
Each test has two processes of its own, one with stock PyTorch and one with the mount, and counts where stock passes.
They are forked from this one, which has imported PyTorch and not used the GPU. What a test starts is mounted, too.

Chosen are the tests whose text, or that of what they call in the same file, uses one of `WORDS`: what the allocator
is asked for. The allocator of pinned host memory is another one, which we leave as it is: its tests are not chosen.
"""

import argparse
import ast
import contextlib
import importlib
import io
import json
import os
import re
import runpy
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest
from collections import Counter
from pathlib import Path

WORDS = {
    "statistics": r"memory_stats|memory_allocated|memory_reserved|mem_get_info|memory_summary|device_memory_used|"
                  r"MemoryStats",
    "history": r"_record_memory_history|memory_snapshot|memory\._snapshot|_dump_snapshot|profile_plot|trace_plot|"
               r"segment_plot|observe_tensor_cycles|memory_profile",
    "pools": r"MemPool|mem_pool|graph_pool_handle|CheckpointState|CheckpointPoolState|LiveAllocations|AllocateToPool",
    "graphs": r"CUDAGraph\(|cuda\.graph\(|make_graphed_callables|capture_begin",
    "limits": r"memory_fraction|OutOfMemory|out_of_memory|Tried to allocate|out of memory",
    "settings": r"_set_allocator_settings|expandable_segments|ALLOC_CONF|accelerator_set_allocator",
    "requests": r"caching_allocator|empty_cache|test_\w*allocator\w*|[cC]achingAllocator|raw_alloc|PluggableAllocator|"
                r"change_current_allocator",
    "streams": r"record_stream",
}
# Tests that need most of a GPU's memory run one at a time, and those that look at what is free on it run alone.
LARGE = re.compile(r"memory_fraction|total_memory")
ALONE = re.compile(r"free_bytes|device_memory_used")
NOT_OURS = re.compile(r"pinned_memory|host_memory")
SETUP = "sitecustomize.py", (
    "import sys\n"
    "from gmlake import _enable, _plugin\n"
    "from gmlake._imports import WhenImported\n"
    "WhenImported('torch', lambda _: _enable.enable_configured(_plugin.configuration(None, {})))\n"
)


def functions_of(tree):
    """All functions of a file by name, with the name of the class that they are in."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield node.name, inner


def called_by(node):
    calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
    return {getattr(call, "attr", getattr(call, "id", "")) for call in calls}


def chosen(text):
    """The tests of the allocator: (class, name), the topics of each, and how it is to be run."""
    functions = list(functions_of(ast.parse(text)))
    helpers = {node.name: node for _, node in functions if not node.name.startswith("test")}
    found = {}
    for group, node in functions:
        if not node.name.startswith("test") or not group:
            continue
        seen, todo = set(), [node]
        words = ""
        while todo:
            now = todo.pop()
            words += ast.unparse(now)
            todo += [helpers[name] for name in called_by(now) - seen if name in helpers]
            seen |= called_by(now)
        topics = [topic for topic, word in WORDS.items() if re.search(word, words)]
        if topics and not NOT_OURS.search(node.name):
            how = "alone" if ALONE.search(words) else "large" if LARGE.search(words) else "with others"
            found[group, node.name] = {"topics": topics, "how": how}
    return found


def instances(file, wanted):
    """The tests as they are run, with a name for each parameter: `Class.test`, and what `chosen` says of each."""
    with contextlib.redirect_stdout(io.StringIO()):
        space = runpy.run_path(file, run_name="test_cuda")
    found = {}
    for name, kind in space.items():
        if not isinstance(kind, type) or not issubclass(kind, unittest.TestCase):
            continue
        for test in unittest.TestLoader().getTestCaseNames(kind):
            origins = [
                key for key in wanted
                if (name == key[0] or name == key[0] + "CUDA") and (test == key[1] or test.startswith(key[1] + "_"))
            ]
            if origins:
                origin = max(origins, key=lambda key: len(key[1]))
                found[f"{name}.{test}"] = wanted[origin]
    return found


def outcome(code, text):
    """What became of one test, and why, in a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    if code == 0 and re.search(r"^OK$", text, re.MULTILINE):
        return "passed", ""
    skipped = re.search(r"skipped=\d+", text)
    if code in (0, 5) and skipped:
        reason = re.search(r"skipped ['\"](.*)['\"]", text)
        return "skipped", reason[1] if reason else ""
    if code == 0 and re.search(r"^OK \(expected failures=\d+\)$", text, re.MULTILINE):
        return "meant to fail", ""
    if code == -signal.SIGKILL:
        return "too slow", ""
    errors = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|OutOfMemory)[\w.]*\b", line)]
    last = errors[-1] if errors else lines[-1] if lines else ""
    return ("failed" if re.search(r"^FAILED", text, re.MULTILINE) else f"ended with {code}"), last


def as_main(file):
    """Runs a file as a program, which PyTorch's helpers know as `__main__`."""
    main = types.ModuleType("__main__")
    main.__file__ = file
    sys.modules["__main__"] = main
    if helpers := sys.modules.get("torch.testing._internal.common_utils"):
        helpers.__main__ = main
    exec(compile(Path(file).read_text(), str(Path(file).resolve()), "exec"), main.__dict__)


class Running:
    """A test in a process of its own, forked from this one."""

    def __init__(self, file, name, side, folder, limit):
        self.name, self.side, self.begun, self.limit = name, side, time.monotonic(), limit
        self.out = tempfile.TemporaryFile()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(self.inside(file, folder))

    def inside(self, file, folder):
        os.setsid()
        for number in (1, 2):
            os.dup2(self.out.fileno(), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        os.chdir(Path(file).parent)
        sys.argv = [Path(file).name, "-v", self.name]
        code = 0
        try:
            if self.side == "mount":
                os.environ["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
                from gmlake import _enable, _plugin

                _enable.enable_configured(_plugin.configuration(None, {}))
                if _plugin.mounted() != "full":
                    raise RuntimeError("this is not the full mount")
            as_main(Path(file).name)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        return code

    def done(self):
        """What became of it; nothing while it runs."""
        seconds = time.monotonic() - self.begun
        if seconds > self.limit:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        pid, status = os.waitpid(self.pid, 0 if seconds > self.limit else os.WNOHANG)
        if pid == 0:
            return None
        self.out.seek(0)
        text = self.out.read().decode(errors="replace")
        word, why = outcome(os.waitstatus_to_exitcode(status), text)
        text = "" if word == "passed" else text[-6000:]
        return {"outcome": word, "why": why, "seconds": round(seconds, 1), "text": text}


def totals(results):
    """What the table ends with: how many pass in stock, and how many of those under the mount, by topic."""
    lines = []
    for topic in ["all", *WORDS]:
        rows = [row for row in results.values() if topic == "all" or topic in row["topics"]]
        counted = [row for row in rows if row["stock"]["outcome"] == "passed"]
        passed = sum(row.get("mount", {}).get("outcome") == "passed" for row in counted)
        share = f"{100 * passed / len(counted):.1f} %" if counted else "-"
        stock = dict(Counter(row["stock"]["outcome"].split(" with")[0] for row in rows))
        counts = f"{len(rows)} chosen, {len(counted)} pass in stock, {passed} of those mounted ({share})"
        lines.append(f"{topic}: {counts}; {stock}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", metavar="FILE", help="test_cuda.py of PyTorch's source")
    parser.add_argument("out", metavar="OUT.json", help="where results go, as soon as they are there")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (default: 2)")
    parser.add_argument("--limit", type=float, default=120, help="seconds that one test may take (default: 120)")
    parser.add_argument("--within", type=float, default=1e9, help="begin nothing new after this many seconds")
    parser.add_argument("--only", default="", metavar="REGEX", help="only tests whose name has this in it")
    parser.add_argument("--mount-only", action="store_true", help="keep what OUT.json says of stock PyTorch")
    parser.add_argument("--missing", action="store_true", help="run only what OUT.json says nothing about")
    parser.add_argument("--list", action="store_true", help="print the chosen tests with their topics, and end")
    given = parser.parse_args()
    file = str(Path(given.file).resolve())
    prepare()
    wanted = chosen(Path(file).read_text())
    tests = in_a_fork(lambda: instances(file, wanted))
    tests = {name: what for name, what in tests.items() if re.search(given.only, name)}
    if given.list:
        for name, what in tests.items():
            print(f"{name} ({what['how']}):", *what["topics"])
        return
    results = json.loads(Path(given.out).read_text()) if Path(given.out).exists() else {}
    if given.missing:
        tests = {name: what for name, what in tests.items() if name not in results}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, SETUP[0]).write_text(SETUP[1])
        Runs(given, file, tests, results, folder).all()
    print("\n".join(totals(results)))
    print(f"{sum(name not in results for name in tests)} were not reached")


class Runs:
    """All tests: this many at a time, of those that need much memory one, and some alone."""

    def __init__(self, given, file, tests, results, folder):
        self.given, self.file, self.tests, self.results, self.folder = given, file, tests, results, folder
        self.end = time.monotonic() + given.within
        self.running = []

    def all(self):
        for hows in (("with others", "large"), ("alone",)):
            todo = [(name, "stock") for name, what in self.tests.items() if what["how"] in hows]
            if self.given.mount_only:
                todo = [(name, "mount") for name, _ in todo if self.passes_in_stock(name)]
            self.some(todo, 1 if hows == ("alone",) else self.given.jobs)
        # What failed under the mount only is tried again alone, and what then comes is written down next to it.
        failed = [name for name in self.tests if self.passes_in_stock(name) and self.said(name, "mount") != "passed"]
        self.some([(name, "again") for name in failed if self.said(name, "mount")], 1)

    def passes_in_stock(self, name):
        return self.said(name, "stock") == "passed"

    def said(self, name, side):
        return self.results.get(name, {}).get(side, {}).get("outcome")

    def some(self, todo, jobs):
        while todo or self.running:
            is_large = any(self.tests[each.name]["how"] == "large" for each in self.running)
            fits = [each for each in todo if not (is_large and self.tests[each[0]]["how"] == "large")]
            left = self.end - time.monotonic()
            if left < 5:
                todo.clear()
            elif fits and len(self.running) < jobs:
                todo.remove(fits[0])
                name, side = fits[0]
                limit = min(self.given.limit, left)
                self.running.append(Running(self.file, name, side.replace("again", "mount"), self.folder, limit))
                self.running[-1].kind = side
                continue
            for each in list(self.running):
                if found := each.done():
                    self.running.remove(each)
                    self.ended(each, found, todo)
            time.sleep(0.02)

    def ended(self, each, found, todo):
        if found["outcome"] == "too slow" and each.limit < self.given.limit:
            return  # it is the time for all of them that is over
        row = self.results.setdefault(each.name, {})
        row.update(self.tests[each.name])
        row[each.kind] = found
        if each.kind == "stock" and found["outcome"] == "passed":
            todo.insert(0, (each.name, "mount"))
        print(f"{each.name}: {each.kind}: {found['outcome']} {found['why'][:160]}", flush=True)
        Path(self.given.out).write_text(json.dumps(self.results, indent=1))


def in_a_fork(call):
    """What a function returns in a process of its own, which may use the GPU; None if it fails."""
    with tempfile.TemporaryFile("w+") as out:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(Exception):
                out.write(json.dumps(call()))
                out.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        out.seek(0)
        return json.loads(out.read() or "null")


def prepare():
    """Imports what tests need and what leaves the GPU alone, for a fork cannot use one that was opened before."""
    if "gmlake" in sys.modules:  # `python -m gmlake run` has mounted this process
        os.execv(sys.executable, [sys.executable, __file__, *sys.argv[1:]])
    for name in ("torch", "torch._dynamo", "torch.utils.viz._cycles", "numpy", "sympy", "psutil"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if not in_a_fork(lambda: sys.modules["torch"].zeros(1, device="cuda").is_cuda):
        sys.exit("a forked process cannot use the GPU")


if __name__ == "__main__":
    main()
