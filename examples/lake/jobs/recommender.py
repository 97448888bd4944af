"""Recommenders: what a user did, as ids, through tables of embeddings; pairs of them, or layers of attention (`dlrm`,
`attentive`).

`--width` is that of an embedding, `--layers` the number of tables, `--length` the thousands of rows of the largest.
With `--varied` each feature has 1 to 20 ids and the batch a size of its own, from half of `--batch` up to it.
"""

import torch
from learner import Learner, between
from torch import nn

NUMBERS = 13  # features that are numbers


class Recommender(nn.Module):
    """A row for each feature, what they have to do with each other, and a score."""

    def __init__(self, family, tables, rows, width):
        super().__init__()
        sizes = [max(100, rows // 2 ** (number % 8)) for number in range(tables)]
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum") for size in sizes)
        self.bottom = perceptron(NUMBERS, 512, 256, width)
        attention = family == "attentive"
        self.attention = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) if attention else None
        pairs = (tables + 1) * width if attention else tables * (tables + 1) // 2
        self.top = perceptron(pairs + width, 1024, 1024, 512, 1)

    def forward(self, numbers, ids, starts):
        dense = self.bottom(numbers)
        rows = [table(ids[n], starts[n]) for n, table in enumerate(self.tables)]
        rows = torch.stack([dense, *rows], 1)
        if self.attention is not None:
            found = self.attention(rows).flatten(1)
        else:
            products = rows @ rows.transpose(1, 2)
            below = torch.tril_indices(rows.shape[1], rows.shape[1], -1, device=rows.device)
            found = products[:, below[0], below[1]]
        return self.top(torch.cat([dense, found], 1)).squeeze(1)


def perceptron(*widths):
    layers = [part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def judge(model, numbers, ids, starts, labels):
    return nn.functional.binary_cross_entropy_with_logits(model(numbers, ids, starts).float(), labels)


def build(given):
    return Learner(Recommender(given.family, given.layers, 1000 * given.length, given.width), judge)


def batch(given, draw):
    size = between(draw, given.batch // 2, given.batch) if given.varied else given.batch
    ids, starts = [], []
    for table in range(given.layers):
        rows = max(100, 1000 * given.length // 2**(table % 8))
        counts = torch.randint(1, 21, (size,), generator=draw) if given.varied else torch.full((size,), 10)
        starts.append(counts.cumsum(0) - counts)
        ids.append(torch.randint(0, rows, (int(counts.sum()),), generator=draw))
    return {"numbers": torch.zeros(size, NUMBERS), "ids": ids, "starts": starts, "labels": torch.zeros(size)}
