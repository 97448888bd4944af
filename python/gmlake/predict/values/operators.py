"""An operator: what happens at a call of one of PyTorch's CUDA operators on the virtual GPU.

It is called first as it is, on the device: it makes its requests for memory, and its kernels do nothing. Then, if
every tensor that it reads is of integers, or is small and known, it is called again on the host's view of the same
memory, and the results are written there. Floats that are unknown stay so, except where integers or booleans come out
of them (`topk`, `argmax`, comparisons): these are computed of the assumption.

Those that bring values to the host, copy them, or return as many elements as a value says are `transfers`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch import Tensor

from . import draws, equivalents, families, host, presumed, scalars
from .routing import CHOOSE, is_router
from .shadow import ASSUMED, ROUNDED, SURE, clear, prepare, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from . import Values
    from .shadow import Shadow

MIB = 1 << 20
MANY = 256 * MIB  # of storage that may be known
FEW = MIB >> 4
FEW_LISTED = 16  # elements of each tensor in a list, such as the steps that an optimizer has made
LARGE = 32 << 10  # elements, from which on results are written at once and not copied
CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
INTEGERS = host.INTEGERS
MASKS = (torch.bool, torch.uint8)
INDEXING = ("argmax", "argmin")

# In place, and what was there before is not read.
OVERWRITING = frozenset(
    "fill_ zero_ copy_ random_ uniform_ normal_ bernoulli_ exponential_ geometric_ cauchy_"
    " log_normal_".split()
)


def in_backward() -> bool:
    """Whether autograd computes gradients on this thread; not when it computes a forward again."""
    return torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()


def is_made(tensor: Tensor) -> bool:
    """Whether the forward pass made this tensor; a view of a weight has a `grad_fn`, too, and is none."""
    whole = tensor if tensor._base is None else tensor._base
    return whole.grad_fn is not None


def repeats(tensor: Tensor) -> bool:
    """Whether several elements have the same memory, by an expanded dimension."""
    return 0 in tensor.stride() and any(
        size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride())
    )


def some_values(count: int) -> str:
    """How many values, in words."""
    return "a value" if count == 1 else f"{count:,} values"


def first_words(error: Exception) -> str:
    """An error's message, shortened to a line."""
    return str(error).split("\n")[0].split(". ")[0][:100]


class Limits:
    """Up to which size tensors are computed, in bytes, and floats are turned into integers, in elements.

    Integers of 32 and 64 bits are mostly indices, such as the edges of a graph; smaller ones may be weights. A mask may have
    as many elements as the indices of which it is made. Floats are seldom asked for: where many are known already, only the
    smallest are computed.
    """

    def __init__(self, shadow: Shadow, everything: bool = False, forward: bool = False) -> None:
        """`everything` is computed, without gradients if `forward`."""
        endless, self.forward = 1 << 62, forward
        self.shadow = shadow
        self.indices = endless if everything else 1024 * MIB
        self.masks = endless if everything else 256 * MIB
        self.integers = endless if everything else 32 * MIB
        self.floats = endless if everything else MIB
        self.decided = endless if everything else 8 * MIB
        self.everything = everything

    def of(self, dtype: torch.dtype) -> int:
        """Bytes that a tensor of this type may have."""
        if dtype not in INTEGERS:
            many = self.shadow.bytes > MANY and not self.everything
            return FEW if many else self.floats
        if dtype == torch.bool:
            return self.masks
        return self.indices if dtype.itemsize >= 4 else self.integers


