"""The shadow: which bytes of device memory hold a value that the program could rely on.

Kernels do nothing on a virtual GPU, so most of its memory means nothing. The library keeps the set of known bytes:
what was copied from the host, what was set, and what `values` computed. This module asks it about tensors, and keeps
two rules:

- What is not known reads as zero. A block that held known bytes is cleared when PyTorch frees it, and a kernel that
  writes over known bytes clears them.
- A storage whose values are in doubt is remembered until it is freed: they rest on an assumption about unknown floats,
  or on floats that the host has computed, whose rounding is not the GPU's.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from typing import TYPE_CHECKING, Any

import torch

from .host import INTEGERS, available

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CLEAR_PAGES = 256 << 10  # from this size on, cleared pages go back to the host's system
RUNS = 4096  # the most stretches of a strided tensor that are looked at one by one
HUGE_PAGES = 4 << 20  # from this size on, memory is asked for in large pages
MADV_DONTNEED, MADV_HUGEPAGE = 4, 14
SURE, ROUNDED, ASSUMED = range(3)  # doubts
KEPT = 16  # storages that a forward pass is at work with
TRACKED = 1 << 20  # bytes of a storage, from which on its memory is given back where everything is computed


class Shadow:
    """What is known of the device memory of this process."""

    def __init__(self, library: Any, everything: bool = False, sharers: int = 0) -> None:
        """`sharers`: processes among which the host's memory is shared out; 0: it is not limited."""
        self.everything = everything  # all kernels are computed: no need to know when one may be
        self.room = available() // 2 // sharers if sharers else 0  # bytes that known storages may take
        self.spent: dict[int, None] = {}  # storages that only a backward pass may still read, the oldest first
        self.library = library
        self.is_known = _function(library, "gmlake_gpu_is_known", ctypes.c_int)
        self.mark_known = _function(library, "gmlake_gpu_known", None)
        self.mark_unknown = _function(library, "gmlake_gpu_unknown", None)
        self.bytes = 0  # of these blocks:
        # Of storages that may hold known bytes, by base address: size, a weak reference.
        self.blocks: dict[int, tuple[int, Any]] = {}
        # Of storages of booleans, by base address: the share of them that is taken for true, a weak reference.
        self.presumed: dict[int, tuple[float, Any]] = {}
        self.doubts: dict[int, int] = {}  # of storages that are not sure, by base address

    def known(self, tensor: torch.Tensor) -> bool:
        """Whether every element has a value that was computed, copied or set."""
        if not self.touched(tensor):
            return False
        if self.is_known(tensor.data_ptr(), span(tensor)):
            return True
        pieces = runs(tensor)
        return len(pieces) > 1 and all(self.is_known(at, size) for at, size in pieces)

    def touched(self, tensor: torch.Tensor) -> bool:
        """Whether anything of the tensor's storage may be known."""
        if self.everything or base(tensor) in self.blocks:
            return True
        found = tensor.dtype in INTEGERS and tensor.numel() and self.is_known(tensor.data_ptr(), span(tensor))
        if found:
            self.hold(tensor)  # from another rank, or copied inside an operator
        return bool(found)

    def doubt(self, tensor: torch.Tensor) -> int:
        """How sure the elements are: SURE, ROUNDED or ASSUMED."""
        if tensor.numel() and not self.known(tensor):
            return ASSUMED
        return self.doubts.get(base(tensor), SURE)

    def learn(self, tensor: torch.Tensor, doubt: int = SURE) -> None:
        """The host has written this tensor's elements."""
        at = base(tensor)
        self.presumed.pop(at, None)
        self.hold(tensor)
        if doubt:
            self.doubts[at] = max(doubt, self.doubts.get(at, SURE))
        elif tensor.nbytes == tensor.untyped_storage().nbytes():
            self.doubts.pop(at, None)
        for piece, size in runs(tensor):
            self.mark_known(piece, size)

    def hold(self, tensor: torch.Tensor) -> None:
        """The block of this tensor may hold known bytes from now on, until its storage is freed."""
        at = base(tensor)
        if at not in self.blocks and self.is_tracked(tensor):
            storage = tensor.untyped_storage()
            gone = weakref.ref(storage, lambda reference: self.freed(at, reference))
            self.blocks[at] = storage.nbytes(), gone
            self.bytes += storage.nbytes()

    def is_tracked(self, tensor: torch.Tensor) -> bool:
        """Whether it must be known when this tensor's storage is freed."""
        return not self.everything or bool(self.room) and tensor.untyped_storage().nbytes() >= TRACKED

    def spend(self, tensor: torch.Tensor) -> None:
        """The forward pass has just made or read this tensor, and may not need it again.

        What no backward pass is computed for would fill the host's memory: the oldest are forgotten.
        """
        at = base(tensor)
        if at in self.blocks:
            self.spent.pop(at, None)
            self.spent[at] = None
        while self.bytes > self.room and len(self.spent) > KEPT:
            self.freed(next(iter(self.spent)), None)

    def presume(self, tensor: torch.Tensor, share: float) -> None:
        """This share of a tensor's elements is taken for true, though its memory says nothing."""
        at, storage = base(tensor), tensor.untyped_storage()
        self.presumed[at] = share, weakref.ref(storage, lambda _: self.presumed.pop(at, None))

    def presumed_share(self, tensor: torch.Tensor) -> float | None:
        """Which share of these booleans is taken for true; none where nothing is presumed."""
        found = self.presumed.get(base(tensor)) if self.presumed and tensor.dtype == torch.bool else None
        return found[0] if found else None

    @contextlib.contextmanager
    def kept_assumptions(self, tensors: Iterable[torch.Tensor]) -> Iterator[None]:
        """What is written into these tensors within this, and replaced after it, assumes nothing."""
        free = {base(tensor) for tensor in tensors} - self.doubts.keys()
        yield
        for at in free:
            self.doubts.pop(at, None)

    def forget(self, tensor: torch.Tensor) -> None:
        """A kernel has written this tensor's elements, which are unknown from now on."""
        if self.presumed:
            self.presumed.pop(base(tensor), None)
        if not self.blocks and not self.everything or not self.touched(tensor):
            return
        for at, size in runs(tensor):
            clear(at, size)
            self.mark_unknown(at, size)

    def freed(self, at: int, reference: Any) -> None:
        """PyTorch has freed the storage that began here."""
        size, current = self.blocks.get(at, (0, None))
        if current is reference or reference is None:
            self.spent.pop(at, None)
            del self.blocks[at]
            self.bytes -= size
            self.doubts.pop(at, None)
            clear(at, size)
            self.mark_unknown(at, size)


