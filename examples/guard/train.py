"""A small network, trained for two steps: what the guard is tried on. usage: train.py [--batch 2048]"""

import argparse

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        hidden = self.up(self.norm(x))
        active = nn.functional.gelu(hidden)
        out = self.down(active)
        return x + out


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def step(net, optimizer, batch):
    x = torch.randn(batch, 512, device="cuda")
    y = torch.randint(1000, (batch,), device="cuda")
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2048)
    batch = parser.parse_args().batch
    torch.manual_seed(0)
    net = Net(512, 6).to("cuda")
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        step(net, optimizer, batch)


KEPT = {}  # what a regression keeps
main()
