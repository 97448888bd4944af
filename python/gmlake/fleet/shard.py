"""A shard: one process of `gmlake-sim fleet`, which does the parts whose number is its own.

    gmlake-sim fleet INPUT... --out DIR --shard I/N
"""

import json
import os
import platform

from ..predict import Problem, simulator
from .process import Failed, finish, last_line


def words(inputs, out, manifest=None, allocators=None, settings=None, device_memory=None, steps=False):
    """The arguments that all shards share."""
    found = [*listed(inputs), "--out", place(out)]
    if manifest:
        found += ["--manifest", os.fspath(manifest)]
    if allocators:
        found += ["--allocators", ",".join(listed(allocators))]
    for name, values in dict(settings or {}).items():
        found += ["--set", f"{name}={','.join(listed(values))}"]
    if device_memory:
        found += ["--set", f"device-memory={','.join(listed(device_memory))}"]
    return found + (["--steps"] if steps else [])


def listed(value):
    """One thing, or many, as texts."""
    is_one = isinstance(value, (str, os.PathLike)) or not hasattr(value, "__iter__")
    return [str(each) for each in ([value] if is_one else value)]


def place(out):
    """A folder as every worker knows it."""
    return os.path.abspath(out)


def work(program, arguments, folder, shows=False):
    """Runs a shard and returns what it says of itself; a task of every engine.

    `program` is the simulator's path, None for that of the machine on which this runs. Raises `Failed`
    when there is no result. Exit code 2 may be one: then some files are rows of the errors table.
    """
    if program and not os.access(program, os.X_OK):
        raise Problem(f"{program} is not a program on {platform.node()}")
    command = [program or simulator.find(), "fleet", *arguments, "--json"]
    code, out, messages = finish(command, folder, shows)
    if code not in (0, 2) or not out.strip():
        reason = last_line(messages, code).removeprefix(f"{simulator.NAME}: ")
        raise Failed(f"{simulator.NAME} fleet: {reason}")
    return json.loads(out)
