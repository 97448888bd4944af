"""The run: the processes of one configuration, a rank each, on one kind of virtual GPU.

Ranks run alone, each as if the others were there, or together, when they really exchange data. A
run comes back with each rank's facts and the path of its snapshot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Callable, Protocol, TypeVar

from . import Problem, children, library, scenario, stdin
from .facts import Facts
from .order import Job, Order, Ranks, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .pytorch import Wheel

GRACE = 10  # seconds that other ranks have to end after one failed
ENDLESS = float("inf")
EVENTS = ["clock", "fast", "slow", "early", "late"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Meeting:
    """Where ranks that run together meet: PyTorch's store on a port, small data in a folder."""

    port: int | None = None
    post: str | None = None


class Files(Protocol):
    """Where the files of the ranks lie."""

    def stem(self, rank: int) -> str:
        """The path of a rank's files without ending."""

    def output(self, rank: int) -> IO[str] | None:
        """What takes the texts that a rank prints; None is this process's standard error."""


class Workshop:
    """Where runs take place: the links to the library, and how many processes run side by side."""

    def __init__(self, folder: str, jobs: int, wheel: Wheel) -> None:
        self.folder, self.jobs, self.wheel = folder, jobs, wheel
        self.links = os.path.join(folder, "lib")
        os.mkdir(self.links)
        library.links(library.find(), self.links)
        self._slots = threading.Semaphore(jobs)
        self._children: set[Child] = set()
        self._lock, self._closed = threading.Lock(), False

    def run(self, task: Task, files: Files, limit: float = ENDLESS) -> list[Facts]:
        """Runs every rank and returns the facts of each, in their order. What runs longer than `limit` seconds is ended."""

        def start(rank: int, meeting: Meeting) -> Child:
            child = self._start(task, rank, files, meeting)
            child.limit = limit
            return child

        if task.ranks.together:
            with self._slots:
                return self._together(task.ranks, start)
        return self.each(lambda rank: self._alone(task, rank, start), task.ranks.ranks)

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Calls a function for each item, side by side; an interrupt ends all processes."""
        with ThreadPoolExecutor(len(items)) as pool:
            try:
                return list(pool.map(function, items))
            except KeyboardInterrupt:
                self.close()
                raise

    def close(self) -> None:
        """Ends what still runs, and lets nothing new start."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for child in children:
            child.end()

    def _alone(self, task: Task, rank: int, start: Callable[[int, Meeting], Child]) -> Facts:
        with self._slots:
            if not task.ranks.launched:
                return self._finish(start(rank, Meeting()))
            post = launched_post(task.events)
            try:
                return self._finish(start(rank, Meeting(post=post)))
            finally:
                leave(post, rank, task.ranks.per_node)

    def _together(self, ranks: Ranks, start: Callable[[int, Meeting], Child]) -> list[Facts]:
        meeting = Meeting(free_port(), tempfile.mkdtemp(prefix="post-", dir=self.folder))
        children = [start(rank, meeting) for rank in ranks.ranks]
        while not all(child.is_done() for child in children):
            time.sleep(0.05)
            if any(child.has_failed() or child.is_late() for child in children):
                give_time(children)
                break
        return [self._finish(child) for child in children]

    def _start(self, task: Task, rank: int, files: Files, meeting: Meeting) -> Child:
        order, ranks, stem = task.order, task.ranks, files.stem(rank)
        count = order.gpus or (1 if ranks.world == 1 else min(ranks.world, ranks.per_node))
        own = library.environment(
            self.links, self.wheel, card=order.gpu, memory=order.memory, count=count,
            events=task.events, post=meeting.post, workspaces=tables(order),
        )
        own.update(settings(order), **rank_environment(ranks, rank, task.events, meeting))
        taken = os.path.join(self.folder, "stdin")
        job = Job(order, ranks.alone, ranks.together, f"{stem}.pickle", f"{stem}.facts.json", taken)
        with self._lock:
            if self._closed:
                raise KeyboardInterrupt
            child = Child(job, own, files.output(rank))
            self._children.add(child)
        return child

    def _finish(self, child: Child) -> Facts:
        try:
            return child.finish()
        finally:
            with self._lock:
                self._children.discard(child)


def tables(order: Order) -> str | None:
    """The tables of workspaces, as the library gets them."""
    return order.workspaces and os.pathsep.join(map(os.path.abspath, order.workspaces.split(",")))


