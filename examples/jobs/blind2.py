"""Sixteen more small jobs, one of each kind; no other script has these kinds.

usage: blind2.py NAME        NAME is one of the functions below

Sizes vary from step to step, by a fixed seed. Weights and data are random.
"""

import random
import sys

import torch
from blind2_parts import (
    Coupled,
    Quantized,
    Scan,
    SetLayer,
    Trunk,
    apply_gate,
    bundle,
    encoded,
    farthest,
    forward_scores,
    lattice_loss,
    projected,
    small,
)
from blind_parts import BF16, Block, Language, cuda, learn, words
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

draw = random.Random(71)


def meta():
    """Learning to learn: three steps of gradients inside, and the gradient through all of them."""
    model = cuda(small([64, 1024, 1024, 1024, 16]))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(10):
        total = 0
        for _ in range(draw.randrange(4, 9)):
            near, far = (torch.randn(2, 2048, 64).to("cuda") for _ in range(2))
            weights = dict(model.named_parameters())
            for _ in range(3):
                loss = functional_call(model, weights, near[0]).square().mean()
                slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                pairs = zip(weights.items(), slopes)
                weights = {name: weight - 0.01 * slope for (name, weight), slope in pairs}
            total = total + (functional_call(model, weights, far[0]) - far[1, :, :16]).square().mean()
        learn(total, optimizer)


def rays():
    """A radiance field: rays of pictures, samples along them, coarse and fine, in chunks."""
    coarse, fine = (cuda(small([63, 256, 256, 256, 256, 4])) for _ in range(2))
    both = nn.ModuleList([coarse, fine])
    optimizer = torch.optim.Adam(both.parameters(), 5e-4)
    for _ in range(12):
        count = draw.randrange(2000, 6000)
        origin, way = (torch.randn(count, 1, 3).to("cuda") for _ in range(2))
        goal, loss, depth = torch.rand(count, 3).to("cuda"), 0, torch.linspace(2, 6, 64, device="cuda")
        depth = depth.expand(count, 64)
        for network in (coarse, fine):
            points = encoded(origin + way * depth[..., None])
            raw = torch.cat([network(part) for part in points.split(1024)])
            alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * 0.06)
            light = torch.cumprod(1 - alpha + 1e-10, 1)
            share = alpha * light.roll(1, 1)
            loss = loss + ((share[..., None] * raw[..., :3].sigmoid()).sum(1) - goal).square().mean()
            places = torch.searchsorted(share.detach().cumsum(1), torch.rand(count, 128, device="cuda"))
            depth = torch.cat([depth, depth.gather(1, places.clamp(max=63))], 1).sort(1).values
        learn(loss, optimizer)


def points():
    """Clouds of points: some far from each other, their nearest neighbours, and a maximum over these."""
    layers = cuda(nn.ModuleList([SetLayer(3, 128), SetLayer(128, 256), SetLayer(256, 512)]))
    head = cuda(small([512, 512, 40]))
    everything = nn.ModuleList([layers, head])
    optimizer = torch.optim.AdamW(everything.parameters(), 1e-3)
    for _ in range(8):
        batch, count = 24, 256 * draw.randrange(6, 13)
        at = torch.randn(batch, count, 3).to("cuda")
        features = at
        for layer, kept in zip(layers, (160, 48, 16)):
            chosen = farthest(at, kept)
            centers = at.gather(1, chosen[..., None].expand(-1, -1, 3))
            near = torch.cdist(centers, at).topk(32, largest=False).indices
            features = layer(features, near)
            at = centers
        learn(F.cross_entropy(head(features.amax(1)), torch.randint(0, 40, (batch,)).to("cuda")), optimizer)


def scans():
    """A language model of linear recurrences, solved by a scan that doubles its reach."""
    embed, head = cuda(nn.Embedding(32_000, 768)), cuda(nn.Linear(768, 32_000, bias=False))
    layers = cuda(nn.ModuleList(Scan(768, 1536) for _ in range(12)))
    everything = nn.ModuleList([embed, layers, head])
    optimizer = torch.optim.AdamW(everything.parameters(), 3e-4, fused=True)
    for _ in range(10):
        ids = words(32_000, 6, draw.randrange(300, 1100))
        with torch.autocast("cuda", BF16):
            x = embed(ids[:, :-1])
            for layer in layers:
                x = x + layer(x)
            loss = F.cross_entropy(head(x).flatten(0, 1), ids[:, 1:].flatten())
        learn(loss, optimizer)


