"""Twelve jobs of the kinds on which the intervals of blind3.py did not hold: what was mended is judged by these.

usage: blind4.py NAME        NAME is one of the functions below

Sizes vary from step to step, by a fixed seed. Weights and data are random.
"""

import random
import sys

import torch
from blind_parts import BF16, Block, cuda, learn, words
from torch import nn
from torch.nn import functional as F

draw = random.Random(2903)


def stack(make, widths, norm, act=nn.ReLU):
    """Layers of a convolution, a norm and an activation each."""
    parts = []
    for inside, width in zip(widths, widths[1:]):
        parts += [make(inside, width), norm(width), act()]
    return nn.Sequential(*parts)


def skipgram():
    """Words by their neighbours: sparse gradients of two large tables."""
    tables = cuda(nn.ModuleList(nn.Embedding(400_000, 192, sparse=True) for _ in range(2)))
    optimizer = torch.optim.SparseAdam(tables.parameters(), 1e-3)
    for _ in range(12):
        batch = draw.randrange(20_000, 60_000)
        near, far = ((torch.rand(batch) ** 4 * 400_000).long().to("cuda") for _ in range(2))
        other = torch.randint(0, 400_000, (batch, 6)).to("cuda")
        one, two, wrong = tables[0](near), tables[1](far), tables[1](other)
        loss = -F.logsigmoid((one * two).sum(1)).mean() - F.logsigmoid(-(wrong @ one[:, :, None])[..., 0]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def edges(nodes, count, seed):
    """A random sparse matrix of nodes by nodes."""
    places = torch.randint(0, nodes, (2, count), generator=torch.Generator().manual_seed(seed)).to("cuda")
    return torch.sparse_coo_tensor(places, torch.rand(count).to("cuda"), (nodes, nodes))


def signed():
    """A graph made symmetric, scaled by its degrees, and two hops of it; weights are learnt by Adam."""
    layers = cuda(nn.ModuleList([nn.Linear(128, 384), nn.Linear(384, 16)]))
    optimizer = torch.optim.Adam(layers.parameters(), 0.01)
    for step in range(10):
        nodes = draw.randrange(40_000, 90_000)
        one = edges(nodes, nodes * 8, step)
        both = (one + one.t()).coalesce()
        degree = torch.sparse.sum(both, 1).to_dense() + 1
        scaled = torch.sparse_coo_tensor(both.indices(), both.values() / degree[both.indices()[0]], both.shape).coalesce()
        x = torch.randn(nodes, 128).to("cuda")
        for layer in layers:
            x = torch.sparse.mm(scaled, torch.sparse.mm(scaled, F.relu(layer(x))))
        learn(x.square().mean(), optimizer)


def factors():
    """Ratings by two tables, their entries weighted; every few steps a sparse table of means."""
    people, things = 120_000, 30_000
    tables = cuda(nn.ModuleList([nn.Embedding(people, 96, sparse=True), nn.Embedding(things, 96, sparse=True)]))
    optimizer = torch.optim.SGD(tables.parameters(), 0.1)
    for step in range(12):
        count = draw.randrange(100_000, 400_000)
        who, what = (torch.randint(0, most, (count,)).to("cuda") for most in (people, things))
        loss = ((tables[0](who) * tables[1](what)).sum(1) - torch.rand(count).to("cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 3:
            seen = torch.sparse_coo_tensor(torch.stack([who, what]), torch.ones(count, device="cuda"), (people, things))
            torch.sparse.mm(seen.coalesce(), tables[1].weight.detach())


def squeeze():
    """Pictures through a bottleneck and back, batches of varied size, 32 bits."""
    down = stack(lambda a, b: nn.Conv2d(a, b, 5, 2, 2), [3, 48, 96, 192], nn.BatchNorm2d)
    up = stack(lambda a, b: nn.ConvTranspose2d(a, b, 4, 2, 1), [192, 96, 48, 24], nn.BatchNorm2d)
    model = cuda(nn.Sequential(down, up, nn.Conv2d(24, 3, 3, padding=1)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(12):
        x = torch.rand(draw.randrange(16, 56), 3, 96, 96).to("cuda")
        learn((model(x) - x).abs().mean(), optimizer)


def tiles():
    """Labels for each pixel of photographs of varied size, bf16."""
    model = cuda(stack(lambda a, b: nn.Conv2d(a, b, 3, padding=1), [3, 40, 40, 80, 21], nn.BatchNorm2d))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in range(10):
        batch, high, wide = draw.randrange(2, 7), 32 * draw.randrange(6, 13), 32 * draw.randrange(6, 13)
        with torch.autocast("cuda", BF16):
            out = model(torch.randn(batch, 3, high, wide).to("cuda"))
        learn(F.cross_entropy(out.float(), torch.randint(0, 21, (batch, high, wide)).to("cuda")), optimizer)


def last():
    """Pictures with the channels last, fp16, grouped and dilated convolutions."""
    def make(inside, width):
        return nn.Sequential(nn.Conv2d(inside, width, 1), nn.Conv2d(width, width, 3, padding=2, dilation=2, groups=8))

    model = cuda(stack(make, [3, 64, 128, 256], nn.BatchNorm2d), memory_format=torch.channels_last)
    head = cuda(nn.Linear(256, 100))
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], 1e-3)
    for _ in range(10):
        batch = draw.randrange(12, 40)
        x = torch.randn(batch, 3, 80, 80).to("cuda").contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.float16):
            out = head(model(x).mean((2, 3)))
        learn(F.cross_entropy(out.float(), torch.randint(0, 100, (batch,)).to("cuda")), optimizer)


def waves():
    """Sound of varied length to classes: strided convolutions in one dimension, 32 bits."""
    model = cuda(stack(lambda a, b: nn.Conv1d(a, b, 11, 4, 5), [1, 64, 128, 256, 256], nn.BatchNorm1d, nn.GELU))
    head = cuda(nn.Linear(256, 35))
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], 1e-3)
    for _ in range(12):
        batch, length = draw.randrange(16, 48), 1000 * draw.randrange(8, 33)
        out = head(model(torch.randn(batch, 1, length).to("cuda")).mean(2))
        learn(F.cross_entropy(out, torch.randint(0, 35, (batch,)).to("cuda")), optimizer)


