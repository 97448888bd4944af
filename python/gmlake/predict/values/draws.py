"""Draws: the random numbers that a GPU's kernels would have drawn, computed on the host.

PyTorch's CUDA kernels draw by Philox 4x32 with ten rounds, which has no state: each thread's numbers follow from the
generator's seed and offset and the thread's own number. Four numbers of a thread lie as far from each other as there are
threads, so the numbers of all threads, one after another, are the tensor:

    counter   offset / 4 + pass | thread          ──Philox──▶  four words of 32 bits
    element   (pass * 4 + word) * threads + thread

`reports/predict.md` says how this was compared with an H100's.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Pieces = Iterator[tuple[int, torch.Tensor]]

BLOCK = 256  # threads
LARGEST = (1 << 63) - 1
AT_ONCE = 1 << 16  # threads that are computed together, so that they stay in the processor's cache
UNIT = 2.0**-32
WIDE = 1 << 28  # from as many different integers on, each takes 64 bits


class State(NamedTuple):
    """Where a generator stood before the kernel, and how many threads a GPU runs at most."""

    seed: int
    offset: int
    threads: int


def state(generator: Any, device: Any) -> State:
    """The state of a generator of the GPU."""
    own = torch.cuda.get_device_properties(device)
    blocks = own.multi_processor_count * (own.max_threads_per_multi_processor // BLOCK)
    return State(generator.initial_seed(), generator.get_offset(), blocks * BLOCK)


def philox(seed: int, counter: int, first: int, count: int) -> list[torch.Tensor]:
    """Four words of each of `count` threads from the `first` on, as integers of 64 bits."""
    words = torch.empty((4, count), dtype=torch.int64, device="cpu")
    at = map(ctypes.c_uint64, (seed, counter, first, count, words.data_ptr()))
    ctypes.CDLL(None).gmlake_gpu_philox(*at)
    return list(words)


def drawn(
    it: State, numel: int, each: int, make: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
) -> Iterator[tuple[int, torch.Tensor]]:
    """Stretches of a tensor's elements as (first, elements). `make` turns four words of threads into `each` numbers."""
    threads = min(it.threads, -(-numel // BLOCK) * BLOCK)
    for turn in range(-(-numel // (threads * each))):
        for first in range(0, threads, AT_ONCE):
            count = min(AT_ONCE, threads - first)
            words = philox(it.seed, it.offset // 4 + turn, first, count)
            for number, made in enumerate(make(words)):
                at = (turn * each + number) * threads + first
                if at < numel:
                    yield at, made[: numel - at]


def uniforms(words: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Numbers above zero and up to one."""
    return [word.float().mul_(UNIT).add_(UNIT / 2) for word in words]


def normals(words: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Numbers normally distributed, by Box and Muller."""
    found = []
    for one, two in (words[:2], words[2:]):
        radius = one.float().mul_(UNIT).add_(UNIT / 2).log_().mul_(-2).sqrt_()
        angle = two.float().mul_(UNIT * 2 * math.pi).add_(UNIT * math.pi)
        found += [angle.sin() * radius, angle.cos() * radius]
    return found


def pairs(words: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Integers of 64 bits, without sign in those of 64 bits with."""
    return [(words[0] << 32) | words[1], (words[2] << 32) | words[3]]


def remainder(value: torch.Tensor, divisor: int) -> torch.Tensor:
    """The remainder of 64 bits without a sign."""
    if divisor & (divisor - 1) == 0:
        return value & (divisor - 1)
    return ((value >> 1 & LARGEST) % divisor * 2 + (value & 1)) % divisor


def normal(numel: int, it: State, mean: float = 0.0, std: float = 1.0) -> Pieces:
    """What `normal_` draws."""
    return ((at, made.mul_(std).add_(mean)) for at, made in drawn(it, numel, 4, normals))


def uniform(numel: int, it: State, dtype: torch.dtype, low: float = 0.0, high: float = 1.0) -> Pieces:
    """What `uniform_` draws; the upper end itself becomes the lower one. The ends have the tensor's type."""
    ends = torch.tensor([low, high], dtype=dtype, device="cpu")
    first, width = float(ends[0]), float(ends[1] - ends[0])
    for at, made in drawn(it, numel, 4, uniforms):
        value = made.mul_(width).add_(first).to(dtype)
        yield at, value.masked_fill_(value == ends[1], first)


def integers(numel: int, it: State, low: int, high: int) -> Pieces:
    """What `random_(low, high)` draws."""
    make, each = (pairs, 2) if high - low >= WIDE else (list, 4)
    return ((at, remainder(made, high - low) + low) for at, made in drawn(it, numel, each, make))


def bernoulli(numel: int, it: State, chance: float = 0.5) -> Pieces:
    """What `bernoulli_(chance)` draws."""
    return ((at, made <= chance) for at, made in drawn(it, numel, 4, uniforms))


def exponential(numel: int, it: State, rate: float = 1.0) -> Pieces:
    """What `exponential_` draws."""
    return ((at, made.log_().mul_(-1 / rate)) for at, made in drawn(it, numel, 4, uniforms))


def pieces(overload: str, into: torch.Tensor, it: State, given: Sequence[Any]) -> Pieces | None:
    """What an operator in place draws, as (first element, elements); None where it is not known how a GPU draws it."""
    numel, dtype = into.numel(), into.dtype
    if dtype == torch.float64 or dtype.is_complex or dtype.is_floating_point and overload.startswith("random_."):
        return None
    ways: dict[str, Callable[..., Pieces]] = {
        "normal_.default": normal, "exponential_.default": exponential, "bernoulli_.float": bernoulli,
        "uniform_.default": lambda _numel, _it, *given: uniform(numel, it, dtype, *given),
        "random_": lambda _numel, _it, *given: integers(numel, it, *ends(dtype, list(given))),
    }
    way = ways.get("random_" if overload.startswith("random_.") else overload)
    return way(numel, it, *given) if way else None


def ends(dtype: torch.dtype, given: list[int | None]) -> tuple[int, int]:
    """Between which integers `random_` draws: given both, the upper one or none."""
    above = 2 if dtype == torch.bool else torch.iinfo(dtype).max + 1
    if not given:
        return 0, above
    low, high = given if len(given) > 1 else (0, given[0])
    return low or 0, above if high is None else high


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie one after another, in whatever order."""
    wanted = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride != wanted:
            return False
        wanted *= size
    return True


def draw(overload: str, tensor: torch.Tensor, it: State, given: Sequence[Any]) -> bool:
    """Writes what a GPU would have drawn into a CPU tensor; whether that is known. Elements go by where they lie."""
    if not is_dense(tensor):
        return False
    found = pieces(overload, tensor, it, given)
    if found is None:
        return False
    flat = tensor.as_strided((tensor.numel(),), (1,))
    for at, made in found:
        flat[at : at + len(made)] = made
    return True