def ensemble():
    """Thirty-two networks in one: stacked weights, gradients of each by vmap, noise in place of an optimizer."""
    base = small([128, 512, 512, 512, 1]).to("meta")
    weights, _ = stack_module_state([cuda(small([128, 512, 512, 512, 1])) for _ in range(32)])
    weights = {name: value.detach() for name, value in weights.items()}

    def energy(one, x, y):
        return (functional_call(base, one, (x,)) - y).square().mean()

    slopes = vmap(grad(energy), in_dims=(0, None, None))
    for _ in range(16):
        count = draw.randrange(2000, 9000)
        x, y = torch.randn(count, 128).to("cuda"), torch.randn(count, 1).to("cuda")
        found = slopes(weights, x, y)
        weights = {
            name: value - 1e-3 * found[name] + 1e-2 * torch.randn_like(value)
            for name, value in weights.items()
        }


def gaussian():
    """An exact Gaussian process: its likelihood by a Cholesky factor, its predictions in blocks."""
    raw = nn.Parameter(torch.zeros(10, device="cuda"))
    optimizer = torch.optim.Adam([raw], 0.1)
    for _ in range(8):
        count = draw.randrange(4000, 9000)
        x, y = torch.randn(count, 8).to("cuda"), torch.randn(count, 1).to("cuda")

        def kernel(a, b):
            scale = raw[:8].exp()
            return raw[8].exp() * torch.exp(-0.5 * torch.cdist(a * scale, b * scale).square())

        factor = torch.linalg.cholesky(kernel(x, x) + raw[9].exp() * torch.eye(count, device="cuda"))
        solved = torch.linalg.solve_triangular(factor, y, upper=False)
        learn((0.5 * solved.square().sum() + factor.diagonal().log().sum()) / count, optimizer)
        with torch.no_grad():
            inverse = torch.cholesky_solve(y, factor)
            for block in torch.randn(4, 3000, 8).to("cuda"):
                kernel(block, x) @ inverse


def transducer():
    """Speech, each frame with each prefix of a text: a lattice of scores, summed along its diagonals."""
    sound = cuda(nn.ModuleList(Block(512, 8) for _ in range(6)))
    lift, text = cuda(nn.Linear(320, 512)), cuda(nn.Embedding(1024, 512))
    joint = cuda(nn.Linear(512, 1024))
    everything = nn.ModuleList([sound, lift, text, joint])
    optimizer = torch.optim.AdamW(everything.parameters(), 3e-4)
    for _ in range(8):
        frames, length = draw.randrange(30, 80), draw.randrange(8, 20)
        ids = words(1024, 32, length)
        x = lift(torch.randn(32, frames, 320).to("cuda"))
        for block in sound:
            x = block(x)
        scores = joint(torch.tanh(x[:, :, None] + F.pad(text(ids), (0, 0, 1, 0))[:, None]))
        learn(lattice_loss(scores.log_softmax(-1), ids), optimizer)


def equilibrium():
    """A network without depth: a fixed point by Anderson's method, its gradient by another."""
    layer = cuda(Block(768, 12))
    embed, head = cuda(nn.Embedding(16_000, 768)), cuda(nn.Linear(768, 16_000))
    everything = nn.ModuleList([layer, embed, head])
    optimizer = torch.optim.Adam(everything.parameters(), 1e-4)
    for _ in range(6):
        ids = words(16_000, 8, draw.randrange(100, 400))
        start = embed(ids)
        past, found = [], []
        with torch.no_grad():
            z = torch.zeros_like(start)
            for _ in range(draw.randrange(12, 24)):
                past, found = [*past[-4:], z], [*found[-4:], layer(z + start)]
                gaps = torch.stack([b - a for a, b in zip(past, found)], 1).flatten(2)
                gram = gaps @ gaps.mT + 1e-4 * torch.eye(len(past), device="cuda")
                share = gram.sum(2).softmax(1)
                z = (share[..., None] * torch.stack(found, 1).flatten(2)).sum(1).view_as(z)
        z = z.requires_grad_()
        out = layer(z + start)
        slope = torch.autograd.grad(F.cross_entropy(head(out).flatten(0, 1), ids.flatten()), out, retain_graph=True)[0]
        back = slope
        for _ in range(8):
            back = slope + torch.autograd.grad(out, z, back, retain_graph=True)[0]
        out.backward(back)
        optimizer.step()
        optimizer.zero_grad()


