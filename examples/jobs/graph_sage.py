"""GraphSAGE in plain PyTorch: nodes of a few large graphs are classified from neighbours that are
drawn at random, hop by hop, on the GPU.

usage: graph_sage.py [--batch 8192] [--nodes 1500000] [--width 512] [--fanouts 15 10 5]
                     [--steps 20]
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8192, help="nodes to classify in each step")
parser.add_argument("--nodes", type=int, default=1_500_000, help="of the largest graph")
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
parser.add_argument("--graphs", type=int, default=4)
parser.add_argument("--steps", type=int, default=20)
given = parser.parse_args()

FEATURES, CLASSES = 128, 47


class Sage(nn.Module):
    """Layers that join each node with the mean of its drawn neighbours."""

    def __init__(self, width, layers):
        super().__init__()
        widths = [FEATURES] + [width] * layers
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.near = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, h, hops):
        for own, near, norm, hop in zip(self.own, self.near, self.norms, hops):
            targets, sources, count = hop
            total = h.new_zeros(count, h.shape[1]).index_add_(0, targets, h[sources])
            degree = torch.bincount(targets, minlength=count).clamp(min=1).unsqueeze(1)
            h = norm(own(h[:count]) + near(total / degree)).relu()
            h = nn.functional.dropout(h, 0.5, self.training)
        return self.head(h)


def graph(seed):
    """Where each node's neighbours begin, who they are, features and classes."""
    draw = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(given.nodes // 5, given.nodes, (), generator=draw))
    degrees = torch.empty(nodes).log_normal_(2.0, 1.0, generator=draw).long().clamp(1, 1000)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), degrees.cumsum(0)])
    ends = torch.randint(0, nodes, (int(starts[-1]),), generator=draw)
    features = torch.randn(nodes, FEATURES, generator=draw)
    return starts, ends, features, torch.randint(0, CLASSES, (nodes,), generator=draw)


def sample(starts, ends, seeds):
    """All nodes needed, the seeds first, and the edges of each hop, the outermost first."""
    nodes, hops = seeds, []
    for fanout in given.fanouts:
        degrees = starts[nodes + 1] - starts[nodes]
        chosen = torch.randint(0, 2**40, (len(nodes), fanout), device="cuda") % degrees[:, None]
        found = ends[starts[nodes][:, None] + chosen].flatten()
        new = torch.unique(found)
        everyone = torch.cat([nodes, new[~torch.isin(new, nodes)]])
        place = torch.empty(len(starts), dtype=torch.long, device="cuda")
        place[everyone] = torch.arange(len(everyone), device="cuda")
        targets = torch.arange(len(nodes), device="cuda").repeat_interleave(fanout)
        hops.insert(0, (targets, place[found], len(nodes)))
        nodes = everyone
    return nodes, hops


torch.manual_seed(0)
model = Sage(given.width, len(given.fanouts)).to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for number in range(given.graphs):
    starts, ends, features, classes = (values.to("cuda") for values in graph(number))
    for step in range(given.steps // given.graphs):
        seeds = torch.randperm(len(classes))[: given.batch].to("cuda")
        nodes, hops = sample(starts, ends, seeds)
        loss = nn.functional.cross_entropy(model(features[nodes], hops), classes[seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"graph {number} step {step}: {len(nodes)} nodes, loss {loss.item():.3f}")
