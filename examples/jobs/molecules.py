"""A graph isomorphism network in plain PyTorch predicts a number for each molecule: batches of
thousands of graphs of 8 to 60 atoms, bonds with features, sums by `index_add_`.

usage: molecules.py [--batch 4096] [--atoms 60] [--width 512] [--layers 6] [--steps 15]
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4096, help="molecules in each step")
parser.add_argument("--atoms", type=int, default=60, help="of the largest molecule")
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--steps", type=int, default=15)
given = parser.parse_args()

ELEMENTS, BONDS = 119, 5


class Layer(nn.Module):
    """Each atom takes the sum of its neighbours and bonds through a perceptron."""

    def __init__(self, width):
        super().__init__()
        self.own = nn.Parameter(torch.zeros(1))
        self.bonds = nn.Embedding(BONDS, width)
        self.inner = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )
        self.norm = nn.BatchNorm1d(width)

    def forward(self, h, sources, targets, bonds):
        messages = (h[sources] + self.bonds(bonds)).relu()
        total = torch.zeros_like(h).index_add_(0, targets, messages)
        return h + self.norm(self.inner((1 + self.own) * h + total)).relu()


class Network(nn.Module):
    """Layers over all atoms of the batch, then the mean of each molecule's atoms."""

    def __init__(self, width, layers):
        super().__init__()
        self.elements = nn.Embedding(ELEMENTS, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, elements, sources, targets, bonds, owners, sizes):
        h = self.elements(elements)
        for layer in self.layers:
            h = nn.functional.dropout(layer(h, sources, targets, bonds), 0.1, self.training)
        total = h.new_zeros(len(sizes), h.shape[1]).index_add_(0, owners, h)
        return self.head(total / sizes.unsqueeze(1)).squeeze(1)


def molecules(draw):
    """Trees of atoms, each atom bonded to an earlier one, and a ring for about every sixth."""
    sizes = torch.empty(given.batch).log_normal_(3.1, 0.4, generator=draw).long()
    sizes = sizes.clamp(8, given.atoms)
    owners = torch.repeat_interleave(torch.arange(given.batch), sizes)
    starts = (sizes.cumsum(0) - sizes)[owners]
    places = torch.arange(len(owners)) - starts
    tree = torch.nonzero(places > 0).squeeze(1)
    rings = tree[torch.rand(len(tree), generator=draw) < 0.16]
    ends = torch.cat([tree, rings])
    others = starts[ends] + (torch.rand(len(ends), generator=draw) * places[ends]).long()
    bonds = torch.randint(0, BONDS, (len(ends),), generator=draw).repeat(2)
    elements = torch.randint(0, ELEMENTS, (len(owners),), generator=draw)
    return elements, torch.cat([ends, others]), torch.cat([others, ends]), bonds, owners, sizes


torch.manual_seed(0)
draw = torch.Generator().manual_seed(0)
model = Network(given.width, given.layers).to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(given.steps):
    batch = [values.to("cuda") for values in molecules(draw)]
    wanted = torch.randn(given.batch, generator=draw).to("cuda")
    loss = nn.functional.l1_loss(model(*batch), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {len(batch[0])} atoms, loss {loss.item():.3f}")
