"""Unknown reads: where the program read a value that only a kernel of a real GPU could have written.

Each is a note: from there on the prediction is that of a program for which the assumption holds. The place is the
innermost line of the user's own files, or where there is none, the innermost line outside PyTorch. A backward pass runs
on threads of PyTorch's own, on which there may be no Python at all.
"""

from __future__ import annotations

import dis
import functools
import os
import re
import sys
import sysconfig
import threading
import time
from typing import TYPE_CHECKING

from .. import flow
from ..facts import COMPARED
from . import host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

    from ..facts import UnknownRead

PLAIN = "a value of"  # with which the words for a plain number begin
VALUES = re.compile(r"(a|[\d,]+) values? of ")  # what a program may look at, in words
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LIBRARIES = tuple(
    {
        os.path.realpath(path) + os.sep
        for path in map(sysconfig.get_path, ["stdlib", "platstdlib", "purelib", "platlib"])
    }
)


class UnknownReads:
    """The reads of one run, counted by place."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], list[int]] = {}  # (place, what): [count, bytes]
        self.lock = threading.Lock()

    def add(self, size: int, what: str) -> None:
        """One more read of `size` bytes, by the code that runs on this thread."""
        begin = time.thread_time_ns()
        where, through, compares, users = place()
        is_of_values = VALUES.match(what) is not None
        decides = COMPARED if compares and what.startswith(PLAIN) else flow.use(users) if is_of_values else ""
        key = where, what + through + decides
        host.leave_out(time.thread_time_ns() - begin)
        with self.lock:
            counted = self.found.setdefault(key, [0, 0])
            counted[0] += 1
            counted[1] += size

    def facts(self) -> list[UnknownRead]:
        """The most frequent first."""
        rows = sorted(self.found.items(), key=lambda row: -row[1][0])
        return [
            {"count": count, "bytes": size, "place": where, "what": what}
            for (where, what), (count, size) in rows
        ]


def place() -> tuple[str, str, bool, list[FrameType]]:
    """The line of Python that reads, as `file.py:123 in f`; the library's line if it reads by one; whether it compares; and
    the frames of the user's own code, the innermost first."""
    frames = list(_frames())
    own = list(filter(_is_users, frames))
    users = own[0] if own else None
    outside = next((frame for frame in frames if not _is_of_torch(frame)), None)
    innermost = users or outside or (frames[0] if frames else None)
    if innermost is None:
        return "PyTorch's own code" + (" in backward" if _in_backward() else ""), "", False, []
    through = f", through {_text(outside)}" if outside not in (None, innermost) else ""
    reader = outside or innermost
    backward = ", in backward" if _in_backward() and not users else ""
    return _text(innermost) + backward, through, _compares(reader.f_code, reader.f_lineno), own


def is_of_storage() -> bool:
    """Whether a whole storage is read, as bytes, whatever its tensors hold: to be saved or pickled."""
    innermost = next(_frames(), None)
    return innermost is not None and innermost.f_code.co_filename.endswith(os.path.join("torch", "storage.py"))


def _frames() -> Iterator[FrameType]:
    """Frames of this thread, the innermost first, without this package's own and without frozen modules."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((OURS, "<frozen")):
            yield frame
        frame = frame.f_back


def _is_users(frame: FrameType) -> bool:
    if _is_of_torch(frame):
        return False
    name = os.path.abspath(frame.f_code.co_filename)
    return not name.startswith(LIBRARIES) and not name.startswith("<")


def _is_of_torch(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return f"{os.sep}torch{os.sep}" in name or "torchinductor" in name  # or what it compiled


def _text(frame: FrameType) -> str:
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"


@functools.cache
def _compares(code: CodeType, line: int) -> bool:
    """Whether a line of a function compares anything."""
    lines, at = dict(dis.findlinestarts(code)), None
    for it in dis.get_instructions(code):
        at = lines.get(it.offset, at)
        if at == line and it.opname == "COMPARE_OP":
            return True
    return False


def _in_backward() -> bool:
    import torch

    return torch._C._current_graph_task_id() != -1
