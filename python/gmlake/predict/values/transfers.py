"""Transfers: operators that bring values to the host, that copy them, and those whose result has a size that is a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import host, presumed, unknown
from .operators import INTEGERS, MIB, Operator, in_backward, some_values
from .readbacks import READBACKS
from .shadow import prepare
from .spared import LARGE as LARGE_ON_HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMES = frozenset(["_local_scalar_dense", "copy_", *READBACKS])

COUNTED = 4  # bytes of a count of what is not zero
PICKLED = (b"\x80", b"PK\3\4")  # how pickles begin, and files of torch.save
LARGEST = 1 << 30  # bytes of an object that ranks send each other


class Transfer(Operator):
    """One of these; an overload that writes into a given tensor is plain."""

    def replacement(self) -> Callable[..., Any]:
        """The function to register in place of the kernel."""
        kinds: dict[str, Callable[..., Any]] = {"_local_scalar_dense": self.read, "copy_": self.copy}
        special = kinds.get(self.name)
        if special or self.written or self.outs:
            return special or self.mutable
        return self.count

    def count(self, *args: Any, **kwargs: Any) -> Any:
        """A call that returns as many elements as a kernel has counted."""
        read = host.tensors(args)
        lost = self.is_lost(read)
        if self.values.is_noticed() or torch._C._cuda_isCurrentStreamCapturing():
            return self.device(args, kwargs)
        too_many = lost and not self.may_decide(read)
        # What is not zero is counted first and found at once where the result lies, which may be larger than the rest.
        condition = self.seen(args[0]) if self.name == "nonzero" and not too_many else None
        if too_many:
            size, value = self.tried(presumed.count, self, args, kwargs) or (COUNTED, 0)
        elif condition is None:
            found = self.on_host(self.overload, args, kwargs)
            size, value = READBACKS[self.name](host.map_tensors(host.view, args), found)
        else:
            size, value = COUNTED, int(host.call(torch.ops.aten.count_nonzero, (condition,), {}))
        doubt = self.doubt(read, (), lost)
        if doubt and read[0].numel():
            self.values.noted(doubt, size, f"size of {self.name}")
        with self.values.noticed(), self.values.library.answer(size, value):
            out = self.device(args, kwargs)
        results = host.results(out)
        prepare(results)
        if too_many:  # where what is counted lies matters less than how much it is
            self.forget(results)
            return out
        if condition is None:
            self.keep(results, found)
        elif results[0].numel() and self.fit(results):
            host.call(self.into, (condition,), {"out": host.view(results[0])})
        self.learn(results, doubt)
        return out

    def read(self, tensor: Tensor) -> Any:
        """One value for the host: `item`, `bool`, a branch."""
        if not self.shadow.doubt(tensor):
            return self.device((tensor,), {})
        return self.notice(tensor, "a value", (tensor,))

    def copy(self, to: Tensor, source: Tensor | complex, non_blocking: bool = False) -> Any:
        """A copy that the library makes, or drops where it is large, or a kernel where elements change."""
        if not isinstance(source, Tensor):
            source = torch.tensor(source, device="cpu")
        args = (to, source, non_blocking)
        if source.is_cuda and to.is_cuda and self.is_large_float(args):
            out = self.device(args, {})
            if self.shadow.blocks:
                self.carried(to, source)
        elif not source.is_cuda:
            out = self.device(args, {})
            self.brought(to, source)
        elif not to.is_cuda:
            if not source.numel() or not self.shadow.doubt(source):
                out = self.device(args, {})
            else:
                if source.is_floating_point() and source.numel() > 1 and not self.values.is_noticed():
                    self.values.fetched.add(source, self.shadow.doubt(source))
                out = self.notice(source, some_values(source.numel()), args)
            self.fetched(to, source)
        else:
            out = self.device(args, {})
            self.moved(to, source, args)
        return out

    def notice(self, tensor: Tensor, what: str, args: Sequence[Any]) -> Any:
        """A read of values that are not sure."""
        values, size = self.values, tensor.nbytes
        if not values.is_noticed():
            is_whole = tensor.dtype == torch.uint8 and unknown.is_of_storage()
            what = f"{size:,} bytes of a storage" if is_whole else f"{what} of {str(tensor.dtype)[6:]}"
            values.noted(self.shadow.doubt(tensor), size, what)
        if size >= LARGE_ON_HOST:
            values.spare()
        if size <= MIB and not self.shadow.touched(tensor):
            values.assumption.write(tensor)
        with values.noticed():
            return self.device(args, {})

    def brought(self, to: Tensor, source: Tensor) -> None:
        """After a copy from the host."""
        if self.fits(to) or is_pickled(source):
            prepare([to])
            host.view(to).copy_(source)
            self.shadow.learn(to)
        elif (
            to.numel() * to.element_size() <= MIB
            and to.dtype == source.dtype
            and to.is_contiguous()
        ):
            self.shadow.hold(to)
        else:
            self.forget([to])

    def fetched(self, to: Tensor, source: Tensor) -> None:
        """After a copy to the host, which left elements wrong where a kernel was to change them first."""
        if self.shadow.touched(source) and (
            self.fits(source) or source.numel() * source.element_size() <= MIB or is_pickled(source)
        ):
            to.copy_(host.view(source))

    def moved(self, to: Tensor, source: Tensor, args: Sequence[Any]) -> None:
        """After a copy within the device."""
        lost = self.is_lost([source])
        if self.fits(to) and (not lost or to.dtype in INTEGERS and self.may_decide([source])):
            self.compute(args, {}, [source], [to], lost)
        else:
            self.carried(to, source)

    def carried(self, to: Tensor, source: Tensor) -> None:
        """After a copy within the device that was not computed: the library may have made it."""
        is_gradient = self.limits.forward and in_backward()
        if to.dtype == source.dtype and to.is_contiguous() and source.is_contiguous() and not is_gradient:
            if self.shadow.touched(source):
                self.shadow.hold(to)
        else:
            self.forget([to])


def is_pickled(tensor: Tensor) -> bool:
    """Whether these are the bytes of an object, as ranks send them to each other, of any size."""
    if tensor.dtype != torch.uint8 or tensor.dim() != 1 or not 4 <= tensor.numel() <= LARGEST:
        return False
    return bytes((host.view(tensor) if tensor.is_cuda else tensor)[:4].tolist()).startswith(PICKLED)
