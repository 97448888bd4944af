"""Children: the processes that a script starts, watched like the script's own.

They have the virtual GPU by their environment. What they must do themselves is to record, from before their first
request, and to leave their facts behind. How that comes to them:

    job    prepare ──▶ PYTHONPATH=.../site, GMLAKE_PREDICT_CHILD=the job, as JSON
             │ spawn, subprocess, a server: Python runs `sitecustomize` first
             │                                 └─▶ watch ─▶ PyTorch is imported ─▶ the GPU is used ─▶ Child
             │ fork: nothing runs first
             └─▶ `register_at_fork` ─────────────▶ watch
    run    ◀── NAME.child.PID.facts.json and .pickle, when the child ends

A process that never uses the GPU, such as one that loads data, leaves nothing.
"""

from __future__ import annotations

import atexit
import glob
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import leaving
from .facts import ASKED, DONE, ENDED_BY_SIGNAL, FINISHED, TERMINATED, Ending, Facts
from .order import Job

if TYPE_CHECKING:
    from types import FrameType, ModuleType

    from .job import Watched

# What a child is told: the job of its parent. A script that is predicted sees these two variables.
TOLD, PATH = "GMLAKE_PREDICT_CHILD", "PYTHONPATH"
POST = "GMLAKE_GPU_POST"

SITE = Path(__file__).with_name("site")

OF_SIGNALS = 128  # exit codes from here on say which signal ended a process

PATIENCE = 20  # seconds for children to end after the script has


# What a forked process has from its parent.
INHERITED: list[Watched] = []


def prepare(job: Job, watched: Watched) -> None:
    """Has every process watched that this one starts from now on; those that are forked have what watches this one."""
    INHERITED.append(watched)
    os.environ[TOLD] = job.to_json()
    home = Path(__file__).parents[2]
    paths = [str(SITE), *filter(None, [os.environ.get(PATH)]), str(home)]
    os.environ[PATH] = os.pathsep.join(paths)
    if "RANK" not in os.environ and POST not in os.environ:
        # Ranks that the script starts itself meet each other.
        os.makedirs(post(job.stem), exist_ok=True)
        os.environ[POST] = post(job.stem)
    os.register_at_fork(after_in_child=begin_watch)
    note_exits(job.stem)


def post(stem: str) -> str:
    """The folder in which ranks meet that a script starts itself."""
    return stem + ".post"


def watch() -> None:
    """Watches this process, if it is a child of a job's, and those that it starts."""
    if told := os.environ.get(TOLD):
        note_exits(Job.from_json(told).stem)
    begin_watch()
    os.register_at_fork(after_in_child=begin_watch)


def begin_watch() -> None:
    """Watches this process, if it is a child of a job's; its facts are written when it ends."""
    told = os.environ.get(TOLD)
    if not told:
        return
    job = Job.from_json(told)
    if job.order.serve:
        from .serving import vllm

        vllm.watch(job, lambda: os._exit(0))
    child = Child(job)
    if "torch" in sys.modules:
        child.wait_for_gpu(sys.modules["torch"])
    else:
        from .._imports import WhenImported
        from . import compiling

        compiling.spare()
        WhenImported("torch", child.wait_for_gpu)


class Child:
    """This process."""

    def __init__(self, job: Job) -> None:
        self._job, self._pid = job, os.getpid()
        self._stem = f"{job.stem}.child.{self._pid}"
        self._watched: Watched | None = None
        self._begin = time.monotonic()
        self._handled = sys.exc_info()[1]  # the parent's, where it forks while it handles one
        atexit.register(self.end)  # before the script's handlers, so that it is called after them
        leaving.watch(self.write)

    def wait_for_gpu(self, torch: ModuleType) -> None:
        """Records from the first request on. In a process that was forked the parent's recorder does."""
        import multiprocessing.util

        from . import job

        own = replace(self._job, snapshot=self._stem + ".pickle")
        self._watched = INHERITED[0] if INHERITED else job.Watched(torch, own)
        self._watched.become(own, self.finished)
        torch.cuda._lazy_call(self.begin)
        multiprocessing.util.register_after_fork(self, Child.at_end)
        self.at_end()

    def at_end(self) -> None:
        """Has the facts written at the end of a process of `multiprocessing`, too, which after a fork has no other handlers."""
        import multiprocessing.util

        multiprocessing.util.Finalize(None, self.end_of_work, exitpriority=-100)

    def end_of_work(self) -> None:
        """What `multiprocessing` had this process do is done, or has failed."""
        from multiprocessing import parent_process

        if parent_process() is not None:
            self.end()

    def end(self) -> None:
        """This process ends, by itself or by an exception; its threads do first, as in Python."""
        if os.getpid() != self._pid or self._watched is None:
            return
        from .job import ending_of

        error = uncaught()
        threading._shutdown()  # type: ignore[attr-defined]
        self.write(Ending(DONE) if error in (None, self._handled) else ending_of(error))

    def begin(self) -> None:
        """The GPU is in use from now on."""
        if os.getpid() != self._pid or self._watched is None:
            return
        self._watched.enter()
        Path(self._stem + ".begun").touch()
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.terminated)

    def finished(self) -> None:
        """As many steps are done as were asked for: the process ends well."""
        self.write(Ending(FINISHED))
        os._exit(0)

    def terminated(self, number: int, _frame: FrameType | None) -> None:
        """What a polite request to end does."""
        asked = os.path.exists(self._stem + ".asked")
        self.write(Ending(ASKED if asked else TERMINATED))
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def write(self, ending: Ending) -> None:
        """Writes the facts, once."""
        if os.getpid() != self._pid or self._watched is None or not os.path.exists(self._stem + ".begun"):
            return
        if self._job.order.serve:
            return  # the server's own functions say what counts, and its budget is always used up
        watched, self._watched = self._watched, None
        seconds = time.monotonic() - self._begin
        facts = replace(watched.facts(ending), seconds=seconds, command=command())
        facts.write(self._stem + ".facts.json")


