"""Values: what the tensors of a program hold while it runs on a virtual GPU, whose kernels do nothing.

What decides how a program goes on, and so which memory it asks for, is mostly integers: ids, masks, positions, lengths,
indices. These are small, so they are computed for real, on the host, in the memory that the device's tensors have. Each
CUDA operator of PyTorch is replaced by one that calls it and then computes, where it can (`operators`):

    torch.nonzero(mask)                                         the program, PyTorch, autograd
      └─▶ aten::nonzero, CUDA ─▶ Operator.count                 its count is known to the host first
             ├─ the same on the host's view of `mask`           `host`
             ├─ the CUDA kernel: requests memory, reads the     `readbacks`: the library delivers
             │  count back                                      what the host counted
             └─ the indices into the memory of the result       `shadow`: these bytes are known now

The replaced kernels lie below autograd and below `torch.compile`, so that neither takes another path than without them.
What a program reads though it was never computed is counted with its place (`unknown`), and taken for zero or
whatever is asked for (`assumption`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..facts import COPIED
from ..order import COMPUTED, FORWARD, INTEGERS, OFF
from . import draws, families, host, spared, sparse, transfers
from .assumption import Assumption
from .exchange import Exchange
from .fetched import Fetched
from .operators import Limits, Operator
from .shadow import ASSUMED, Shadow
from .transfers import Transfer
from .unknown import UnknownReads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .routing import Routing


def mode(
    kind: str = INTEGERS, assume: str = "zeros", routing: Routing | None = None, post: str | None = None, serves: bool = False
) -> Off | Values:
    """A context in which values are computed. `post` is the folder where ranks meet that run together.

    In a process that `serves`, many integers are packed weights, of which nothing hangs.
    """
    if kind == OFF:
        return Off()
    found = Values(kind, assume, routing, post)
    if serves and kind == INTEGERS:
        found.limits.indices = found.limits.floats
    return found


class Off(contextlib.nullcontext[None]):
    """Nothing is computed, and nothing noticed."""

    routed = 0

    def reads_of(self) -> dict[str, Any]:
        """Nothing is known of them."""
        return {"unknown_reads": None, "computed_reads": None, "assume": None}


class Values:
    """The replaced operators, and what they have found out."""

    def __init__(
        self, kind: str, assume: str, routing: Routing | None = None, post: str | None = None
    ) -> None:
        self.library = Library()
        everything, self.forward = kind in COMPUTED, kind == FORWARD
        sharers = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if post else 1
        self.shadow = Shadow(self.library.functions, everything, sharers if self.forward else 0)
        self.limits = Limits(self.shadow, everything, self.forward)
        self.post = post if everything else None
        self.is_updating = False  # within an optimizer's step, which changes no weights where gradients are not computed
        if everything:
            host.most_threads = max(1, len(os.sched_getaffinity(0)) // sharers)
        self.assumption, self.routing = Assumption(assume), routing
        self.reads, self.computed_reads = UnknownReads(), UnknownReads()
        self.fetched = Fetched(self.noted)
        self.computed = 0
        self.routed = 0  # choices of experts by scores that are not sure
        self.failed: dict[str, str] = {}  # operators that the host could not compute, and why
        self.quiet = threading.local()
        self.hooks: list[Any] = []
        self.exchange: Exchange | None = None
        self.registered: dict[str, Any] = {}  # namespace: torch.library.Library
        self.spared: torch.library.Library | None = None

    def __enter__(self) -> Values:
        names = torch._C._dispatch_get_all_op_names()
        self.replace(name for name in names if name.startswith("aten::"))
        sparse.replace(self, self.registered["aten"])
        self.library.on_unknown_read(self.unseen_read)
        if self.post and torch.distributed.is_available():
            self.exchange = Exchange(self.post, self.shadow)
        if self.forward:
            self.hooks = [
                register_optimizer_step_pre_hook(lambda *_: self.update(True)),
                register_optimizer_step_post_hook(lambda *_: self.update(False)),
            ]
        self.load, torch.ops.load_library = torch.ops.load_library, self.load_library
        return self

    def __exit__(self, *error: object) -> None:
        torch.ops.load_library = self.load
        self.library.on_unknown_read(None)
        for registered in self.registered.values():
            registered._destroy()
        if self.spared:
            self.spared._destroy()
        self.fetched.close()
        if self.exchange:
            self.exchange.close()
        for hook in self.hooks:
            hook.remove()
        self.registered, self.spared = {}, None

    def update(self, begins: bool) -> None:
        """An optimizer's step begins or ends."""
        self.is_updating = begins

    def reads_of(self) -> dict[str, Any]:
        """Places at which the program read what was never computed, and what the host computed, the most frequent first; and
        what the former got."""
        reads = {"unknown_reads": self.reads.facts(), "computed_reads": self.computed_reads.facts()}
        return {**reads, "assume": self.assumption.kind}

    def noted(self, doubt: int, size: int, what: str) -> None:
        """The program reads bytes that are not sure."""
        (self.reads if doubt == ASSUMED else self.computed_reads).add(size, what)

    def load_library(self, path: str) -> None:
        """PyTorch's own, after which the operators that came with it are replaced too."""
        before = set(torch._C._dispatch_get_all_op_names())
        self.load(path)
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        came = set(torch._C._dispatch_get_all_op_names()) - before
        self.replace(name for name in came if has(name, "CPU"))

    def replace(self, names: Iterable[str]) -> None:
        """Replaces the CUDA kernels of these operators where values may matter."""
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        for name in names:
            if has(name, "CUDA") or name == "aten::copy_":
                self.replace_one(name)

    def replace_one(self, name: str) -> None:
        space, _, rest = name.partition("::")
        base, _, variant = rest.partition(".")
        overload = getattr(getattr(getattr(torch.ops, space), base), variant or "default")
        if families.is_left(name, overload._schema.is_mutable, self.limits.everything):
            return
        kind = Transfer if base in transfers.NAMES else Operator
        operator = kind(overload, torch.library.get_kernel(name, "CUDA"), self)
        if space not in self.registered:
            self.registered[space] = torch.library.Library(space, "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.registered[space].impl(name, operator.replacement(), "CUDA")

    def spare(self) -> None:
        """From now on, large zeros of the host need no memory."""
        if self.spared is None:
            self.spared = spared.replacements(self.library.functions)

    def generator_of_gpu(self, asked: Any) -> torch.Generator:
        """The generator with which a kernel draws."""
        if asked is not None and asked.device.type == "cuda":
            return asked
        return torch.cuda.default_generators[torch.cuda.current_device()]

    def draws_from(self, asked: Any) -> draws.State:
        """Where that generator stands."""
        return draws.state(self.generator_of_gpu(asked), torch.cuda.current_device())

    def generator(self, asked: Any) -> torch.Generator:
        """A generator for the host that draws the same where the device's would draw the same."""
        device = self.generator_of_gpu(asked)
        seed = device.initial_seed() * 0x9E3779B97F4A7C15 + device.get_offset()
        return torch.Generator("cpu").manual_seed(seed % (1 << 63))

    def unseen_read(self, _at: int, size: int) -> None:
        """The library's report of a copy to the host of unknown bytes."""
        if not self.is_noticed():
            self.reads.add(size, COPIED)

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        """Within this, the library's reports are of what is noticed already."""
        before, self.quiet.on = self.is_noticed(), True
        try:
            yield
        finally:
            self.quiet.on = before

    def is_noticed(self) -> bool:
        """Whether reads on this thread are noticed already."""
        return getattr(self.quiet, "on", False)


class Library:
    """The functions of the virtual GPU that concern values."""

    def __init__(self) -> None:
        self.functions = ctypes.CDLL(None)
        self.expect_read = self.functions.gmlake_gpu_expect_read
        self.expect_read.argtypes, self.expect_read.restype = (
            [ctypes.c_size_t, ctypes.c_uint64],
            None,
        )
        self.callback: Any = None

    @contextlib.contextmanager
    def answer(self, size: int, value: int) -> Iterator[None]:
        """Within this, the first copy to the host of this many bytes delivers this value."""
        self.expect_read(size, value)
        try:
            yield
        finally:
            self.functions.gmlake_gpu_expect_nothing()

    def on_unknown_read(self, function: Callable[[int, int], object] | None) -> None:
        """Reports copies to the host of bytes that are not known, or no longer."""
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
        self.callback = kind(function) if function else None
        self.functions.gmlake_gpu_on_unknown_read(self.callback)
