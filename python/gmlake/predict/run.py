"""The run: the processes of one configuration, a rank each, on one kind of virtual GPU.

Ranks run alone, each as if the others were there, or together, when they really exchange data. A
run comes back with each rank's facts and the path of its snapshot.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import Problem, library

# What is to be predicted. `arguments` are the script's; `memory` is in bytes, None is the card's.
Order = namedtuple(
    "Order", "script module arguments steps stacks categories values assume conf gpu memory"
)

# Which ranks: all `world` of them exist; those in `ranks` are run, together or alone. Under
# torchrun (`launched`) there is one, and it is in the environment already. `informed` says that the script
# gets its rank from the environment; without it there is one process, and the script knows of no ranks.
Ranks = namedtuple("Ranks", "world ranks together launched per_node informed")

# Where ranks that run together meet: PyTorch's store on a port, small data in a folder.
Meeting = namedtuple("Meeting", "port post")

GRACE = 10  # seconds that other ranks have to end after one failed


class Workshop:
    """Where runs take place: the links to the library, and how many processes run side by side."""

    def __init__(self, folder, jobs, wheel):
        self.folder, self.jobs, self.wheel = folder, jobs, wheel
        self.links = os.path.join(folder, "lib")
        os.mkdir(self.links)
        library.links(library.find(), self.links)
        self._slots = threading.Semaphore(jobs)
        self._children, self._lock, self._closed = set(), threading.Lock(), False

    def run(self, order, ranks, events, stem, output, limit=float("inf")):
        """Runs every rank and returns the facts of each, in their order.

        `stem(rank)` is the path of a rank's files without ending; `output(rank)` takes what it
        prints: a file, or None for this process's standard error. What runs longer than `limit`
        seconds is ended.
        """
        def start(rank, meeting):
            child = self._start(order, ranks, rank, events, stem(rank), output(rank), meeting)
            child.limit = limit
            return child

        if ranks.together:
            with self._slots:
                return self._together(ranks, start)
        return self.each(lambda rank: self._alone(ranks, rank, events, start), ranks.ranks)

    def each(self, function, items):
        """Calls a function for each item, side by side; an interrupt ends all processes."""
        with ThreadPoolExecutor(len(items)) as pool:
            try:
                return list(pool.map(function, items))
            except KeyboardInterrupt:
                self.close()
                raise

    def close(self):
        """Ends what still runs, and lets nothing new start."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for child in children:
            child.end()

    def _alone(self, ranks, rank, events, start):
        with self._slots:
            meeting = launched_meeting(events) if ranks.launched else Meeting(None, None)
            try:
                return self._finish(start(rank, meeting))
            finally:
                if ranks.launched:
                    leave(meeting.post, rank, ranks.per_node)

    def _together(self, ranks, start):
        post = tempfile.mkdtemp(prefix="post-", dir=self.folder)
        meeting = Meeting(free_port(), post)
        children = [start(rank, meeting) for rank in ranks.ranks]
        while not all(child.is_done() for child in children):
            time.sleep(0.05)
            if any(child.has_failed() or child.is_late() for child in children):
                give_time(children)
                break
        return [self._finish(child) for child in children]

    def _start(self, order, ranks, rank, events, stem, output, meeting):
        count = 1 if ranks.world == 1 else min(ranks.world, ranks.per_node)
        own = library.environment(
            self.links, self.wheel, card=order.gpu, memory=order.memory, count=count,
            events=events, post=meeting.post,
        )
        own.update(settings(order), **rank_environment(ranks, rank, events, meeting))
        with self._lock:
            if self._closed:
                raise KeyboardInterrupt
            child = Child(order, ranks, stem, own, output)
            self._children.add(child)
        return child

    def _finish(self, child):
        try:
            return child.finish()
        finally:
            with self._lock:
                self._children.discard(child)


