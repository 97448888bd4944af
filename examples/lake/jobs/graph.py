"""Graphs: layers of torch_geometric that pass messages along the edges of graphs; nodes are classified.

`--length` is the number of nodes in a batch, in thousands; with `--varied` from a quarter of it up to it.
"""

import torch
from learner import Learner, between
from torch import nn
from torch_geometric import nn as geometric

FEATURES, CLASSES, DEGREE = 128, 47, 12


def layer(family, width):
    """One layer from `width` channels to as many."""
    if family == "gin":
        return geometric.GINConv(nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)))
    if family in ("gat", "gatv2", "graph_transformer"):
        names = {"gat": "GATConv", "gatv2": "GATv2Conv", "graph_transformer": "TransformerConv"}
        return getattr(geometric, names[family])(width, width // 4, heads=4)
    return {"gcn": geometric.GCNConv, "sage": geometric.SAGEConv, "resgated": geometric.ResGatedGraphConv}[family](
        width, width
    )


class Graph(nn.Module):
    """Layers with a skip around each."""

    def __init__(self, family, width, layers):
        super().__init__()
        self.first = nn.Linear(FEATURES, width)
        self.layers = nn.ModuleList(layer(family, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x, edges):
        h = self.first(x)
        for each, norm in zip(self.layers, self.norms):
            h = h + nn.functional.dropout(norm(each(h, edges)).relu(), 0.1, self.training)
        return self.last(h)


def build(given):
    model = Graph(given.family, given.width, given.layers)
    return Learner(model, lambda model, x, edges, labels: nn.functional.cross_entropy(model(x, edges), labels))


def batch(given, draw):
    nodes, degree = 1000 * given.length, DEGREE
    if given.varied:
        nodes, degree = between(draw, nodes // 4, nodes), between(draw, DEGREE // 2, DEGREE)
    edges = torch.randint(0, nodes, (2, nodes * degree), generator=draw)
    labels = torch.randint(0, CLASSES, (nodes,), generator=draw)
    return {"x": torch.zeros(nodes, FEATURES), "edges": edges, "labels": labels}
