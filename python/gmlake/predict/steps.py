"""Steps: the optimizer's, counted, and the end of a script after as many as were asked for.

A step is one call of an optimizer's `step`, so that gradient accumulation counts once. Of several
optimizers the one that has made most steps counts: two that take turns make one step a round.
DeepSpeed's engine calls its optimizer once for each group of parameters, so its own steps count.

How long a step takes is estimated: from when all was done that was queued up to the end of the step before to when all
is done that is queued now, on the virtual GPU's clock. The first begins with the script.

    host     ──launch──launch──│step 1 ends──launch──launch──│step 2 ends
    GPU          ├─ kernel ─┤├─ kernel ─────┤├─ kernel ─┤├─ kernel ─────┤
    seconds  ├──────────── step 1 ──────────┤├──────── step 2 ──────────┤
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable

from .._imports import WhenImported
from . import library

if TYPE_CHECKING:
    from types import ModuleType

    from .facts import Stepped


class Finished(BaseException):
    """As many steps are done as were asked for. No `except Exception` catches this."""


class Steps:
    """Counts the steps of all optimizers of this process, those to come included."""

    def __init__(self, limit: int | None) -> None:
        """Ends the script after `limit` steps: calls `finished`, or raises `Finished`. `gone_on` is called at the next step of
        a script that has caught that."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.done = 0
        self._begin_ns = library.all_done_ns()
        self._ends_ns: list[int] = []
        self._moments_us: list[int] = []
        self.finished: Callable[[], object] | None = None
        self.gone_on: Callable[[], object] | None = None
        self._ended: set[int] = set()  # threads that were ended
        self._limit, self._in_engine = limit, False
        self._counts: Counter[int] = Counter()
        register_optimizer_step_post_hook(self._after_step)
        WhenImported("deepspeed.runtime.engine", self._watch_engine)

    def _after_step(self, optimizer: object, _arguments: object, _options: object) -> None:
        if not self._in_engine:
            self._count(optimizer)

    def _watch_engine(self, module: ModuleType) -> None:
        """Counts what DeepSpeed's engine calls a step."""
        step = module.DeepSpeedEngine._take_model_step

        def counted(engine: object, *arguments: Any, **options: Any) -> None:
            self._in_engine = True
            try:
                step(engine, *arguments, **options)
            finally:
                self._in_engine = False
            self._count(engine)

        module.DeepSpeedEngine._take_model_step = counted

    def _count(self, stepper: object) -> None:
        if self._ended:
            self._end_again(threading.get_ident())
        self._counts[id(stepper)] += 1
        if self._counts[id(stepper)] > self.done:
            self.done += 1
            self._ends_ns.append(library.all_done_ns())
            self._moments_us.append(time.time_ns() // 1000)
        if self._limit is not None and self.done >= self._limit:
            self._ended.add(threading.get_ident())
            if self.finished:
                self.finished()
            if threading.current_thread() is not threading.main_thread():
                end_main_thread()
            raise Finished

    def _end_again(self, thread: int) -> None:
        """Ends another thread, or one that goes on since a bare `except:` has caught the end."""
        if thread in self._ended and self.gone_on:
            gone_on, self.gone_on = self.gone_on, None
            if thread == threading.main_thread().ident:
                gone_on()
            print(f"gmlake: a thread of the script has caught its end after --steps {self._limit}, and goes on",
                  file=sys.stderr, flush=True)
        self._ended.add(thread)
        raise Finished

    def close(self) -> None:
        """The script has ended: threads that are left end nothing any more."""
        self._limit = None
        self._ended.clear()

    def facts(self) -> Stepped:
        """How many, the estimated seconds of each, and when each ended by the clock of the snapshot's entries."""
        begins = [self._begin_ns, *self._ends_ns]
        seconds = [round((end - begin) / 1e9, 6) for begin, end in zip(begins, self._ends_ns)]
        return {"steps": self.done, "step_seconds": seconds, "step_end_us": self._moments_us}


def end_main_thread() -> None:
    """Raises `Finished` in the main thread as soon as it runs, and has it end other threads without a word."""
    usual = threading.excepthook

    def hook(given: threading.ExceptHookArgs) -> None:
        if given.exc_type is not Finished:
            usual(given)

    threading.excepthook = hook
    main = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(Finished))
