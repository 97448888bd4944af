"""An engine: what runs tasks, here or elsewhere, and tries again what failed.

    local       one task after the other, in this process
    ray         a Ray task each
    Executor    anything of `concurrent.futures`: threads, MPI, Dask's `client.get_executor()`
"""

import importlib
import os
import warnings
from concurrent.futures import Executor, as_completed

from ..predict import Problem
from ..predict.progress import Progress
from .process import Failed

REASON = 200  # letters of a reason that are kept


def optional(name, package=None):
    """A module that only some people need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Problem(f"{name} is not installed: pip install {package or name}") from error


def engine_of(name, retries):
    """The engine of that name, or around an Executor."""
    if isinstance(name, Executor):
        return Pool(name, retries)
    if name not in ("local", "ray"):
        raise Problem(f"engine {name!r}: there are 'local', 'ray', and any concurrent.futures.Executor")
    return Ray(retries) if name == "ray" else Local(retries)


class Local:
    """This process."""

    workers = 1

    def __init__(self, retries):
        self._retries = retries

    def outcomes(self, function, tasks):
        """Pairs of a task's index and what it returned or raised, as tasks come to their ends."""
        for index, arguments in enumerate(tasks):
            yield index, caught(again, function, self._retries, *arguments)


class Pool:
    """An Executor. A process is started again by its worker; lost workers are the Executor's affair."""

    def __init__(self, executor, retries):
        self._executor, self._retries = executor, retries
        self.workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1

    def outcomes(self, function, tasks):
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

    def __init__(self, retries):
        self._ray, self._retries = optional("ray", "'gmlake[ray]'"), retries
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False, include_dashboard=False, logging_level="warning")
        self.workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def outcomes(self, function, tasks):
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


def again(function, retries, *arguments):
    """Calls a function, and once more each time that its process failed."""
    for _ in range(retries):
        try:
            return function(*arguments)
        except Failed:
            continue
    return function(*arguments)


def caught(function, *arguments):
    """What a function returned, or the exception that it raised."""
    try:
        return function(*arguments)
    except Exception as error:
        return getattr(error, "cause", None) or error


def run_all(engine, function, tasks, what, progress):
    """Returns what each task returned, and by index why others have nothing to return.

    A `Problem` of one task is one of all, and ends them.
    """
    found, failed = [None] * len(tasks), {}
    shown = Progress(len(tasks), what, progress)
    outcomes = engine.outcomes(function, tasks)
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


def reason(error):
    """Why a task failed, in a line; an engine's errors may be long."""
    text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    return text.splitlines()[0][:REASON]


def report(failed, total, what):
    """Says that some have failed; raises where all have."""
    if failed and len(failed) == total:
        raise Problem(next(iter(failed.values())))
    if failed:
        first = next(iter(failed.values()))
        warnings.warn(f"{len(failed)} of {total} {what} failed; the first: {first}", stacklevel=4)
