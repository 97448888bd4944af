"""Graph attention: a classifier of graphs whose sizes vary, with torch_geometric.

usage: graph_attention.py [--batch 8] [--nodes 12000] [--width 128] [--heads 4] [--steps 20]
"""

import argparse

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, global_mean_pool

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--nodes", type=int, default=12000, help="of the largest graph")
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--layers", type=int, default=5)
parser.add_argument("--steps", type=int, default=20)
given = parser.parse_args()

FEATURES, CLASSES = 64, 10


class Classifier(torch.nn.Module):
    """Layers of graph attention, each with a residual; then the mean over a graph's nodes."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.enter = torch.nn.Linear(FEATURES, width)
        self.layers = torch.nn.ModuleList(
            GATConv(width, width, heads=heads, concat=False, dropout=0.1) for _ in range(layers)
        )
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(layers))
        self.head = torch.nn.Linear(width, CLASSES)

    def forward(self, graphs):
        h = self.enter(graphs.x)
        for layer, norm in zip(self.layers, self.norms):
            h = h + torch.nn.functional.elu(layer(norm(h), graphs.edge_index))
        return self.head(global_mean_pool(h, graphs.batch))


def graph(seed):
    """Random edges, some of them loops, between 1,000 to `--nodes` nodes."""
    draw = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(1000, given.nodes, (), generator=draw))
    edges = nodes * int(torch.randint(4, 12, (), generator=draw))
    ends = torch.randint(0, nodes, (2, edges), generator=draw)
    features = torch.randn(nodes, FEATURES, generator=draw)
    return Data(x=features, edge_index=ends, y=torch.randint(0, CLASSES, (1,), generator=draw))


torch.manual_seed(0)
model = Classifier(given.width, given.heads, given.layers).to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
graphs = [graph(seed) for seed in range(given.batch * given.steps)]
for step, batch in enumerate(DataLoader(graphs, batch_size=given.batch)):
    batch = batch.to("cuda")
    loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {batch.num_nodes} nodes, {batch.num_edges} edges, loss {loss.item():.3f}")
