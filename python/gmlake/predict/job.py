"""The job: one script on the virtual GPU, in this process, and the facts about it.

`run` starts it as `python -m gmlake.predict.job JOB`, with the library in place. The job and
the facts are JSON. The facts are written last, when the snapshot is complete.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import runpy
import sys
import threading
import time
import traceback
import types
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from . import children, compiling, ends, flow, leaving, library, others, stdin
from .categories import Categories
from .facts import DONE, EXITED, FAILED, FINISHED, RAN_OUT, REPLACED, Ending, Facts
from .order import Job, Order
from .recorder import Recorder, Unrecorded, unrecorded
from .steps import Finished, Steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType, TracebackType

PATIENCE = 3600  # seconds for other ranks to come to their ends


def main() -> None:
    """Runs the job in the arguments of this process."""
    leaving.end_with_parent()
    faulthandler.enable()
    job = Job.from_json(sys.argv[1])
    compiling.spare()
    if job.stdin:
        stdin.share(job.stdin)
    try:
        import torch
    except (ImportError, OSError) as error:
        facts = Facts(problem=unusable(error))
    else:
        facts = predict(torch, job)
    leave(job, facts)


def leave(job: Job, facts: Facts) -> NoReturn:
    """Writes the facts, and ends this process. Handlers that have not run yet have some seconds."""
    leaving.unwatch()
    once = threading.Lock()

    def end() -> NoReturn:
        once.acquire()  # and never given back
        leaving.flush()
        facts.write(job.facts)
        whole = facts.ended in (DONE, FINISHED)
        if whole and job.together:
            time.sleep(PATIENCE)  # the others may still need this rank's store; `run` ends it
        os._exit(0 if whole else 1)

    if facts.ended != DONE and not job.order.serve:
        leaving.complete_soon(end)
    end()


def unusable(error: Exception) -> str:
    """Why PyTorch could not be loaded, in one line."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "undefined symbol" in text:
        symbol = text.split("undefined symbol:")[-1].split(",")[0].strip()
        return f"PyTorch asks for {symbol}, which the virtual GPU lacks; is PyTorch newer than it?"
    return f"PyTorch cannot be loaded: {text}"


def predict(torch: ModuleType, job: Job) -> Facts:
    """Runs the script and returns what is known of it afterwards."""
    from . import ranks  # it imports PyTorch

    if why := unrecorded(torch):  # here, too, and not only in a process that uses the GPU
        return Facts(problem=why)
    watched = Watched(torch, job)
    watched.enter()
    children.prepare(job, watched)
    if "RANK" in os.environ:
        ranks.prepare(job.alone)
    if job.order.serve:
        from .serving import vllm

        vllm.watch(job, finish)
        ending = run(job.order, [])
        return Facts(**ending._asdict(), **others.facts(), library=library.report(), torch=torch.__version__)
    left: list[object] = []

    def at_last_step() -> NoReturn:
        leave(job, facts_of(job, watched, Ending(FINISHED)))

    watched.when_gone_on(at_last_step)
    leaving.watch(lambda ending: leave_at_once(job, facts_of(job, watched, ending)))
    own = os.getpid()
    ending = run(job.order, left)
    if os.getpid() != own:
        leaving.leave_fork(ending)
    if ending.ended == DONE:
        watched.become(job, at_last_step)  # for a thread that is left
        try:
            leaving.complete()
        except Finished:  # such a thread's, which came before
            ending = Ending(FINISHED)
    facts = watched.facts(ending)
    left.clear()  # only now: a pool that the script still has is a pool in the snapshot
    children.wait(job.stem)
    return facts


def facts_of(job: Job, watched: Watched, ending: Ending) -> Facts:
    """What is known once the children have ended, too."""
    facts = watched.facts(ending)
    if ending.ended != REPLACED:
        children.wait(job.stem)
    return facts


def leave_at_once(job: Job, facts: Facts) -> None:
    """Writes the facts of a process that ends by `os._exit`, or becomes another program: with it, that runs on."""
    leaving.flush()
    facts.write(job.replaced if facts.ended == REPLACED else job.facts)
    if facts.ended == DONE and job.together:
        time.sleep(PATIENCE)


def finish() -> None:
    """Ends the script: its server is ready."""
    raise Finished


