"""An engine: what runs tasks, here or elsewhere, and tries again what failed.

    local       one task after the other, in this process
    ray         a Ray task each
    Executor    anything of `concurrent.futures`: threads, MPI, Dask's `client.get_executor()`
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from typing import Any, Callable, Protocol

from ..predict import Problem
from ..predict.progress import Progress
from .process import Failed
from .wishes import RETRIES, Running

REASON = 200  # letters of a reason that are kept

# The arguments of a function, for each task.
Tasks = Sequence[tuple[Any, ...]]
# Pairs of a task's index and what it returned or raised, as tasks come to their ends.
Outcomes = Generator[tuple[int, Any], None, None]


def optional(name: str, package: str | None = None) -> Any:
    """A module that only some people need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Problem(f"{name} is not installed: pip install {package or name}") from error


class Runner(Protocol):
    """What runs tasks, this many at a time."""

    workers: int

    def outcomes(self, function: Callable[..., Any], tasks: Tasks) -> Outcomes:
        """Runs a function with the arguments of each task."""


@dataclass(frozen=True)
class Engine:
    """What runs tasks, and whether it says how far they are."""

    runner: Runner
    progress: bool

    @property
    def workers(self) -> int:
        """Tasks that run at a time."""
        return self.runner.workers

    @property
    def is_local(self) -> bool:
        """Whether it is this process."""
        return isinstance(self.runner, Local)


def engine_of(name: object, wishes: Running) -> Engine:
    """The engine of that name, or around an Executor."""
    retries, progress = wishes.get("retries", RETRIES), wishes.get("progress", True)
    if isinstance(name, Executor):
        return Engine(Pool(name, retries), progress)
    if name not in ("local", "ray"):
        raise Problem(f"invalid engine {name!r}; expected 'local', 'ray' or a concurrent.futures.Executor")
    return Engine(Ray(retries), progress) if name == "ray" else Engine(Local(retries), progress)


class Local:
    """This process."""

    workers = 1

    def __init__(self, retries: int) -> None:
        self._retries = retries

    def outcomes(self, function: Callable[..., Any], tasks: Tasks) -> Outcomes:
        """One after the other."""
        for index, arguments in enumerate(tasks):
            yield index, caught(again, function, self._retries, *arguments)


class Pool:
    """An Executor. A process is started again by its worker; lost workers are the Executor's affair."""

    def __init__(self, executor: Executor, retries: int) -> None:
        self._executor, self._retries = executor, retries
        self.workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1

    def outcomes(self, function: Callable[..., Any], tasks: Tasks) -> Outcomes:
        """As many at a time as it has workers."""
        submit = self._executor.submit
        open_ = {submit(again, function, self._retries, *task): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(open_):
                yield open_[future], caught(future.result)
        finally:
            for future in open_:
                future.cancel()


class Ray:
    """Ray tasks. Ray starts a task again whose process failed, or whose worker or machine is gone."""

    def __init__(self, retries: int) -> None:
        self._ray, self._retries = optional("ray", "'gmlake[ray]'"), retries
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False, include_dashboard=False, logging_level="warning")
        self.workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def outcomes(self, function: Callable[..., Any], tasks: Tasks) -> Outcomes:
        """As many at a time as the cluster has CPUs."""
        ray = self._ray
        remote = ray.remote(function).options(
            num_cpus=1, max_retries=self._retries, retry_exceptions=[Failed], name="gmlake.fleet"
        )
        open_ = {remote.remote(*task): index for index, task in enumerate(tasks)}
        try:
            while open_:
                for done in ray.wait(list(open_))[0]:
                    yield open_.pop(done), caught(ray.get, done)
        finally:
            for left in open_:
                ray.cancel(left, force=True)


def again(function: Callable[..., Any], retries: int, *arguments: Any) -> Any:
    """Calls a function, and once more each time that its process failed."""
    for _ in range(retries):
        try:
            return function(*arguments)
        except Failed:
            continue
    return function(*arguments)


def caught(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returned, or the exception that it raised."""
    try:
        return function(*arguments)
    except Exception as error:
        return getattr(error, "cause", None) or error


def run_all(
    engine: Engine, function: Callable[..., Any], tasks: Tasks, what: str
) -> tuple[list[Any], dict[int, str]]:
    """Returns what each task returned, and by index why others have nothing to return.

    A `Problem` of one task is one of all, and ends them.
    """
    found: list[Any] = [None] * len(tasks)
    failed: dict[int, str] = {}
    shown = Progress(len(tasks), what, engine.progress)
    outcomes = engine.runner.outcomes(function, tasks)
    try:
        for index, outcome in outcomes:
            if isinstance(outcome, Problem):
                raise outcome
            if isinstance(outcome, Exception):
                failed[index] = reason(outcome)
            else:
                found[index] = outcome
            shown.advance(len(failed))
    finally:
        outcomes.close()
        shown.end()
    report(failed, len(tasks), what)
    return found, failed


def reason(error: Exception) -> str:
    """Why a task failed, in a line; an engine's errors may be long."""
    text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0][:REASON]


def report(failed: dict[int, str], total: int, what: str) -> None:
    """Says that some have failed; raises where all have."""
    if failed and len(failed) == total:
        raise Problem(next(iter(failed.values())))
    if failed:
        first = next(iter(failed.values()))
        warnings.warn(f"{len(failed)} of {total} {what} failed; the first: {first}", stacklevel=4)
