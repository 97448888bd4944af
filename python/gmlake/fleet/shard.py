"""A shard: one process of `gmlake-sim fleet`, which does the parts whose number is its own.

    gmlake-sim fleet INPUT... --out DIR --shard I/N
"""

import json
import os

from ..predict import Problem, simulator
from .process import finish, last_line

USABLE = (0, 2)  # exit codes with which Parquet was written; 2: there are rows in the errors table


def words(inputs, out, allocators=None, settings=None, device_memory=None, steps=False):
    """The arguments that all shards share."""
    found = [*listed(inputs), "--out", place(out)]
    if allocators:
        found += ["--allocators", ",".join(listed(allocators))]
    for name, values in dict(settings or {}).items():
        found += ["--set", f"{name}={','.join(map(str, listed(values)))}"]
    if device_memory:
        found += ["--device-memory", ",".join(map(str, listed(device_memory)))]
    return found + (["--steps"] if steps else [])


def listed(value):
    """One thing, or many."""
    if isinstance(value, (list, tuple, set)):
        return [os.fspath(each) if isinstance(each, os.PathLike) else each for each in value]
    return [os.fspath(value) if isinstance(value, os.PathLike) else value]


def place(out):
    """A folder as every worker knows it; addresses of object storage are left alone."""
    text = os.fspath(out)
    return text if "://" in text else os.path.abspath(text)


def work(program, arguments, folder, shows=False):
    """Runs a shard and returns what it says of itself; a task of every engine.

    `program` is the simulator's path, None for that of the machine on which this runs. Raises
    `Died` when it was killed, and `Problem` when it said no.
    """
    command = [program or simulator.find(), "fleet", *arguments, "--json"]
    code, out, messages = finish(command, folder, shows)
    try:
        return json.loads(out) if code in USABLE else fail(messages, code)
    except ValueError:
        return fail(messages, code)


def fail(messages, code):
    """One line of the reason."""
    reason = last_line(messages, code).removeprefix(f"{simulator.NAME}: ")
    raise Problem(f"{simulator.NAME} fleet: {reason}")