def _function(library: Any, name: str, result: Any) -> Any:
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t], result
    return function


def base(tensor: torch.Tensor) -> int:
    """The address at which the tensor's storage begins."""
    return tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()


def span(tensor: torch.Tensor) -> int:
    """The bytes from the first to the last element."""
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def runs(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """The tensor's elements as stretches of memory, (address, bytes); all as one where they would be too many."""
    whole = [(tensor.data_ptr(), span(tensor))]
    if tensor.is_contiguous() or not tensor.numel():
        return whole
    item = tensor.element_size()
    dims = sorted(
        (stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1 and stride
    )
    length, starts = 1, [0]
    for stride, size in dims:
        if stride <= length:
            length += stride * (size - 1)
        elif len(starts) * size > RUNS:
            return whole
        else:
            starts = [start + index * stride for index in range(size) for start in starts]
    return [(tensor.data_ptr() + start * item, length * item) for start in starts]


def clear(at: int, size: int) -> None:
    """Makes memory read as zero; large stretches are given back to the host's system."""
    first, end = _pages(at, size)
    if size < CLEAR_PAGES or _madvise(first, end - first, MADV_DONTNEED):
        ctypes.memset(at, 0, size)
        return
    ctypes.memset(at, 0, first - at)
    ctypes.memset(end, 0, at + size - end)


def prepare(tensors: Iterable[torch.Tensor]) -> None:
    """Before much is written: memory that comes in large pages comes several times as fast."""
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if size >= HUGE_PAGES and tensor.is_cuda:
            first, end = _pages(tensor.data_ptr(), size)
            _madvise(first, end - first, MADV_HUGEPAGE)


def _pages(at: int, size: int) -> tuple[int, int]:
    """The whole pages within a stretch of memory: the first's address, and the end of the last."""
    page = mmap.PAGESIZE
    return -(-at // page) * page, (at + size) // page * page


_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