class Watched:
    """What is watched in a process: requests, steps, and values that nobody computed."""

    def __init__(self, torch: ModuleType, job: Job) -> None:
        self._torch, self._job, order = torch, job, job.order
        self._ooms: list[int] = []
        # Before the steps are counted: its hook must run before the one that ends the script.
        categories = Categories(torch) if order.categories else None
        self._steps = Steps(order.steps)
        self._recorder = Recorder(torch, order.stacks, lambda: self._ooms.append(self._steps.done + 1), categories)
        self._mode: Any = None

    def become(self, job: Job, finished: Callable[[], object]) -> None:
        """Goes on as a child's. `finished` is called after the last step of the order."""
        self._job, self._steps.finished = job, finished

    def when_gone_on(self, end: Callable[[], object]) -> None:
        """`end` ends a script that goes on after its last step."""
        self._steps.gone_on = end

    def enter(self) -> None:
        """Computes values from now on."""
        from . import values  # they import PyTorch
        from .values.routing import Routing

        if self._mode is None:
            order = self._job.order
            text = os.environ.get("RANK", "0")
            rank = int(text) if text.isdecimal() else 0  # a variable of that name may be anybody's
            scenario = Routing(order.routing, lambda: self._steps.done, rank) if order.routing else None
            post = os.environ.get(children.POST) if self._job.together else None
            self._mode = values.mode(order.values, order.assume, scenario, post, order.serve)
            self._mode.__enter__()

    def facts(self, ending: Ending) -> Facts:
        """Ends, writes the snapshot, and returns what is known."""
        self._steps.close()
        self.enter()
        self._mode.__exit__(None, None, None)
        report = library.report()
        drawings: list[str] = []

        def draw(snapshot: Any) -> None:
            if ending.error is None and not self._ooms:
                drawings.extend(ends.write(self._job.snapshot, snapshot, report))

        recorded = self._recorder.write(self._job.snapshot, draw)
        report.pop("guesses_used", None)
        return Facts(
            **ending._asdict(), **recorded, **self._steps.facts(), **others.facts(), drawings=drawings,
            **self._mode.reads_of(), timed_loop=flow.timed_loop("".join(sys.argv[:1])), routed=self._mode.routed,
            oom_step=self._ooms[0] if self._ooms else None, library=report,
            host_memory_bytes=peak_host_memory(), torch=self._torch.__version__,
        )


def run(order: Order, left: list[object]) -> Ending:
    """Runs the script as Python would have, and says how it ended; what it leaves alive goes into `left`."""
    script = order.script
    sys.argv = [script, *order.arguments]
    try:
        if order.module:
            sys.path[0] = os.getcwd()
            found = runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(script))
            found = runpy.run_path(script, run_name="__main__")
    except BaseException as error:
        left.append(error)
        if place := begin_of_script(error.__traceback__):
            stay_main(place.tb_frame.f_globals)
        return end_by(error, order)
    left.append(found)
    stay_main(found)
    return Ending(DONE)


def stay_main(names: dict[str, Any]) -> None:
    """Has `__main__` be the script while threads and handlers still run."""
    module = types.ModuleType("__main__")
    module.__dict__.update(names)
    sys.modules["__main__"] = module


def ending_of(error: BaseException) -> Ending:
    """How a script ended that did not come to its end."""
    if isinstance(error, Finished):
        return Ending(FINISHED)
    if isinstance(error, Unrecorded):
        return Ending(FAILED, problem=str(error))
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return Ending(DONE)
        return Ending(EXITED, f"it ended by sys.exit({error.code!r})")
    return Ending(RAN_OUT if any(map(is_of_memory, chain(error))) else FAILED, described(error))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it comes of."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def is_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, by PyTorch or by a library."""
    kind, text = type(error).__name__, message_of(error)
    return kind == "OutOfMemoryError" or "out of memory" in text or "ALLOC_FAILED" in text


def described(error: BaseException) -> str:
    """An exception as Python names it, with the first line of its message that has words."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    message = next((line for line in message_of(error).splitlines() if any(map(str.isalnum, line))), "").strip(" :")
    return f"{name}: {message}" if message else name


def message_of(error: BaseException) -> str:
    """The message of an exception, whose own function for that may fail."""
    try:
        return str(error)
    except Exception:
        return ""


def end_by(error: BaseException, order: Order) -> Ending:
    """The same; shows what Python would have shown of it, such as an exception's traceback."""
    ending = ending_of(error)
    if isinstance(error, SystemExit) and ending.error and not isinstance(error.code, int):
        print(error.code, file=sys.stderr)
    if ending.ended not in (FAILED, RAN_OUT) or ending.problem:
        return ending
    place = begin_of_script(error.__traceback__)
    if place is None and isinstance(error, ImportError):
        return Ending(FAILED, problem=f"-m {order.script}: {error}")
    # As Python would have for the script alone, without our frames.
    leaving.flush()
    traceback.print_exception(type(error), error, place)
    return ending


def begin_of_script(place: TracebackType | None) -> TracebackType | None:
    """The first place of a traceback that is not ours; None if the script did not begin."""
    ours = {os.path.abspath(__file__), runpy.__file__, "<frozen runpy>"}
    while place is not None and place.tb_frame.f_code.co_filename in ours:
        place = place.tb_next
    return place


def peak_host_memory() -> int:
    """Bytes of memory that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
