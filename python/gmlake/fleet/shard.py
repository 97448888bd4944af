"""A shard: one process of `gmlake-sim fleet`, which does the parts whose number is its own.

    gmlake-sim fleet INPUT... --out DIR --shard I/N
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..predict import Problem, simulator
from .process import Failed, finish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .wishes import Listed, Path, RunWishes, Sharing


def words(inputs: Listed, out: Path, wishes: RunWishes) -> list[str]:
    """The arguments that all shards share."""
    found = [*listed(inputs), "--out", place(out)]
    manifest = wishes.get("manifest")
    if manifest:
        found += ["--manifest", os.fspath(manifest)]
    found += grid(wishes.get("settings") or {}, wishes)
    return found + (["--steps"] if wishes.get("steps") else [])


def grid(settings: Mapping[str, Listed], wishes: Sharing) -> list[str]:
    """Allocators and what is varied; device memory comes last, so that a share has all sizes of a setting."""
    allocators, memory = wishes.get("allocators"), wishes.get("device_memory")
    found = ["--allocators", ",".join(listed(allocators))] if allocators else []
    for name, values in {**settings, **({"device-memory": memory} if memory else {})}.items():
        found += ["--set", f"{name}={','.join(listed(values))}"]
    return found


def listed(value: Listed) -> list[str]:
    """One thing, or many, as texts."""
    if isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike)):
        return [str(each) for each in value]
    return [str(value)]


def place(out: Path) -> str:
    """A folder as every worker knows it."""
    return os.path.abspath(out)


def work(program: str | None, arguments: Sequence[str], folder: str, shows: bool = False) -> Any:
    """Runs a shard and returns what it says of itself; a task of every engine.

    `program` is the simulator's path, None for that of the machine on which this runs. Raises `Failed`
    when there is no result. Exit code 2 may be one: then some files are rows of the errors table.
    """
    if program and not os.access(program, os.X_OK):
        raise Problem(f"{program} is not a program on {platform.node()}")
    command = [program or simulator.find(), "fleet", *arguments, "--json"]
    ended = finish(command, folder, shows)
    if ended.code not in (0, 2) or not ended.out.strip():
        raise Failed(f"{simulator.NAME} fleet: {ended.reason(simulator.NAME)}")
    return json.loads(ended.out)["result"]