class Operator:
    """One overload of an operator: what its schema says that matters here, and its CUDA kernel."""

    def __init__(self, overload: Any, kernel: Any, values: Values) -> None:
        self.overload, self.call = overload, kernel.call_boxed
        self.values, self.shadow, self.limits = values, values.shadow, values.limits
        arguments = overload._schema.arguments
        written = [
            (i, a)
            for i, a in enumerate(arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]
        self.name = overload._schema.name.split("::")[1]
        self.variant = str(overload).partition(".")[2]
        self.written = [i for i, a in written if not a.kwarg_only]
        self.outs = [a.name for _, a in written if a.kwarg_only]
        returns = overload._schema.returns
        self.new_results = {i for i, r in enumerate(returns) if r.alias_info is None}
        self.random = any(a.name == "generator" for a in arguments)
        self.overwriting = self.name in OVERWRITING
        self.numbers = scalars.positions(overload._schema)
        self.listed = self.name.startswith(("_foreach", "_fused", "_amp_foreach"))
        self.sums = self.name in families.SUMS
        # Of a matrix that nobody knows, a decomposition succeeds: zero means that.
        self.succeeds = "linalg" in self.name
        self.equivalent = equivalents.of(self.name, overload._schema)
        into: tuple[Any, list[str]] = (None, []) if self.equivalent else host.writing(overload)
        self.into, self.into_names = into
        self.decides: bool | None = None  # whether integers come out of floats: learnt at the first call

    def replacement(self) -> Callable[..., Any]:
        """The function to register in place of the kernel."""
        return self.mutable if self.written or self.outs else self.fresh

    def device(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls the CUDA kernel."""
        for i in self.numbers:
            if i < len(args) and type(args[i]) in scalars.TYPES:
                return scalars.call(self.call, CUDA, args, kwargs)
        return self.call(CUDA, *args, **kwargs)

    # Plain operators. Most calls are of large floats and must be through at once.

    def fresh(self, *args: Any, **kwargs: Any) -> Any:
        """A call that returns new tensors."""
        if self.decides is False and not self.sums and self.is_large_float(args):
            return self.device(args, kwargs)
        read = host.tensors(args) + host.tensors(kwargs.values())
        lost = self.is_lost(read)
        out = self.device(args, kwargs)
        results = host.results(out)
        if lost:
            self.decides = any(result.dtype in INTEGERS for result in results)
        if lost and self.name in INDEXING and self.is_last(args, kwargs, results):
            self.learn(results, ASSUMED)
        elif not lost or self.decides and self.may_decide(read):
            self.compute(args, kwargs, read, results, lost)
        elif self.decides and self.name in presumed.NAMES:
            self.presume(args, results)
        elif self.sums:
            self.forget(results)  # the zeros with which a sum begins
        return out

    def mutable(self, *args: Any, **kwargs: Any) -> Any:
        """A call that writes into tensors that exist."""
        if not self.shadow.blocks and self.is_large_float(args):
            return self.device(args, kwargs)
        own = host.tensors([args[i] for i in self.written if i < len(args)])
        if own and not self.overwriting and not any(map(repeats, own)):
            return self.in_place(own, args, kwargs)
        if self.random and own:
            self.values.quiet.begin = self.values.draws_from(kwargs.get("generator"))
        out = self.device(args, kwargs)
        written = own + host.tensors(kwargs[name] for name in self.outs if name in kwargs)
        skipped = self.written if self.overwriting else []
        inputs = [argument for i, argument in enumerate(args) if i not in skipped]
        inputs += [argument for name, argument in kwargs.items() if name not in self.outs]
        read = host.tensors(inputs)
        lost = self.is_lost(read)
        if self.is_computed(written, read, lost):
            self.compute(args, kwargs, read, written, lost)
        else:
            self.forget(written)
        return out

    def in_place(self, own: list[Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call that changes tensors. What it makes of them is found before the device is called:

        A CUDA kernel may work on a copy that it then writes back, without having computed it.
        """
        read = host.tensors(args) + host.tensors(kwargs.values())
        lost = self.is_lost(read)
        changed = None
        if self.is_computed(own, read, lost):
            changed = self.tried(self.change, own, args, kwargs)
        if changed is None:
            out = self.device(args, kwargs)
            if not self.limits.forward or in_backward():
                self.forget(own)  # otherwise by gradients, without which all stays as it was
            return out
        doubt = self.doubt(read, own, lost)
        with self.shadow.kept_assumptions(own):
            out = self.device(args, kwargs)
        results = own + [r for i, r in enumerate(host.results(out)) if i in self.new_results]
        self.keep(results, changed)
        self.learn(results, doubt)
        return out

    def change(self, own: list[Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Copies of the tensors after the operator has changed them, and its other results."""
        copies = {id(tensor): host.view(tensor).clone() for tensor in own}

        def seen(tensor: Tensor) -> Any:
            copy = copies.get(id(tensor))
            return self.seen(tensor) if copy is None else copy

        found = host.results(self.on_host(self.overload, args, kwargs, seen))
        return list(copies.values()) + [r for i, r in enumerate(found) if i in self.new_results]

    def is_last(self, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Tensor]) -> bool:
        """Makes indices among values that nobody computed the last ones, if these are assumed; equal values have the first."""
        values = args[0]
        is_left = not self.values.assumption.is_last or is_router(values) or not values.numel()
        if is_left or not self.fit(results) or torch._C._cuda_isCurrentStreamCapturing():
            return False
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        count = values.numel() if dim is None or not values.dim() else values.shape[dim]
        prepare(results)
        host.view(results[0]).fill_(count - 1)
        return True

    def presume(self, args: Sequence[Any], results: Sequence[Tensor]) -> None:
        """A condition on values that are too many: presumed of as many as of a few."""
        if torch._C._cuda_isCurrentStreamCapturing():
            return
        share = self.tried(presumed.share, self, args)
        for result in () if share is None or math.isnan(share) else results:
            if result.numel() <= LARGE:
                host.view(result).fill_(share > 0.5)
                self.learn([result], ASSUMED)
            else:
                self.shadow.presume(result, share)

    def is_computed(self, written: Sequence[Tensor], read: Sequence[Tensor], lost: bool) -> bool:
        """Whether a call with these tensors is computed on the host."""
        if not self.may_write(written) or torch._C._cuda_isCurrentStreamCapturing():
            return False
        integers = any(tensor.dtype in INTEGERS for tensor in written)
        return not lost or integers and not self.succeeds and self.may_decide(read)

    def is_large_float(self, args: Sequence[Any]) -> bool:
        """Whether the first argument is a tensor of floats that is too large to be computed."""
        first = args[0] if args else None
        if type(first) in (list, tuple):
            first = first[0] if first else None
        return (
            isinstance(first, Tensor)
            and first.dtype not in INTEGERS
            and first.numel() * first.element_size() > self.limits.floats
        )

    def is_lost(self, read: Sequence[Tensor]) -> bool:
        """Whether one of these tensors is too large, or of floats or too many integers that are unknown."""
        limits = self.limits
        for tensor in read:
            size = tensor.numel() * tensor.element_size()
            if size > limits.of(tensor.dtype):
                return True
        on_device = [t for t in read if t.is_cuda and t.numel()]
        vague = [t for t in on_device if t.dtype not in INTEGERS or t.numel() > limits.decided]
        return not all(map(self.shadow.known, vague))

    def may_decide(self, read: Sequence[Tensor]) -> bool:
        """Whether unknown floats are few enough to be taken for something."""
        different = {id(tensor): tensor.numel() for tensor in read}
        return sum(different.values()) <= self.limits.decided

    def may_write(self, written: Sequence[Tensor]) -> bool:
        """Whether the results are small enough to be computed."""
        if self.listed and not self.limits.everything and any(tensor.numel() > FEW_LISTED for tensor in written):
            return False
        return self.fit(written)

    def fit(self, tensors: Iterable[Tensor]) -> bool:
        return all(self.fits(tensor) for tensor in tensors)

    def fits(self, tensor: Tensor) -> bool:
        """Whether this result is computed.

        Gradients are not: to remember that one is known would hold its storage, and autograd adds
        up in place only what is held nowhere else.
        """
        size = tensor.numel() * tensor.element_size()
        if size > self.limits.of(tensor.dtype):
            return False
        gradients = self.limits.everything and not self.limits.forward
        return tensor.dtype in INTEGERS or gradients or not (in_backward() or self.values.is_updating)

    def forget(self, written: Iterable[Tensor]) -> None:
        """Kernels have written here."""
        for tensor in written:
            self.shadow.forget(tensor)

    def learn(self, results: Iterable[Tensor], doubt: int) -> None:
        """The host has written here."""
        for tensor in results:
            if tensor.numel() and self.fits(tensor):
                self.shadow.learn(tensor, doubt)
        self.values.computed += 1

    def doubt(self, read: Sequence[Tensor], results: Sequence[Tensor], lost: bool) -> int:
        """How sure the results are that the host makes of what it reads."""
        if lost:
            return ASSUMED
        found = max((self.shadow.doubt(tensor) for tensor in read if tensor.is_cuda), default=SURE)
        rounds = self.limits.everything and all(any(map(torch.is_floating_point, each)) for each in (read, results))
        return max(found, ROUNDED) if rounds else found

    # The host's part.

    def tried(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's result, true if it has none; none if it fails, which is remembered."""
        try:
            found = function(*arguments)
        except Exception as error:
            self.values.failed[str(self.overload)] = first_words(error)
            return None
        return True if found is None else found

    def compute(
        self, args: Sequence[Any], kwargs: dict[str, Any], read: Sequence[Tensor], results: Sequence[Tensor], lost: bool
    ) -> None:
        """Calls the operator on the host and keeps its results."""
        fitting = [tensor for tensor in results if tensor.numel() and self.fits(tensor)]
        if not fitting or torch._C._cuda_isCurrentStreamCapturing():
            self.forget(results)
            return
        prepare(fitting)
        if self.tried(self.write, args, kwargs, results) is None:
            self.forget(results)
        else:
            self.learn(fitting, self.doubt(read, fitting, lost))
            if self.limits.forward and torch.is_grad_enabled() and any(t.requires_grad for t in read):
                for tensor in [*filter(is_made, read), *fitting]:
                    self.shadow.spend(tensor)

    def write(self, args: Sequence[Any], kwargs: dict[str, Any], results: Sequence[Tensor]) -> None:
        """Calls the operator on the host, whose results come into the memory of the device's."""
        if self.random and self.written and draws.draw(self.variant, host.view(args[0]), self.values.quiet.begin, args[1:]):
            return
        if self.is_zeroing(args):
            self.zero(args[0])
        elif self.written or self.outs:
            self.on_host(self.overload, args, kwargs)  # overwrites
        elif self.into and self.is_large(results) and not self.has_masks(args):
            outs = dict(zip(self.into_names, map(host.view, results)))
            self.on_host(self.into, args, {**kwargs, **outs})
        else:
            try:
                found = self.on_host(self.overload, args, kwargs)
            except (RuntimeError, NotImplementedError) as error:
                if "not implemented for" not in str(error):
                    raise
                found = self.on_host(self.overload, *host.map_tensors(host.wide, (args, kwargs)))
            self.keep(results, found)

    def is_large(self, results: Sequence[Tensor]) -> bool:
        """Whether the results are better written at once. None of them is undefined, for which there is nothing to write into."""
        return sum(map(Tensor.numel, results)) > LARGE and all(map(Tensor.numel, results)) and self.fit(results)

    def has_masks(self, args: Sequence[Any]) -> bool:
        """Whether this is an index by booleans: its result has a size of its own."""
        return self.name == "index" and any(tensor.dtype in MASKS for tensor in host.tensors(args[1:]))

    def is_zeroing(self, args: Sequence[Any]) -> bool:
        """Whether this writes zeros into a whole stretch of memory."""
        zero = (
            self.name == "zero_"
            or self.name == "fill_"
            and type(args[1]) in (int, float)
            and not args[1]
        )
        return zero and (args[0].is_contiguous() or not self.shadow.touched(args[0]))

    def zero(self, tensor: Tensor) -> None:
        """Makes a tensor read as zeros without a write to each page. One that was never written does already.

        Programs that time kernels clear as much as the GPU's cache holds before each.
        """
        if self.shadow.touched(tensor):
            clear(tensor.data_ptr(), span(tensor))

    def on_host(
        self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any], seen: Callable[[Tensor], Any] | None = None
    ) -> Any:
        """The operator's result from the host's view of its arguments."""
        seen = seen or self.routed(args) or self.seen
        args = host.map_tensors(seen, args)
        named: dict[str, Any] = host.map_tensors(seen, kwargs)
        for name in self.outs:
            if name in named and not named[name].numel():
                named[name] = named[name].clone()
        if self.random:
            named["generator"] = self.values.generator(named.get("generator"))
        overload = self.equivalent or overload
        if any(i < len(args) and type(args[i]) in scalars.TYPES for i in self.numbers):
            overload = scalars.on_cpu(overload)
        return host.call(overload, args, named)

    def seen(self, tensor: Tensor) -> Any:
        """What the host sees of an argument: its memory, or the assumption."""
        if not tensor.is_cuda or not tensor.numel() or self.shadow.touched(tensor):
            return host.view(tensor)
        if self.outs or self.written and (self.overwriting or repeats(tensor)):
            return host.view(tensor)
        if (share := self.shadow.presumed_share(tensor)) is not None:
            return self.values.assumption.booleans(tensor.shape, share)
        if self.name == "multinomial":
            return self.values.assumption.weights(tensor)
        return self.values.assumption.like(tensor)

    def routed(self, args: Sequence[Any]) -> Callable[[Tensor], Any] | None:
        """What the host sees of a router's scores that nobody computed; none of other operators."""
        if self.name not in CHOOSE:
            return None
        chosen, routing = args[1] if self.name == "topk" else 1, self.values.routing

        def seen(tensor: Tensor) -> Any:
            known = not tensor.is_cuda or not tensor.numel() or self.shadow.touched(tensor)
            if not is_router(tensor) or known and not self.limits.everything:
                return self.seen(tensor)
            self.values.routed += 1
            if known or not routing or not routing.fits(tensor):
                return self.seen(tensor)
            return routing.scores(tensor, chosen)

        return seen

    def keep(self, results: Sequence[Tensor], found: Any) -> None:
        """Writes what was found on the host into the results that fit."""
        for tensor, value in zip(results, host.results(found)):
            if tensor.numel() and value.numel() and self.fits(tensor):
                if tensor.shape != value.shape:
                    raise ValueError(
                        f"{list(tensor.shape)} on the device, {list(value.shape)} on the host"
                    )
                host.view(tensor).copy_(value)
