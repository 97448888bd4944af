"""The card's ledger on the virtual GPU: NVML's answers, the command, and `gmlake.card()` inside a program with PyTorch.

It needs the built libraries; the part with PyTorch is left out where there is none. Plain Python.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from gmlake import _plugin
from gmlake.ledger import sheet
from gmlake.predict import Problem, library

INSIDE = """
import json, torch, gmlake
x = torch.ones(1 << 28, device="cuda")
del x
torch.ones(1 << 20, device="cuda")
print("CARD", json.dumps(gmlake.card().to_json()), flush=True)
"""

RECORDED = """
import torch, gmlake
with gmlake.record({path!r}, card=0.05):
    try:
        kept = [torch.ones(1 << 28, device="cuda") for _ in range(100)]
    except torch.OutOfMemoryError:
        pass
"""


def command(*arguments, **environment):
    """`python -m gmlake card` with NVML's functions of the virtual GPU, without PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        library.links(library.find(), folder)
        own = {**os.environ, "LD_LIBRARY_PATH": folder, "GMLAKE_GPU": "h100-80gb", **environment}
        return subprocess.run(
            [sys.executable, "-m", "gmlake", "card", *arguments], env=own, capture_output=True, text=True
        )


def test_the_command_lists_every_card_and_what_is_used_adds_up():
    done = command("--json", "-", GMLAKE_GPU_COUNT="2")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["schema_version"], content["command"]) == (2, "card")
    cards = content["result"]
    assert [card["index"] for card in cards] == [0, 1] and len({card["uuid"] for card in cards}) == 2
    for card in cards:
        assert card["name"] == "NVIDIA H100 80GB HBM3"
        assert sum(entry["bytes"] for entry in card["entries"]) == card["used_bytes"] > 0
        assert card["used_bytes"] + card["free_bytes"] + card["reserved_bytes"] == card["total_bytes"]


def test_a_process_that_is_on_no_card_is_wrong_input_and_no_driver_is_said_in_a_line():
    done = command("1")
    assert done.returncode == 2 and "process 1 uses no GPU" in done.stderr and not done.stdout
    if not Path("/dev/nvidiactl").exists():
        done = subprocess.run([sys.executable, "-m", "gmlake", "card"], capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


def test_what_is_unexplained_for_a_moment_is_looked_at_again():
    """Kernels that are being loaded: in use at once, and a process's three looks later."""

    def card(unexplained):
        entries = [sheet.Entry("PyTorch's allocator", (2 << 30) - unexplained), sheet.Entry(sheet.UNEXPLAINED, unexplained)]
        return sheet.Card(0, "", "", 4 << 30, 0, 2 << 30, 2 << 30, entries, [])

    looks = iter([(card(1 << 30), True)] * 2 + [(card(0), False)] + [(card(1 << 20), True)] * 20)
    with mock.patch.dict(sheet.unexplained, clear=True):
        assert sheet.settled(0, lambda: next(looks)).named_bytes == (2 << 30) - (1 << 20)
    # What stays without an owner is not waited for at every look.
    with mock.patch.dict(sheet.unexplained, clear=True), mock.patch.object(sheet, "PATIENCE", 0.1):
        begin = time.monotonic()
        assert {sheet.settled(0, lambda: (card(1 << 30), True)).named_bytes for _ in range(50)} == {1 << 30}
        assert 0.1 <= time.monotonic() - begin < 0.5


def predicted(script, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "job.py")
        path.write_text(script)
        return subprocess.run(
            [sys.executable, "-m", "gmlake", "predict", "--gpu", "h100-80gb", *options, str(path)],
            capture_output=True, text=True,
        )


def test_inside_a_program_the_owners_add_up_to_what_is_used():
    done = predicted(INSIDE)
    line = next((line for line in done.stderr.splitlines() if line.startswith("CARD")), None)
    assert line, done.stderr
    card = json.loads(line[5:])
    owners = {entry["owner"]: entry for entry in card["entries"]}
    held = owners["PyTorch's allocator"]
    assert sum(entry["bytes"] for entry in card["entries"]) == card["used_bytes"]
    live, cached, *_ = (part["bytes"] for part in held["parts"])
    assert live + cached == held["bytes"] and live < 8 << 20 and cached >= 1 << 30
    assert "CUDA context, kernels, graphs, libraries" in owners


def test_a_recording_has_the_card_beside_it_and_the_moment_when_memory_ran_out():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.pickle")
        predicted(RECORDED.format(path=path), "--memory", "20GiB")
        looks = [json.loads(line) for line in Path(path + ".card.jsonl").read_text().splitlines()]
        assert looks[0]["at"] == "begin" and looks[-1]["at"] == "end"
        oom = next(look for look in looks if look["at"] == "oom")
        assert oom["free_bytes"] < 1 << 30 and oom["held_by_others_bytes"] == 0
        times = [look["time_us"] for look in looks]
        assert times == sorted(times)


CAPTURED = """
import gc, sys, types
import torch
from gmlake.ledger import tenants
x = torch.zeros(1000, device="cuda")
tenants.uses(torch)
gc.get_objects = None  # a look may come from another thread, which would break tuples that this one makes
graphs = []
for _ in range(3):
    graphs.append(torch.cuda.CUDAGraph())
    with torch.cuda.graph(graphs[-1], pool=graphs[0].pool() if graphs[1:] else None):
        x.add_(1)
three = tenants.uses(torch)["graph"]
tenants.watching.State.on, tenants.watching.watched = True, lambda: {"libnccl.so.2": 0}
found = tenants.uses(torch)
print("FOUND", three, found["graph"], found["nccl"], found.get("communicator"), flush=True)
"""


def test_graphs_are_counted_as_they_are_captured_and_nccl_outlives_its_groups():
    done = predicted(CAPTURED)
    assert "FOUND 3 3 1 None" in done.stdout + done.stderr, done.stderr


# They call gmlake's own library, which `pip install` builds.
NEED_THE_PLUGIN = {
    "test_inside_a_program_the_owners_add_up_to_what_is_used",
    "test_a_recording_has_the_card_beside_it_and_the_moment_when_memory_ran_out",
}


def main(given):
    tests = [name for name in globals() if name.startswith("test_")]
    if given:
        globals()[given[0]]()
        return 0
    try:
        library.find()
    except Problem as problem:
        print(f"!!! SKIPPED: nothing was asked of a card: {problem}", file=sys.stderr)
        return 0
    if not _plugin.LIBRARY.exists():
        lacks = [name for name in tests if name in NEED_THE_PLUGIN]
        tests = [name for name in tests if name not in NEED_THE_PLUGIN]
        print(f"!!! SKIPPED: {', '.join(lacks)}: there is no {_plugin.LIBRARY.name}; pip install . builds it", file=sys.stderr)
    for name in tests:
        subprocess.run([sys.executable, __file__, name], check=True)
        print("ok", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
