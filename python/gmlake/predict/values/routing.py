"""The routing: which experts the tokens of a mixture choose, where only a kernel could compute their scores.

A router chooses by `topk` (or `argmax`) over the scores of a few experts for each token. In place of scores that nobody
computed it gets such ones that a scenario (`scenario`) comes out.

In most workloads three tokens of four choose among the hot experts, which are a quarter of all, and the fourth among all.
How many tokens each rank has (W4) is the script's to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .. import scenario

if TYPE_CHECKING:
    from collections.abc import Callable

# Operators by which tokens choose, and how many experts there may be at most.
CHOOSE = frozenset(["topk", "argmax"])
MOST_EXPERTS = 512

HOT, SPREAD, DEAD, ROTATING, BURST = {1, 2}, 3, 5, 6, 7


def is_router(scores: torch.Tensor) -> bool:
    """Whether these may be scores of tokens for experts: of more tokens than experts."""
    experts = scores.shape[-1] if scores.dim() > 1 else 0
    return 1 < experts <= MOST_EXPERTS and scores.numel() > experts * experts and scores.is_floating_point()


class Routing:
    """A scenario."""

    def __init__(self, text: str, step: Callable[[], int], rank: int = 0) -> None:
        """`step` tells the number of the step from 0."""
        self._step, it = step, scenario.parse(text)
        self._draw = torch.Generator("cpu").manual_seed(rank)
        self._factor, self._workload = it.factor, it.workload
        self._shares = torch.tensor(it.shares, dtype=torch.float32, device="cpu") if it.shares else None
        self._is_even = not self._workload and not self._factor and not it.shares

    def fits(self, scores: torch.Tensor) -> bool:
        """Whether the scenario has a share for each of the experts."""
        return self._shares is None or len(self._shares) == scores.shape[-1]

    def scores(self, tensor: torch.Tensor, chosen: int) -> torch.Tensor:
        """Scores in place of these, of which each token chooses the `chosen` largest."""
        experts = tensor.shape[-1]
        tokens = tensor.numel() // experts
        found = self._of(tokens, experts, min(chosen, experts))
        return found.view(tensor.shape).to(tensor.dtype if tensor.dtype.itemsize > 2 else torch.float32)

    def _of(self, tokens: int, experts: int, chosen: int) -> torch.Tensor:
        each = torch.arange(tokens, device="cpu")[:, None]
        if self._is_even:
            return -((torch.arange(experts, device="cpu") - each * chosen) % experts).float()
        drawn = torch.rand(tokens, experts, generator=self._draw, device="cpu")
        if self._shares is not None:
            return self._shares.log() - (-drawn.log()).log()
        if self._factor:
            first = torch.rand(tokens, generator=self._draw, device="cpu") < self._factor * chosen / experts
            drawn[:, 0] = torch.where(first, 2.0, -1.0)
            return drawn
        return drawn - 2 * (self._is_cold(experts, chosen) & self._is_led(each)).float()

    def _is_cold(self, experts: int, chosen: int) -> torch.Tensor:
        """Which experts are not among those that a workload prefers."""
        place = torch.arange(experts, device="cpu")
        hot = max(chosen, experts // 4)
        if self._workload == SPREAD:
            return (place % 2 == 1) & (experts // 2 >= chosen)
        if self._workload == DEAD:
            return place < experts // 2
        begin = self._step() // 3 * hot % experts if self._workload == ROTATING else 0
        return (place - begin) % experts >= hot

    def _is_led(self, tokens: torch.Tensor) -> torch.Tensor:
        """Which tokens choose among those experts alone."""
        if self._workload == DEAD:
            return tokens >= 0
        if self._workload == BURST:
            return (tokens % 2 == 0) & (self._step() % 4 == 3)
        led = self._workload in HOT or self._workload in (SPREAD, ROTATING)
        return (tokens % 4 != 0) & led