def cubes():
    """Scans of varied depth, convolutions in three dimensions, bf16."""
    model = cuda(stack(lambda a, b: nn.Conv3d(a, b, 3, padding=1), [2, 20, 40, 40], nn.InstanceNorm3d, nn.SiLU))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(10):
        x = torch.randn(draw.randrange(1, 4), 2, 4 * draw.randrange(4, 11), 64, 64).to("cuda")
        with torch.autocast("cuda", BF16):
            out = model(x)
        learn(out.float().square().mean(), optimizer)


def halving():
    """Batches in parts: where one does not fit in a part of the card, it is cut in half, and the rest goes on so."""
    torch.cuda.set_per_process_memory_fraction(0.045)
    model = cuda(nn.Sequential(*[Block(768, 12) for _ in range(10)]))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    part = 96
    for _ in range(6):
        x, at = torch.randn(96, 256, 768).to("cuda"), 0
        while at < 96:
            try:
                (model(x[at:at + part]).square().mean() * part / 96).backward()
                at += part
            except torch.OutOfMemoryError:
                part //= 2
        optimizer.step()
        optimizer.zero_grad()


def longest():
    """The longest sequence that a part of the card serves without gradients, by trial."""
    torch.cuda.set_per_process_memory_fraction(0.05)
    model = cuda(nn.Sequential(*[Block(1024, 16, True) for _ in range(12)]), dtype=BF16).eval()
    length, served = 4096, 0
    with torch.inference_mode():
        while True:
            try:
                served = model(torch.randn(24, length, 1024, dtype=BF16, device="cuda")).shape[1]
                length += 3072
            except torch.OutOfMemoryError:
                break
    print(served)


def inverse():
    """Unknown sources of a field, found by L-BFGS without a line search."""
    source = torch.zeros(64, 512, 512, device="cuda", requires_grad=True)
    kernel = torch.randn(1, 1, 9, 9).to("cuda")
    optimizer = torch.optim.LBFGS([source], lr=0.5, max_iter=12, history_size=6)
    for _ in range(3):
        truth = torch.randn(64, 504, 504).to("cuda")

        def loss(truth=truth):
            optimizer.zero_grad()
            out = (F.conv2d(source[:, None], kernel)[:, 0] - truth).square().mean()
            out.backward()
            return out

        optimizer.step(loss)


def early():
    """Words to a class, until the loss no longer falls; then the layers are widened and it begins again."""
    for width in (256, 512):
        model = cuda(nn.Sequential(nn.Embedding(5000, width), *[Block(width, 8) for _ in range(4)], nn.Linear(width, 2)))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        best, worse = float("inf"), 0
        while worse < 3:
            out = model(words(5000, 24, 32 * draw.randrange(2, 9))).mean(1)
            loss = F.cross_entropy(out, torch.randint(0, 2, (24,)).to("cuda"))
            learn(loss, optimizer)
            worse = 0 if loss.item() < best else worse + 1
            best = min(best, loss.item())


if __name__ == "__main__":
    torch.manual_seed(4)
    globals()[sys.argv[1]]()