def dictionary():
    """A sparse dictionary of a model's activations: the largest 32 of 32,768 features, dead ones again."""
    model = cuda(Language(32_000, 1024, 6, 16, causal=True), dtype=BF16).requires_grad_(False)
    up, down = cuda(nn.Linear(1024, 32_768)), cuda(nn.Linear(32_768, 1024))
    optimizer = torch.optim.Adam([*up.parameters(), *down.parameters()], 1e-4)
    last = torch.zeros(32_768, dtype=torch.long, device="cuda")
    for step in range(12):
        ids = words(32_000, 8, draw.randrange(100, 600))
        with torch.no_grad():
            x = model(ids)[1][3].float().flatten(0, 1)
        pre = up(x - down.bias)
        best = pre.topk(32, 1)
        sparse = torch.zeros_like(pre).scatter(1, best.indices, best.values.relu())
        last[best.indices.flatten()] = step
        error = x - down(sparse)
        dead = pre.masked_fill((last == step)[None], -torch.inf).topk(64, 1)
        again = torch.zeros_like(pre).scatter(1, dead.indices, dead.values.relu())
        learn(error.square().mean() + (error - again @ down.weight.T).square().mean() / 32, optimizer)


def replay():
    """Q-learning from a memory of pictures on the GPU: priorities, two networks, quantiles."""
    value, slow = (cuda(small([7056, 2048, 2048, 18 * 51])) for _ in range(2))
    slow.load_state_dict(value.state_dict())
    optimizer = torch.optim.Adam(value.parameters(), 1e-4)
    memory = torch.zeros(60_000, 7056, dtype=torch.uint8, device="cuda")
    weight = torch.ones(60_000, device="cuda")
    quantile = (torch.arange(51, device="cuda") + 0.5) / 51
    for step in range(40):
        batch = draw.choice([512, 1024, 2048])
        at = torch.multinomial(weight, batch)
        now, then = (memory[at].float() / 255, memory[(at + 1) % 60_000].float() / 255)
        with torch.no_grad():
            pick = value(then).view(batch, 18, 51).mean(2).argmax(1)
            goal = torch.rand(batch, 1, device="cuda") + 0.99 * slow(then).view(batch, 18, 51)[torch.arange(batch, device="cuda"), pick]
        action = torch.randint(0, 18, (batch,)).to("cuda")
        own = value(now).view(batch, 18, 51)[torch.arange(batch, device="cuda"), action]
        gap = goal[:, None] - own[..., None]
        loss = (F.huber_loss(own[..., None].expand_as(gap), goal[:, None].expand_as(gap), reduction="none")
                * (quantile[:, None] - (gap.detach() < 0).float()).abs()).sum(1).mean(1)
        weight[at] = loss.detach()
        learn(loss.mean(), optimizer, 10.0)
        if step % 10 == 9:
            slow.load_state_dict(value.state_dict())


def circuits():
    """A quantum circuit of 20 qubits, its state in complex numbers, gradients of its angles."""
    angles = nn.Parameter(torch.randn(6, 20, 3, device="cuda"))
    optimizer = torch.optim.Adam([angles], 0.05)
    for _ in range(6):
        qubits = draw.choice([17, 18, 19, 20])
        state = torch.zeros([2] * qubits, dtype=torch.complex64, device="cuda")
        state[(0,) * qubits] = 1
        for layer in angles[: draw.randrange(3, 7)]:
            for qubit in range(qubits):
                state = checkpoint(apply_gate, state, layer[qubit], qubit, use_reentrant=False)
        spin = state.abs().square()
        signs = torch.tensor([1.0, -1.0], device="cuda")
        learn(sum((spin.movedim(qubit, -1) @ signs).sum() for qubit in range(qubits)), optimizer)


def fluid():
    """A flow in a box, step by step: moved by interpolation, made divergence-free by Fourier transforms."""
    force = nn.Parameter(torch.zeros(1, 2, 256, 256, device="cuda"))
    optimizer = torch.optim.Adam([force], 0.01)
    line = torch.linspace(-1, 1, 256, device="cuda")
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1)
    wave = torch.fft.fftfreq(256, device="cuda")[:, None], torch.fft.rfftfreq(256, device="cuda")
    for _ in range(6):
        batch = draw.choice([4, 6, 8, 12])
        speed = torch.randn(batch, 2, 256, 256).to("cuda")
        for _ in range(draw.randrange(8, 20)):
            back = grid - 0.01 * speed.permute(0, 2, 3, 1)
            speed = F.grid_sample(speed, back, padding_mode="border", align_corners=True) + 0.01 * force
            seen = torch.fft.rfft2(speed)
            along = (seen[:, 0] * wave[1] + seen[:, 1] * wave[0]) / (wave[0] ** 2 + wave[1] ** 2 + 1e-8)
            seen = seen - torch.stack([along * wave[1], along * wave[0]], 1)
            speed = torch.fft.irfft2(seen, s=(256, 256))
        learn(speed.square().mean(), optimizer)