def uncaught() -> BaseException | None:
    """The exception by which this process ends: on its way through `multiprocessing`, or printed by Python already."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    while isinstance(error, SystemExit) and error.code and error.__context__:
        error = error.__context__  # what `torch.multiprocessing.spawn` makes an exit of
    return None if isinstance(error, KeyboardInterrupt) else error


def note_exits(stem: str) -> None:
    """Has the exit codes of failed children noted that `subprocess` waits for: no child knows its own at its end."""
    handle = subprocess.Popen._handle_exitstatus  # type: ignore[attr-defined]

    def note(process: subprocess.Popen[Any], *given: Any, **named: Any) -> None:
        handle(process, *given, **named)
        base = f"{stem}.child.{process.pid}"
        if 0 < process.returncode < OF_SIGNALS and os.path.exists(base + ".begun"):
            Path(base + ".code").write_text(str(process.returncode))

    subprocess.Popen._handle_exitstatus = note  # type: ignore[attr-defined]


def exit_of(base: str) -> str | None:
    """How a child ended that was noted to have failed."""
    noted = Path(base + ".code")
    if not noted.exists():
        return None
    code = noted.read_text()
    noted.unlink()
    return f"it ended by sys.exit({code})"


def command() -> str:
    """What this process runs, in words."""
    from multiprocessing import current_process, parent_process

    if parent_process() is not None:
        return current_process().name
    return " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:60].strip() or "python"


def wait(stem: str) -> None:
    """Lets children that use the GPU end after the script has: politely asked, in some seconds."""
    limit = time.monotonic() + PATIENCE
    asked = False
    while time.monotonic() < limit:
        running = [pid for pid in begun(stem) if is_running(pid)]
        if not running:
            return
        if not asked:
            for pid in running:
                Path(f"{stem}.child.{pid}.asked").touch()
                os.kill(pid, signal.SIGTERM)
            asked = True
        time.sleep(0.05)


def begun(stem: str) -> list[int]:
    """Children that have used the GPU and left no facts yet."""
    pids = [int(path.rsplit(".", 2)[1]) for path in glob.glob(f"{glob.escape(stem)}.child.*.begun")]
    return [pid for pid in pids if not os.path.exists(f"{stem}.child.{pid}.facts.json")]


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def read(stem: str, has_failed: bool) -> list[Facts]:
    """The facts that a job's children left, in the order in which they began; of one that was killed, that it was. Where the
    script or one of them `has_failed`, those that were ended for it have failed, too."""
    found = []
    lost = begun(stem)
    shutil.rmtree(post(stem), ignore_errors=True)
    for mark in sorted(glob.glob(f"{glob.escape(stem)}.child.*.begun"), key=os.path.getmtime):
        base, pid = mark.removesuffix(".begun"), int(mark.rsplit(".", 2)[1])
        os.unlink(mark)
        if pid in lost:
            found.append(Facts(error="it was killed before it left its recording", command="a child"))
            continue
        facts = Facts.read(base + ".facts.json")
        found.append(replace(facts, snapshot=base + ".pickle", error=facts.error or exit_of(base)))
        os.unlink(base + ".facts.json")
        Path(base + ".asked").unlink(missing_ok=True)
    if has_failed or any(facts.error for facts in found):
        for facts in found:
            if facts.ended in ENDED_BY_SIGNAL:
                facts.error = "it was ended by SIGTERM, since the script or another process of it failed"
    # Those that begin together begin in any order.
    return sorted(found, key=lambda facts: facts.command or "")