class Child:
    """A process with one rank in it."""

    def __init__(self, job: Job, environment: dict[str, str], output: IO[str] | None) -> None:
        self._job = job
        command = [sys.executable, "-m", "gmlake.predict.job", absolute(job).to_json()]
        # The script's output is a message of ours: standard output is for the answer.
        shown = sys.stderr if output is None else output
        self._begin, self.limit = time.monotonic(), ENDLESS
        self._compiled = environment[library.COMPILED]
        self._why: str | None = None
        given = stdin.opened()
        self._process = subprocess.Popen(
            command, env=environment, stdin=given, stdout=shown, stderr=shown, start_new_session=True,
        )
        os.close(given)

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def is_done(self) -> bool:
        """Whether its answer is there; a rank among others waits for their answers."""
        return not self.is_running() or os.path.exists(self._job.facts)

    def is_late(self) -> bool:
        """Whether it has run longer than it may."""
        return time.monotonic() - self._begin > self.limit

    def has_failed(self) -> bool:
        """Whether it ended, and not well."""
        return not self.is_running() and self._process.returncode != 0

    def end(self, why: str | None = None) -> None:
        """Ends the process, by force if need be; `why` is the error of its facts if it leaves none."""
        if self.is_running():
            self._why = why
            self._process.terminate()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        end_group(self._process.pid)

    def finish(self) -> Facts:
        """Waits for the end and returns the facts."""
        while not self.is_done() and not self.is_late():
            time.sleep(0.02)
        seconds = time.monotonic() - self._begin
        self.end()
        shutil.rmtree(self._compiled, ignore_errors=True)
        return replace(self._read(), seconds=seconds)

    def _read(self) -> Facts:
        path = next((path for path in (self._job.facts, self._job.replaced) if os.path.exists(path)), None)
        code = self._process.returncode
        if path is None:
            return Facts(error=self._why or death(code))
        facts = Facts.read(path)
        os.unlink(path)
        if path == self._job.replaced and code != 0:
            facts.error = self._why or death(code)
        if facts.problem:
            raise Problem(facts.problem)
        return replace(facts, snapshot=self._job.snapshot, processes=children.read(self._job.stem, bool(facts.error)))


def absolute(job: Job) -> Job:
    """The same for a script that may go to another folder."""
    order = replace(job.order, routing=scenario.absolute(job.order.routing))
    return replace(job, order=order, snapshot=os.path.abspath(job.snapshot), facts=os.path.abspath(job.facts))


def end_group(leader: int) -> None:
    """Ends the processes that a script has started, which outlive the one that started them."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def give_time(children: Sequence[Child]) -> None:
    """Waits for the answers of other ranks, which may fail in their turn, and ends those that give none."""
    limit = time.monotonic() + GRACE
    while time.monotonic() < limit and not all(child.is_done() for child in children):
        time.sleep(0.02)
    for child in children:
        child.end(f"it was ended {GRACE} seconds after another rank had failed")


def death(code: int) -> str:
    """Why a process ended without facts, in words."""
    if code == 127:
        return "PyTorch called a function that the virtual GPU lacks; the line above names it"
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended early, with exit code {code}"


def settings(order: Order) -> dict[str, str]:
    """The environment variables that options stand for."""
    own = {"PYTHONUNBUFFERED": "1"}
    if order.conf is not None:
        own.update(PYTORCH_ALLOC_CONF=order.conf, PYTORCH_CUDA_ALLOC_CONF=order.conf)
    if "OMP_NUM_THREADS" not in os.environ:
        own["OMP_NUM_THREADS"] = "1"  # threads that wait for each other would count as the script's own time
    return own


def rank_environment(ranks: Ranks, rank: int, events: str, meeting: Meeting) -> dict[str, str]:
    """What torchrun would have set for this rank."""
    if ranks.launched:
        # A run that follows another needs keys of its own in the launcher's store.
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        return {"TORCHELASTIC_RESTART_COUNT": str(restarts + EVENTS.index(events))}
    if not ranks.informed:
        return {}
    local = min(ranks.world, ranks.per_node)
    numbers = {
        "RANK": rank, "WORLD_SIZE": ranks.world, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": rank // local, "MASTER_PORT": meeting.port or free_port(),
    }
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in numbers.items()}}


def launched_post(events: str) -> str:
    """The folder where ranks meet that a launcher has started: they have their parent in common."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = f"gmlake-post-{os.getppid()}-{attempt}-{events}"
    post = os.path.join(tempfile.gettempdir(), name)
    os.makedirs(post, mode=0o700, exist_ok=True)
    return post


def leave(post: str, rank: int, others: int) -> None:
    """Marks that this rank is done; the last of this machine takes the folder away."""
    Path(post, f"done.{rank}").touch()
    if len(list(Path(post).glob("done.*"))) == others:
        shutil.rmtree(post, ignore_errors=True)


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
