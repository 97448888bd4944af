"""Steps: the optimizer's, counted, and the end of a script after as many as were asked for.

A step is one call of an optimizer's `step`, so that gradient accumulation counts once. Of several
optimizers the one that has made most steps counts: two that take turns make one step a round.
"""

from collections import Counter


class Finished(BaseException):
    """As many steps are done as were asked for. No `except Exception` catches this."""


class Steps:
    """Counts the steps of all optimizers of this process, those to come included."""

    def __init__(self, limit):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.done = 0
        self._limit = limit
        self._by_optimizer = Counter()
        register_optimizer_step_post_hook(self._after_step)

    def _after_step(self, optimizer, _arguments, _options):
        self._by_optimizer[id(optimizer)] += 1
        self.done = max(self.done, self._by_optimizer[id(optimizer)])
        if self._limit is not None and self.done >= self._limit:
            raise Finished
