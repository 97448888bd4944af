"""Memory that sleeps: it goes back to the driver, for others to use, and its addresses stay.

    with gmlake.tag("weights"):
        model = Model().cuda()
    gmlake.sleep(tags=["weights"])       # its contents wait in host memory
    rollout()
    gmlake.wake(tags=["weights"])        # the same tensors, at the same addresses
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING

from . import _plugin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Tags = str | Iterable[str] | None


def _mount() -> ctypes.CDLL:
    if _plugin.state.mount is None:
        raise _plugin.NotEnabled("gmlake: sleep, wake and tag need the full mount; see gmlake.mounted()")
    return _plugin.state.mount


def _call(name: str, *arguments: object) -> int:
    """Calls a function of the mount that writes how many bytes it was about, and what went wrong."""
    function = getattr(_mount(), name)
    function.restype = ctypes.c_size_t
    size = ctypes.c_uint64()
    message = ctypes.create_string_buffer(4096)
    if function(*arguments, ctypes.byref(size), message, ctypes.c_size_t(4096)):
        raise RuntimeError(message.value.decode())
    return size.value


def _names(tags: Tags) -> ctypes.c_char_p:
    names = [tags] if isinstance(tags, str) else list(tags or [])
    wrong = [name for name in names if not isinstance(name, str) or not name or "," in name]
    if wrong:
        raise ValueError(f"gmlake: invalid tag {wrong[0]!r}; a tag is a text, is not empty and has no comma")
    return ctypes.c_char_p(",".join(names).encode())


@contextlib.contextmanager
def tag(name: str) -> Iterator[None]:
    """What this thread puts on a GPU inside the block has memory of its own, which can sleep by itself."""
    _names([name])
    _mount()
    library = _plugin.library()
    library.gmlake_tag.restype = library.gmlake_use_tag.restype = ctypes.c_uint32
    before = library.gmlake_use_tag(library.gmlake_tag(ctypes.c_char_p(name.encode())))
    try:
        yield
    finally:
        library.gmlake_use_tag(before)


def sleep(level: int = 1, tags: Tags = None) -> int:
    """Gives the GPU memory of this process back, or that of some tags, and returns how many bytes that were.

    Addresses stay. Level 1 keeps the contents in pinned host memory; level 2 drops them. Tensors must not be used until
    `wake`; those that are made meanwhile get memory of their own, which stays awake. Memory of CUDA graphs and of
    `torch.cuda.MemPool` stays, too. Raises RuntimeError during a capture, or if there is no host memory.
    """
    if level not in (1, 2):
        raise ValueError(f"gmlake: invalid level {level!r}; expected 1 (keep contents) or 2 (drop them)")
    return _call("gmlake_sleep", ctypes.c_int(level), _names(tags))


def wake(tags: Tags = None) -> int:
    """Gives memory back to what sleeps, or to some tags, with what was kept in it; returns how many bytes.

    Raises RuntimeError if there is not enough memory: what does not fit sleeps on.
    """
    return _call("gmlake_wake", _names(tags))


def free_host() -> int:
    """Gives the pinned host memory back that sleeps kept contents in, and that is kept for the next; returns the bytes."""
    function = _mount().gmlake_free_host
    function.restype = ctypes.c_uint64
    return int(function())
