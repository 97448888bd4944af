"""The simulator: `gmlake-sim`, asked about a snapshot.

It counts what PyTorch's own allocator held and what was live, from the recorded events, so that
the peaks are right even if the script has reset PyTorch's counters. Then it runs the same
requests under other allocators, and on every card.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from . import Problem, pytorch

NAME = "gmlake-sim"
ALLOCATORS = ["caching", "expandable", "lake"]

# Where only the cards are asked about: `plan` then does not search for the smallest memory.
COARSE = "1024GiB"


def find():
    """The program's path: GMLAKE_SIM, or a source tree's, or of this installation, or on PATH."""
    named = os.environ.get("GMLAKE_SIM")
    candidates = [named] if named else [*(folder / NAME for folder in folders()), shutil.which(NAME)]
    found = [str(path) for path in candidates if path and os.access(path, os.X_OK)]
    if not found:
        where = f"GMLAKE_SIM: {named}: not a program" if named else f"{NAME} is not installed"
        raise Problem(where)
    return found[0]


def folders():
    """Where the program may be, the nearest first."""
    package = Path(__file__).parents[1]
    tree = package.parents[1]
    if (tree / "Cargo.toml").exists():
        yield tree / "target" / "release"
    yield Path(sysconfig.get_path("scripts"))
    yield Path(sys.executable).parent
    yield package.parent / "bin"


def ask(*arguments):
    """Runs the program and returns what it exports as JSON."""
    command = [find(), *map(str, arguments), "--export-json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 or not done.stdout:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Problem(f"{NAME} {arguments[0]}: {lines[-1].removeprefix(NAME + ': ')}")
    return json.loads(done.stdout)


def peaks(facts):
    """Bytes that a rank held and that were live in it at most; of its GPUs, on the worst."""
    options = ["--allocators", "bound", *version(facts)]
    found = []
    for device in facts["devices"]:
        reply = ask("compare", facts["snapshot"], "--device", device, *options)
        recorded = next((run for run in reply["runs"] if run["allocator"] == "recorded"), None)
        if recorded is None:
            raise Problem(f"{NAME} cannot tell from the snapshot what PyTorch held")
        found.append((recorded["reserved_peak_bytes"], recorded["active_peak_bytes"], device))
    reserved, active, device = max(found)
    return {"reserved": reserved, "active": active, "device": device}


def needs(facts, device):
    """What a rank would hold under each allocator without a limit, and the smallest card for it."""
    options = [*version(facts), "--device", device, "--allocators", ",".join(ALLOCATORS)]
    reply = ask("plan", facts["snapshot"], "--resolution", COARSE, *options)
    rank = reply["jobs"][0]["ranks"][0]
    return {need["allocator"]: need_of(need, rank["targets"]) for need in rank["needs"]}


def need_of(need, targets):
    """One allocator's part of a plan."""
    fits = [
        target for target, verdict in zip(targets, need["verdicts"])
        if verdict["trial"]["shortage"] is None
    ]
    smallest = min(fits, key=lambda target: target["capacity_bytes"], default=None)
    return {
        "reserved_peak_bytes": need["unlimited_bytes"],
        "smallest_card": smallest and smallest["name"],
    }


def version(facts):
    """The option that tells which PyTorch has recorded, where that is known."""
    if "torch" not in facts:
        return []
    return ["--torch-version", ".".join(map(str, pytorch.numbers(facts["torch"])))]
