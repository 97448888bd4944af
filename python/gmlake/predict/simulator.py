"""The simulator: `gmlake-sim`, asked about a snapshot.

It counts what PyTorch's own allocator held and what was live, from the recorded events, so that
the peaks are right even if the script has reset PyTorch's counters. Then it runs the same
requests under other allocators, and on every card.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import Problem, pytorch
from .facts import Need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .facts import Facts, Part

NAME = "gmlake-sim"
ALLOCATORS = ["caching", "expandable", "lake"]


def allocators(own: str | None) -> list[str]:
    """Those that a job is tried with, its own included."""
    return [*ALLOCATORS, *([own] if own and own not in ALLOCATORS else [])]


@dataclass(frozen=True)
class Held:
    """What PyTorch held of one GPU at most and what was live there, in bytes, and what other allocators need.

    `coverage` says how much of the job was recorded, in the words of the program's JSON.
    """

    device: int
    reserved: int
    active: int
    needs: dict[str, Need]
    coverage: dict[str, Any]


class Peak(NamedTuple):
    """Bytes that PyTorch held at most in a run, and the run."""

    bytes: int
    facts: Facts


def find() -> str:
    """The program's path: GMLAKE_SIM, or a source tree's, or of this installation, or on PATH."""
    named = os.environ.get("GMLAKE_SIM")
    installed = [*(folder / NAME for folder in folders()), shutil.which(NAME)]
    candidates = [named] if named else installed
    found = [str(path) for path in candidates if path and os.access(path, os.X_OK)]
    if not found:
        where = f"GMLAKE_SIM: {named}: not a program" if named else f"{NAME} is not installed"
        raise Problem(where)
    return found[0]


def folders() -> Iterator[Path]:
    """Where the program may be, the nearest first."""
    package = Path(__file__).parents[1]
    tree = package.parents[1]
    if (tree / "Cargo.toml").exists():
        yield tree / "target" / "release"
    yield Path(sysconfig.get_path("scripts"))
    yield Path(sys.executable).parent
    yield package.parent / "bin"


def ask(*arguments: object) -> Any:
    """Runs the program and returns the result in its JSON."""
    command = [find(), *map(str, arguments), "--export-json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 or not done.stdout:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Problem(f"{NAME} {arguments[0]}: {lines[-1].removeprefix(NAME + ': ')}")
    return json.loads(done.stdout)["result"]


def check(conf: str, torch: str) -> None:
    """Fails where this version of PyTorch takes no such settings of its allocator."""
    about = "allocator configuration "
    command = [find(), "compare", "-", "--allocators", "caching", "--alloc-conf", conf, *version(torch)]
    done = subprocess.run(command, input=recording_of(1 << 20), capture_output=True, text=True)
    for line in done.stderr.splitlines() if done.returncode else []:
        if line.startswith(f"{NAME}: {about}"):
            raise Problem(f"--conf {line.partition(about)[2]}")


def recording_of(size: int) -> str:
    """A recording of one block of so many bytes."""
    return f"action,addr,size,stream,time_us\nalloc,0x1000000000,{size},0,1\n"


def held(facts: Facts, allocators: Sequence[str] = ()) -> Held:
    """What a rank held at most, and would under other allocators without a limit; of its GPUs, on the worst."""
    options = ["--every-device", "--allocators", ",".join(allocators) or "bound", *version(facts.torch)]
    if allocators:
        options += ["--cards", "smallest", "--device-memory", "unlimited", *uses(facts)]
    found = ask("compare", facts.snapshot, *options)
    runs = found["runs"]
    recorded = [run for run in runs if run["allocator"] == "recorded"]
    if len(recorded) < len({run["device"] for run in runs}):
        raise Problem(f"{NAME} cannot tell from the snapshot what PyTorch held")
    worst = max(recorded, key=lambda run: (run["reserved_peak_bytes"], run["active_peak_bytes"], run["device"]))
    own = [run for run in runs if run["device"] == worst["device"] and run["allocator"] in allocators]
    needs = {run["allocator"]: Need(run["reserved_peak_bytes"], next(iter(run["cards"]), None)) for run in own}
    coverage = next(each["coverage"] for each in found["recordings"] if each["device"] == worst["device"])
    return Held(worst["device"], worst["reserved_peak_bytes"], worst["active_peak_bytes"], needs, coverage)


def cards(facts: Facts, allocators: Sequence[str]) -> dict[str, list[str]]:
    """The cards that run a rank under each allocator, the smallest first."""
    options = ["--every-device", "--allocators", ",".join(allocators), *version(facts.torch), *uses(facts)]
    found: dict[str, list[str]] = {}
    for run in ask("compare", facts.snapshot, *options, "--cards", "all", "--device-memory", "unlimited")["runs"]:
        if run["allocator"] in allocators:
            before = found.get(run["allocator"], run["cards"])
            found[run["allocator"]] = [card for card in run["cards"] if card in before]
    return found


def smallest(path: str, parts: Sequence[Part]) -> str | None:
    """The smallest card that serves what is in this file besides these uses."""
    options = ["--allocators", "native", "--cards", "smallest", "--device-memory", "unlimited", *counted(parts)]
    runs = ask("compare", path, *options)["runs"]
    return next((run["cards"][0] for run in runs if run.get("cards")), None)


def played(facts: Facts) -> list[Peak]:
    """Peaks of PyTorch's allocator for each drawing of a rank."""
    own = facts.allocator or ALLOCATORS[0]
    options = ["--allocators", own, *version(facts.torch)]

    def peak(path: str) -> Peak:
        runs = ask("compare", path, *options)["runs"]
        held = next(int(run["reserved_peak_bytes"]) for run in runs if run["allocator"] == own)
        return Peak(held, replace(facts, snapshot=path))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(peak, facts.drawings))


def uses(facts: Facts) -> list[str]:
    """The option that tells what a rank did on its card besides PyTorch's allocator."""
    beside = facts.library.get("beside")
    return counted(beside["parts"]) if beside else []


def counted(parts: Sequence[Part]) -> list[str]:
    """The same for these uses."""
    counts = [f"{part['use']}={part['count']}" for part in parts]
    return ["--uses", ",".join(counts)] if counts else []


def version(torch: str | None) -> list[str]:
    """The option that tells which PyTorch has recorded, where that is known."""
    return ["--torch-version", ".".join(map(str, pytorch.numbers(torch)))] if torch else []
