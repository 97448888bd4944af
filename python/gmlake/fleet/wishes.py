"""Wishes: the named arguments of `run`, `predict` and `sweep`. Each is written once, here, with what it means.

All may be left out; the functions say what happens then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
# One thing or many, as texts.
Listed = Union[object, Sequence[object]]
# "ray", "local" (one process, all cores of this machine), or what has the interface of `concurrent.futures`.
EngineName = Union[str, Executor]


class Running(TypedDict, total=False):
    """How tasks are run."""

    retries: int  # how often a task is started again that failed, was killed, or whose worker is gone [default: 3]
    progress: bool  # a line about progress, on a terminal [default: yes]


class Sharing(Running, total=False):
    """How shares of work of gmlake-sim are run."""

    shards: int | None  # how many tasks [default: four for each CPU of the cluster]
    simulator: str | None  # where gmlake-sim is on every worker [default: each finds its own]
    allocators: Listed  # such as ["caching", "lake"] [default: as gmlake-sim]
    device_memory: Listed  # sizes of GPUs, such as ["80GiB"] [default: without a limit]


class RunWishes(Sharing, total=False):
    """Of `run`."""

    settings: Mapping[str, Listed] | None  # options to try, such as {"lake.handle": ["2MiB", "8MiB"]}
    steps: bool  # a table of steps, too
    manifest: Path | None  # CSV or Parquet file with a column path, and perhaps job, date and rank


class SweepWishes(Sharing, total=False):
    """Of `sweep`."""

    only_fitting: bool  # leave out devices that have less memory than is live at once


class PredictWishes(Running, total=False):
    """Of `predict`."""

    world: int | None  # how many ranks there are
    ranks: Listed  # which are predicted, such as [0, 7]; "all" of them together are one task
    options: Listed  # more options of `gmlake predict`, such as ["--steps", "3", "--gpu", "a100-80gb"]
    module: bool  # the script is the name of a module


RETRIES = 3


def check(function: str, kind: type[Any], given: Mapping[str, object]) -> None:
    """Fails, as Python does, where a named argument is not one of these."""
    for name in given:
        if name not in kind.__optional_keys__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
