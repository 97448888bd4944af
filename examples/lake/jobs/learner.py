"""Learner: a model together with its loss, called with a batch's items as transformers' models are."""

import torch


class Learner(torch.nn.Module):
    """`measure(model, **items)` is the loss."""

    def __init__(self, model, measure):
        super().__init__()
        self.model, self.measure = model, measure

    def forward(self, **items):
        return {"loss": self.measure(self.model, **items)}


def between(draw, least, most, multiple=1):
    """A whole number from `least` to `most`, a multiple of `multiple`."""
    return int(torch.randint(least // multiple, most // multiple + 1, (), generator=draw)) * multiple