class Child:
    """A process with one rank in it."""

    def __init__(self, order, ranks, stem, environment, output):
        self.snapshot, self._facts = f"{stem}.pickle", f"{stem}.facts.json"
        job = dict(script=order.script, module=order.module, arguments=order.arguments)
        job.update(steps=order.steps, stacks=order.stacks, values=order.values)
        job.update(categories=order.categories)
        job.update(assume=order.assume, alone=not ranks.together and not ranks.launched)
        job.update(together=ranks.together)
        job.update(snapshot=self.snapshot, facts=self._facts)
        command = [sys.executable, "-m", "gmlake.predict.job", json.dumps(job)]
        # The script's output is a message of ours: standard output is for the answer.
        output = sys.stderr if output is None else output
        self._begin, self.limit = time.monotonic(), float("inf")
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    def is_running(self):
        return self._process.poll() is None

    def is_done(self):
        """Whether its answer is there; a rank among others waits for their answers."""
        return not self.is_running() or os.path.exists(self._facts)

    def is_late(self):
        return time.monotonic() - self._begin > self.limit

    def has_failed(self):
        return not self.is_running() and self._process.returncode != 0

    def end(self):
        """Ends the process, by force if need be."""
        if self.is_running():
            self._process.terminate()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def finish(self):
        """Waits for the end and returns the facts."""
        while not self.is_done() and not self.is_late():
            time.sleep(0.02)
        seconds = time.monotonic() - self._begin
        self.end()
        return self._read() | {"seconds": seconds}

    def _read(self):
        if os.path.exists(self._facts):
            with open(self._facts) as file:
                facts = json.load(file)
            os.unlink(self._facts)
            if facts["problem"]:
                raise Problem(facts["problem"])
            return {"snapshot": self.snapshot, **facts}
        return {"snapshot": None, "error": death(self._process.returncode), "requests": 0}


def give_time(children):
    """Waits for the answers of other ranks, which may fail in their turn, and ends those that give none."""
    limit = time.monotonic() + GRACE
    while time.monotonic() < limit and not all(child.is_done() for child in children):
        time.sleep(0.02)
    for child in children:
        child.end()


def death(code):
    """Why a process ended without facts, in words."""
    if code == 127:
        return "PyTorch called a function that the virtual GPU lacks; the line above names it"
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended early, with exit code {code}"


def settings(order):
    """The environment variables that options stand for."""
    own = {"PYTHONUNBUFFERED": "1"}
    if order.conf is not None:
        own.update(PYTORCH_ALLOC_CONF=order.conf, PYTORCH_CUDA_ALLOC_CONF=order.conf)
    if "OMP_NUM_THREADS" not in os.environ:
        own["OMP_NUM_THREADS"] = "1"  # threads that wait for each other would count as the script's own time
    return own


def rank_environment(ranks, rank, events, meeting):
    """What torchrun would have set for this rank."""
    if ranks.launched:
        # A run that follows another needs keys of its own in the launcher's store.
        round_ = ["clock", "fast", "slow", "early", "late"].index(events)
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        return {"TORCHELASTIC_RESTART_COUNT": str(restarts + round_)}
    if not ranks.informed:
        return {}
    local = min(ranks.world, ranks.per_node)
    own = dict(RANK=rank, WORLD_SIZE=ranks.world, LOCAL_RANK=rank % local)
    own.update(LOCAL_WORLD_SIZE=local, GROUP_RANK=rank // local, MASTER_ADDR="127.0.0.1")
    own.update(MASTER_PORT=meeting.port or free_port())
    return {name: str(value) for name, value in own.items()}


def launched_meeting(events):
    """Where ranks meet that a launcher has started: they have their parent in common."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = f"gmlake-post-{os.getppid()}-{attempt}-{events}"
    post = os.path.join(tempfile.gettempdir(), name)
    os.makedirs(post, mode=0o700, exist_ok=True)
    return Meeting(None, post)


def leave(post, rank, others):
    """Marks that this rank is done; the last of this machine takes the folder away."""
    Path(post, f"done.{rank}").touch()
    if len(list(Path(post).glob("done.*"))) == others:
        shutil.rmtree(post, ignore_errors=True)


def free_port():
    """A TCP port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
