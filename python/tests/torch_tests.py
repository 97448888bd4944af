"""PyTorch's own tests of its allocator (its test/test_cuda.py), in stock PyTorch and under the full mount.

    python -m gmlake run --virtual h200 python/tests/torch_tests.py FILE OUT.json     # on the virtual GPU
    python python/tests/torch_tests.py FILE OUT.json --jobs 8                         # on a real one

FILE is test_cuda.py of PyTorch's source, which is no part of this repository, or torch_later.py next to this script.
Each test has two processes of its own, one with stock PyTorch and one with the mount, and counts where stock passes.
Processes that a test starts are mounted, too.

Chosen are the tests whose text, or that of what they call in the same file, uses one of `WORDS`: what the allocator
is asked for. The allocator of pinned host memory is another one, which we leave as it is: its tests are not chosen.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
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
    "from gmlake import _plugin\n"
    "from gmlake._children import AfterTorch\n"
    "sys.meta_path.insert(0, AfterTorch(lambda: _plugin.enable_configured(_plugin._configuration(None, {}))))\n"
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


def run(file, test, mounted, folder, limit):
    """Runs one test in a process of its own."""
    path = os.environ.get("PYTHONPATH", "")
    own = {**os.environ, "PYTHONPATH": f"{folder}:{path}" if mounted else path, "PYTHONUNBUFFERED": "1"}
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, Path(file).name, "-v", test], cwd=Path(file).parent, env=own, stdout=out, stderr=out,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        out.seek(0)
        text = out.read().decode(errors="replace")
    word, why = outcome(code, text)
    text = "" if word == "passed" else text[-6000:]
    return {"outcome": word, "why": why, "seconds": round(time.monotonic() - begun, 1), "text": text}


def totals(results):
    """What the table ends with: how many pass in stock, and how many of those under the mount, by topic."""
    lines = []
    for topic in ["all", *WORDS]:
        rows = [row for row in results.values() if topic == "all" or topic in row["topics"]]
        counted = [row for row in rows if row["stock"]["outcome"] == "passed"]
        passed = sum(row["mount"]["outcome"] == "passed" for row in counted)
        share = f"{100 * passed / len(counted):.1f} %" if counted else "-"
        stock = dict(Counter(row["stock"]["outcome"].split(" with")[0] for row in rows))
        lines.append(f"{topic}: {len(rows)} chosen, {len(counted)} pass in stock, {passed} of those mounted ({share}); {stock}")
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
    wanted = chosen(Path(file).read_text())
    tests = {name: what for name, what in instances(file, wanted).items() if re.search(given.only, name)}
    if given.list:
        for name, what in tests.items():
            print(f"{name} ({what['how']}):", *what["topics"])
        return
    results = json.loads(Path(given.out).read_text()) if Path(given.out).exists() else {}
    if given.missing:
        tests = {name: what for name, what in tests.items() if name not in results}
    run_all(given, file, tests, results)
    print("\n".join(totals(results)))
    print(f"{sum(name not in results for name in tests)} were not reached")


def run_all(given, file, tests, results):
    """Runs all tests, and writes down each result as it comes."""
    end = time.monotonic() + given.within
    lock = threading.Lock()

    def both(name):
        row = {**results.get(name, {}), **tests[name]}
        for side in ("stock", "mount"):
            left = end - time.monotonic()
            if side == "stock" and side in row and given.mount_only:
                continue
            if side == "mount" and row["stock"]["outcome"] != "passed":
                row["mount"] = {"outcome": "not run", "why": "", "seconds": 0, "text": ""}
            elif left < 5:
                return
            else:
                row[side] = run(file, name, side == "mount", folder, min(given.limit, left))
                if row[side]["outcome"] == "too slow" and left < given.limit:
                    return
        with lock:
            results[name] = row
            stock, mount = row["stock"], row["mount"]
            print(f"{name}: {stock['outcome']}, {mount['outcome']} {mount['why'][:160]}", flush=True)
            Path(given.out).write_text(json.dumps(results, indent=1))

    def those(how):
        return [name for name, what in tests.items() if what["how"] == how]

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, SETUP[0]).write_text(SETUP[1])
        workers = concurrent.futures.ThreadPoolExecutor
        with workers(1) as one, workers(given.jobs) as many:
            done = [one.submit(both, name) for name in those("large")]
            done += [many.submit(both, name) for name in those("with others")]
        for each in done:
            each.result()
        for name in those("alone"):
            both(name)


if __name__ == "__main__":
    main()
