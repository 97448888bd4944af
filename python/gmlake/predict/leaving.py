"""The end of a process as Python has it: what a script has begun comes to its end first, and then the facts are taken.

    last line ──▶ threads are joined ──▶ atexit: processes of `multiprocessing` are joined, handlers run ──▶ facts
    os._exit, os.exec* ────────────────────────────────────────────────────────────────────────────────────▶ facts

A script that fails or has made its steps gives no more facts: its handlers run afterwards, and have some seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable

from .facts import DONE, EXITED, REPLACED, Ending

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 10  # seconds after which a wait is told of, or handlers are given up

USUAL = os._exit

PR_SET_PDEATHSIG = 1

# What is called in a process, by its number, before it ends by `os._exit` or another program takes its place.
LEAVERS: dict[int, Callable[[Ending], object]] = {}


def complete() -> None:
    """Waits for threads and processes as Python does at its end, and runs the handlers; a long wait is told of."""
    with after(PATIENCE, tell_of_wait):
        threading._shutdown()  # type: ignore[attr-defined]
        run_handlers()


def complete_soon(give_up: Callable[[], object]) -> None:
    """Ends processes of `multiprocessing` and runs the handlers; `give_up` is called when that takes long."""
    with after(PATIENCE, give_up):
        for process in processes():
            with contextlib.suppress(Exception):
                process.terminate()
        run_handlers()


def run_handlers() -> None:
    """Runs the handlers of `atexit`, which prints what they raise."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()


@contextlib.contextmanager
def after(seconds: float, call: Callable[[], object]) -> Iterator[None]:
    """Has `call` called in a thread if the block takes longer."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tell_of_wait() -> None:
    """Says what keeps the script from its end."""
    threads = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    names = threads or [process.name for process in processes() if not process.daemon] or ["its atexit handlers"]
    print(f"gmlake: the script's last line has run; as Python does, predict waits for {', '.join(names)}",
          file=sys.stderr, flush=True)


def processes() -> list[Any]:
    """Those that `multiprocessing` has started here and not joined."""
    module = sys.modules.get("multiprocessing.process")
    return list(module._children) if module else []


def flush() -> None:
    """Writes out what was printed; a script may have closed these files, or set them to None."""
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            file.flush()


def watch(leave: Callable[[Ending], object]) -> None:
    """Has `leave` called with the ending before this process ends by `os._exit`, or becomes another program."""
    LEAVERS[os.getpid()] = leave
    if os._exit is USUAL:
        os._exit = _exit  # type: ignore[assignment]
        os.execv, os.execve = replaced_by(os.execv), replaced_by(os.execve)  # those with other names call these


def unwatch() -> None:
    """This process ends now, however it does."""
    LEAVERS.pop(os.getpid(), None)


def end_with_parent() -> None:
    """Has this process killed when the one that started it is gone, even by SIGKILL, where the system is Linux."""
    import ctypes  # other processes need none of it

    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def leave_fork(ending: Ending) -> None:
    """Ends a process that was forked, and has come to the end of the script."""
    leave = LEAVERS.get(os.getpid())  # none where it has forgotten its environment
    if leave and ending.error:
        leave(ending)  # before the handlers, of which one takes this for a good end
    complete()
    if leave:
        leave(ending)
    flush()
    USUAL(1 if ending.error else 0)


def _exit(status: int) -> None:
    if leave := LEAVERS.pop(os.getpid(), None):
        leave(Ending(EXITED, f"its process ended early, with exit code {status}") if status else Ending(DONE))
    USUAL(status)


def replaced_by(usual: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with the facts taken before; one who looks for a program along a path tries files that are not there."""

    def execute(path: Any, *given: Any) -> Any:
        if (isinstance(path, int) or os.access(path, os.X_OK)) and (leave := LEAVERS.pop(os.getpid(), None)):
            leave(Ending(REPLACED))
        return usual(path, *given)

    return execute
