"""A U-Net that segments crops of varied sizes: convolutions, transposed ones, and skips that keep
large activations alive from one end of the network to the other.

usage: unet.py [--batch 8] [--width 64] [--largest 640] [--steps 16]
"""

import argparse
import random

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--width", type=int, default=64, help="channels at full resolution")
parser.add_argument("--smallest", type=int, default=256)
parser.add_argument("--largest", type=int, default=640)
parser.add_argument("--steps", type=int, default=16)
given = parser.parse_args()

CLASSES, DEPTH = 21, 4


def block(inside, outside):
    """Two convolutions, each normalised."""
    layers = []
    for channels in (inside, outside):
        layers += [nn.Conv2d(channels, outside, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Down by halves, up again by transposed convolutions, each level joined with its like."""

    def __init__(self, width):
        super().__init__()
        widths = [width * 2**level for level in range(DEPTH + 1)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([3] + widths, widths))
        pairs = list(zip(widths[1:], widths))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.join = nn.ModuleList(block(a, b) for a, b in pairs)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, image):
        skips = []
        h = image
        for level, down in enumerate(self.down):
            h = down(h if level == 0 else nn.functional.max_pool2d(h, 2))
            skips.append(h)
        skips.pop()
        for up, join in zip(self.up, self.join):
            h = join(torch.cat([skips.pop(), up(h)], dim=1))
        return self.head(h)


torch.manual_seed(0)
draw = random.Random(0)
model = UNet(given.width).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(given.steps):
    height, width = (draw.randrange(given.smallest, given.largest + 1, 32) for _ in range(2))
    images = torch.randn(given.batch, 3, height, width).to("cuda")
    labels = torch.randint(0, CLASSES, (given.batch, height, width)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {height} x {width}, loss {loss.item():.3f}")