def labels():
    """Names in sentences: an LSTM that reads both ways, and a chain of labels over it."""
    embed, lstm = cuda(nn.Embedding(60_000, 300)), cuda(nn.LSTM(300, 512, 2, bidirectional=True, dropout=0.3))
    head, moves = cuda(nn.Linear(1024, 33)), nn.Parameter(torch.zeros(33, 33, device="cuda"))
    parts = nn.ModuleList([embed, lstm, head])
    optimizer = torch.optim.AdamW([*parts.parameters(), moves], 1e-3)
    for _ in range(12):
        length = draw.randrange(20, 120)
        ids, gold = words(60_000, length, 128), words(33, length, 128)
        scores = head(lstm(embed(ids))[0])
        right = scores.gather(2, gold[..., None]).sum() + moves[gold[:-1], gold[1:]].sum()
        learn((forward_scores(scores, moves).sum() - right) / 128, optimizer)


def queue():
    """Contrast with a queue of 65,536 older pictures; the second network follows slowly."""
    network, follower = cuda(Trunk()), cuda(Trunk()).requires_grad_(False)
    optimizer = torch.optim.SGD(network.parameters(), 0.03, momentum=0.9)
    waiting, at = F.normalize(torch.randn(65_536, 128)).to("cuda"), 0
    for _ in range(10):
        batch = draw.choice([64, 96, 128])
        one, two = (torch.randn(batch, 3, 160, 160).to("cuda") for _ in range(2))
        with torch.autocast("cuda", BF16):
            query = F.normalize(network(one).float())
            with torch.no_grad():
                key = F.normalize(follower(two).float())
        scores = torch.cat([(query * key).sum(1, keepdim=True), query @ waiting.T], 1) / 0.07
        learn(F.cross_entropy(scores, torch.zeros(batch, dtype=torch.long, device="cuda")), optimizer)
        with torch.no_grad():
            torch._foreach_lerp_([*follower.parameters()], [*network.parameters()], 0.001)
            waiting[at : at + batch] = key
            at = (at + batch) % 65_000


def reversible():
    """A transformer whose layers are undone on the way back, in a function of its own; Adam in eight bits."""
    embed, head = cuda(nn.Embedding(32_000, 1024)), cuda(nn.Linear(2048, 32_000, bias=False))
    layers = cuda(nn.ModuleList(Block(1024, 16, causal=True) for _ in range(16)))
    everything = nn.ModuleList([embed, layers, head])
    optimizer = Quantized(everything.parameters(), 1e-4)
    for _ in range(8):
        ids = words(32_000, 6, draw.randrange(200, 1000))
        x = embed(ids[:, :-1])
        x, y = x, x
        for one, two in zip(layers[::2], layers[1::2]):
            x, y = Coupled.apply(x, y, bundle(one, two), *one.parameters(), *two.parameters())
        logits = head(torch.cat([x, y], -1))
        learn(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()), optimizer)


def lowrank():
    """A GPT whose gradients are projected to 128 directions, found anew by a decomposition every few steps."""
    model = cuda(Language(32_000, 1024, 8, 16, causal=True))
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    bases, moments = {}, {}
    for step in range(8):
        ids = words(32_000, 8, draw.randrange(100, 700))
        with torch.autocast("cuda", BF16):
            logits, _ = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        with torch.no_grad():
            for p in matrices:
                if step % 4 == 0:
                    bases[p] = projected(p.grad, 128)
                low = bases[p].T @ p.grad
                moments[p] = low if p not in moments else moments[p].lerp(low, 0.1)
                p.sub_(bases[p] @ moments[p], alpha=1e-3)
            for p in model.parameters():
                p.grad = None


JOBS = [meta, rays, points, scans, ensemble, gaussian, transducer, equilibrium]
JOBS += [dictionary, replay, circuits, fluid, labels, queue, reversible, lowrank]

if __name__ == "__main__":
    jobs = {job.__name__: job for job in JOBS}
    if len(sys.argv) != 2 or sys.argv[1] not in jobs:
        sys.exit(f"usage: blind2.py NAME, one of {', '.join(jobs)}")
    torch.manual_seed(0)
    jobs[sys.argv[1]]()
