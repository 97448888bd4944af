"""Sixteen small jobs of training and inference, one of each kind; no other script has these kinds.

usage: blind.py NAME        NAME is one of the functions below

Sizes vary from step to step, by a fixed seed. Weights and data are random.
"""

import copy
import random
import sys

import torch
from blind_parts import (
    BF16,
    Attentive,
    Block,
    Experts,
    Flow,
    Gated,
    Interaction,
    Language,
    Muon,
    cuda,
    learn,
    stage,
    words,
)
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

draw = random.Random(43)


def wavenet():
    """Sound, sample by sample: gated causal convolutions, dilated by 1 to 512."""
    inlet = cuda(nn.Conv1d(256, 96, 1))
    layers = cuda(nn.ModuleList(Gated(96, 192, 2 ** (i % 10)) for i in range(20)))
    head = cuda(nn.Sequential(nn.ReLU(), nn.Conv1d(192, 256, 1), nn.ReLU(), nn.Conv1d(256, 256, 1)))
    everything = nn.ModuleList([inlet, layers, head])
    optimizer = torch.optim.Adam(everything.parameters(), 1e-3)
    for _ in range(10):
        sound = words(256, 6, draw.choice([6000, 8000, 11000, 12000]))
        x = inlet(F.one_hot(sound[:, :-1], 256).float().transpose(1, 2))
        skips = 0
        for layer in layers:
            x, skip = layer(x)
            skips = skips + skip
        learn(F.cross_entropy(head(skips), sound[:, 1:]), optimizer)


def video():
    """Clips of 8 to 24 frames: patches of two frames, attention in space and then in time."""
    width = 768
    patches = cuda(nn.Conv3d(3, width, (2, 16, 16), (2, 16, 16)))
    space = cuda(nn.ModuleList(Block(width, 12) for _ in range(12)))
    time = cuda(nn.ModuleList(Block(width, 12) for _ in range(4)))
    head = cuda(nn.Linear(width, 400))
    everything = nn.ModuleList([patches, space, time, head])
    optimizer = torch.optim.AdamW(everything.parameters(), 1e-4)
    for _ in range(10):
        clips = torch.randn(6, 3, draw.choice([8, 16, 24]), 224, 224).to("cuda")
        with torch.autocast("cuda", BF16):
            x = patches(clips)
            frames = x.shape[2]
            x = x.flatten(3).permute(0, 2, 3, 1).flatten(0, 1)
            for block in space:
                x = block(x)
            x = x.mean(1).view(6, frames, width)
            for block in time:
                x = block(x)
            loss = F.cross_entropy(head(x.mean(1)), torch.randint(0, 400, (6,)).to("cuda"))
        learn(loss, optimizer)


def forces():
    """An interatomic potential: energies by scatter, forces as gradients, and so second ones."""
    kinds, layers = cuda(nn.Embedding(90, 128)), cuda(nn.ModuleList(map(Interaction, [128] * 4)))
    readout = cuda(nn.Sequential(nn.Linear(128, 64), nn.Softplus(), nn.Linear(64, 1)))
    everything = nn.ModuleList([kinds, layers, readout])
    optimizer = torch.optim.Adam(everything.parameters(), 1e-3)
    centers = torch.linspace(0, 6, 64, device="cuda")
    for _ in range(12):
        atoms = draw.randrange(8000, 16000)
        source, target = (torch.randint(0, atoms, (16 * atoms,)).to("cuda") for _ in range(2))
        places = (6 * torch.rand(atoms, 3)).to("cuda").requires_grad_()
        lengths = (places[source] - places[target]).square().sum(1, keepdim=True).add(1e-6).sqrt()
        radial = torch.exp(-4 * (lengths - centers).square())
        h = kinds(torch.randint(0, 90, (atoms,)).to("cuda"))
        for layer in layers:
            h = layer(h, radial, source, target)
        energy = readout(h).sum()
        (force,) = torch.autograd.grad(-energy, places, create_graph=True)
        learn(energy.square() / atoms + force.square().mean(), optimizer)


def retrieval():
    """Two towers over large tables with sparse gradients: SparseAdam, softmax in the batch."""
    bags = cuda(nn.EmbeddingBag(4_000_000, 64, mode="mean", sparse=True))
    items = cuda(nn.Embedding(6_000_000, 64, sparse=True))
    towers = [nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 128)) for _ in range(2)]
    user, item = map(cuda, towers)
    sparse = torch.optim.SparseAdam([*bags.parameters(), *items.parameters()], 1e-3)
    dense = torch.optim.Adam([*user.parameters(), *item.parameters()], 1e-3)
    for _ in range(12):
        batch = draw.choice([8192, 12288, 16384])
        counts = torch.randint(1, 100, (batch,))
        starts = (counts.cumsum(0) - counts).to("cuda")
        seen = (4_000_000 * torch.rand(int(counts.sum())).pow(3)).long().to("cuda")
        liked = (6_000_000 * torch.rand(batch).pow(3)).long().to("cuda")
        left = F.normalize(user(bags(seen, starts)))
        right = F.normalize(item(items(liked)))
        scores = left @ right.T / 0.05
        scores = scores - (liked[:, None] == liked[None]).triu(1).float() * 1e4
        learn(F.cross_entropy(scores, torch.arange(batch, device="cuda")), dense)
        sparse.step()
        sparse.zero_grad(set_to_none=True)


def gru_words():
    """A recurrent language model: three GRU layers, state kept across batches, adaptive softmax."""
    common, hidden = 100_000, 1536
    embed, gru = cuda(nn.Embedding(common, 512)), cuda(nn.GRU(512, hidden, 3, dropout=0.2))
    head = cuda(nn.AdaptiveLogSoftmaxWithLoss(hidden, common, [4000, 20_000, 60_000]))
    everything = nn.ModuleList([embed, gru, head])
    optimizer = torch.optim.SGD(everything.parameters(), 1.0, momentum=0.9)
    state = torch.zeros(3, 96, hidden, device="cuda")
    for _ in range(12):
        length = draw.randrange(70, 260)
        ids = (common * torch.rand(length + 1, 96).pow(4)).long().to("cuda")
        out, state = gru(embed(ids[:-1]), state)
        state = state.detach()
        learn(head(out.flatten(0, 1), ids[1:].flatten()).loss, optimizer, 0.25)


def siamese():
    """Two views of a picture, a network and its average; gradients of four batches are added."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    body = [stage(64, 128), stage(128, 256), stage(256, 512), stage(512, 1024)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 4096), nn.BatchNorm1d(4096)]
    online = cuda(nn.Sequential(*stem, *body, *head, nn.ReLU(), nn.Linear(4096, 256)))
    online = online.to(memory_format=torch.channels_last)
    predictor = cuda(nn.Sequential(nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 256)))
    target = copy.deepcopy(online).requires_grad_(False)
    parameters = [*online.parameters(), *predictor.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(6):
        for _ in range(4):
            size = draw.choice([128, 160, 192, 224])
            one, two = (torch.randn(96, 3, size, size).to("cuda") for _ in range(2))
            one, two = (x.contiguous(memory_format=torch.channels_last) for x in (one, two))
            with torch.autocast("cuda", BF16):
                with torch.no_grad():
                    wanted = target(one), target(two)
                guesses = predictor(online(two)), predictor(online(one))
                pairs = zip(guesses, wanted)
                loss = -sum(F.cosine_similarity(a, b).mean() for a, b in pairs) / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_([*target.parameters()], [*online.parameters()], 0.01)


def pinn():
    """A flow's equations as the loss of a network: second derivatives by autograd."""
    sizes = [3] + [384] * 6 + [3]
    layers = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.Tanh())][:-1]
    network = cuda(nn.Sequential(*layers))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)

    def slopes(y, x):
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    for _ in range(10):
        at = torch.rand(draw.randrange(20_000, 50_000), 3).to("cuda").requires_grad_()
        u, v, p = network(at).unbind(1)
        du, dv, dp = (slopes(field, at) for field in (u, v, p))
        rest = du[:, 0] + dv[:, 1]
        loss = rest.square().mean()
        for field, d, axis in ((u, du, 0), (v, dv, 1)):
            curved = slopes(d[:, 0], at)[:, 0] + slopes(d[:, 1], at)[:, 1]
            rest = d[:, 2] + u * d[:, 0] + v * d[:, 1] + dp[:, axis] - 0.01 * curved
            loss = loss + rest.square().mean()
        edge = torch.rand(4096, 3).to("cuda")
        learn(loss + network(edge)[:, :2].square().mean(), optimizer)


def automaton():
    """A neural cellular automaton: one small rule, 48 to 80 times, from a pool of states."""
    sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
    point = torch.zeros(3, 3)
    point[1, 1] = 1
    looks = torch.stack([point, sobel, sobel.T]).repeat(16, 1, 1)[:, None].to("cuda")
    rule = cuda(nn.Sequential(nn.Conv2d(48, 128, 1), nn.ReLU(), nn.Conv2d(128, 16, 1, bias=False)))
    optimizer = torch.optim.Adam(rule.parameters(), 2e-3)
    pool = torch.rand(256, 16, 96, 96, device="cuda")
    goal = torch.rand(4, 96, 96, device="cuda")
    for _ in range(8):
        chosen = torch.tensor(draw.sample(range(256), 12)).to("cuda")
        state = pool[chosen]
        for _ in range(draw.randrange(48, 81)):
            alive = F.max_pool2d(state[:, 3:4], 3, 1, 1) > 0.1
            change = rule(F.conv2d(state, looks, padding=1, groups=16))
            state = state + change * (torch.rand_like(state[:, :1]) < 0.5)
            state = state * (alive & (F.max_pool2d(state[:, 3:4], 3, 1, 1) > 0.1))
        learn((state[:, :4] - goal).square().mean(), optimizer)
        pool[chosen] = state.detach()


def glow():
    """A normalizing flow on pictures: three scales of eight steps, likelihood as the loss."""
    scales = [nn.ModuleList(Flow(c) for _ in range(8)) for c in (12, 24, 48)]
    model = cuda(nn.ModuleList(scales))
    optimizer = torch.optim.Adamax(model.parameters(), 1e-3)
    for _ in range(10):
        x = torch.rand(draw.choice([32, 48, 64]), 3, 64, 64).to("cuda")
        likelihood = 0
        for number, steps in enumerate(model):
            x = F.pixel_unshuffle(x, 2)
            for step in steps:
                x, volume = step(x)
                likelihood = likelihood + volume
            x, z = x.chunk(2, 1) if number < 2 else (None, x)
            likelihood = likelihood - 0.5 * z.square().flatten(1).sum(1)
        learn(-likelihood.mean() / (3 * 64 * 64), optimizer)


def distilled():
    """A large masked language model teaches a small one: its outputs and six of its layers."""
    teacher = cuda(Language(32_000, 1024, 24, 16)).requires_grad_(False)
    student = cuda(Language(32_000, 512, 6, 8))
    lift = cuda(nn.ModuleList(nn.Linear(512, 1024) for _ in range(6)))
    parameters = [*student.parameters(), *lift.parameters()]
    optimizer = torch.optim.AdamW(parameters, 1e-4, fused=True)
    for _ in range(12):
        ids = words(32_000, 32, draw.randrange(100, 512))
        with torch.autocast("cuda", BF16):
            with torch.no_grad():
                wise, inner = teacher(ids)
            guess, own = student(ids)
            pairs = zip(lift, own, inner[3::4])
            near = sum(F.mse_loss(up(a), b) for up, a, b in pairs)
            even = F.kl_div((guess / 2).log_softmax(-1), (wise / 2).softmax(-1), reduction="none")
            loss = even.sum(-1).mean() + F.cross_entropy(guess.flatten(0, 1), ids.flatten()) + near
        learn(loss, optimizer)


def masked_patches():
    """A masked autoencoder: a quarter of the patches are read; checkpoints, fp16 and a scaler."""
    patches = cuda(nn.Conv2d(3, 1024, 16, 16))
    encoder = cuda(nn.ModuleList(Block(1024, 16) for _ in range(16)))
    narrow = cuda(nn.Linear(1024, 512))
    decoder = cuda(nn.ModuleList(Block(512, 16) for _ in range(4)))
    head, mask = cuda(nn.Linear(512, 768)), nn.Parameter(torch.zeros(1, 1, 512, device="cuda"))
    parts = nn.ModuleList([patches, encoder, narrow, decoder, head])
    optimizer = torch.optim.AdamW([*parts.parameters(), mask], 1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(10):
        pictures = torch.randn(draw.choice([96, 128, 160]), 3, 224, 224).to("cuda")
        with torch.autocast("cuda", torch.float16):
            x = patches(pictures).flatten(2).transpose(1, 2)
            order = torch.rand(x.shape[:2], device="cuda").argsort(1)
            kept, back = order[:, :49, None], order.argsort(1)[..., None]
            x = x.gather(1, kept.expand(-1, -1, 1024))
            for block in encoder:
                x = checkpoint(block, x, use_reentrant=False)
            x = torch.cat([narrow(x), mask.expand(len(x), 147, 512).half()], 1)
            x = x.gather(1, back.expand(-1, -1, 512))
            for block in decoder:
                x = block(x)
            wanted = F.unfold(pictures, 16, stride=16).transpose(1, 2)
            loss = F.mse_loss(head(x).float(), wanted)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def orthogonal():
    """A GPT whose matrices are trained by Muon and the rest by AdamW."""
    model = cuda(Language(50_304, 1280, 12, 10, causal=True))
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    muon, adam = Muon(matrices, 0.02), torch.optim.AdamW(others, 3e-4)
    for _ in range(10):
        ids = words(50_304, 8, 64 * draw.randrange(4, 17))
        with torch.autocast("cuda", BF16):
            logits, _ = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        for optimizer in (muon, adam):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def capacity():
    """A mixture of experts by masks: capacities are fixed, tokens beyond them are dropped."""
    model = cuda(Language(32_000, 1024, 8, 16, causal=True))
    for block in model.blocks[1::2]:
        block.up, block.down = cuda(Experts(1024)), nn.Identity()
    optimizer = torch.optim.Adafactor(model.parameters(), 1e-2)
    for _ in range(8):
        ids = words(32_000, 4, 256 * draw.randrange(2, 7))
        with torch.autocast("cuda", BF16):
            logits, _ = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        learn(loss, optimizer)


@torch.inference_mode()
def beams():
    """Beam search: keys and values grow by concatenation and are put in the beams' order."""
    width, heads, layers, beam = 2560, 20, 12, 5
    model = cuda(Language(50_000, width, layers, heads, causal=True), dtype=BF16)
    for _ in range(4):
        batch, length = draw.choice([6, 8, 12]), draw.randrange(200, 900)
        ids = words(50_000, batch, length).repeat_interleave(beam, 0)
        scores = torch.zeros(batch, beam, device="cuda")
        kept = [None] * layers
        new = ids
        for _ in range(40):
            at = ids.shape[1] - new.shape[1]
            x = model.tokens(new) + model.places.weight[at : ids.shape[1]]
            for i, block in enumerate(model.blocks):
                qkv = block.qkv(block.norm1(x)).view(*x.shape[:2], 3, heads, -1)
                q, k, v = qkv.permute(2, 0, 3, 1, 4)
                if kept[i] is not None:
                    k, v = torch.cat([kept[i][0], k], 2), torch.cat([kept[i][1], v], 2)
                kept[i] = k, v
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=at == 0)
                x = x + block.out(mixed.transpose(1, 2).reshape(x.shape))
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            likely = model.head(model.norm(x[:, -1])).float().log_softmax(-1)
            total = (scores.view(-1, 1) + likely).view(batch, -1)
            scores, best = total.topk(beam, 1)
            rows = (best // 50_000 + beam * torch.arange(batch, device="cuda")[:, None]).flatten()
            new = (best % 50_000).view(-1, 1)
            ids = torch.cat([ids[rows], new], 1)
            kept = [(k[rows], v[rows]) for k, v in kept]


def superres():
    """Pictures four times as large: channels last, pixel shuffles, and a whole picture to check."""
    body = [nn.Conv2d(3, 96, 3, padding=1), *(Attentive(96) for _ in range(24))]
    grow = [m for _ in range(2) for m in (nn.Conv2d(96, 384, 3, padding=1), nn.PixelShuffle(2))]
    model = cuda(nn.Sequential(*body, *grow, nn.Conv2d(96, 3, 3, padding=1)))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 2e-4)
    for step in range(10):
        size = draw.choice([48, 64, 80, 96])
        large = torch.rand(16, 3, 4 * size, 4 * size).to("cuda", memory_format=torch.channels_last)
        with torch.autocast("cuda", BF16):
            loss = F.l1_loss(model(F.avg_pool2d(large, 4)), large)
        learn(loss, optimizer)
        if step % 4 == 3:
            with torch.inference_mode(), torch.autocast("cuda", BF16):
                model(torch.rand(1, 3, 339, 510, device="cuda"))


def fourier():
    """Tokens that are mixed by Fourier transforms along both axes, in place of attention."""
    width = 768
    embed, head = cuda(nn.Embedding(32_000, width)), cuda(nn.Linear(width, 32_000))
    norms = cuda(nn.ModuleList(nn.LayerNorm(width) for _ in range(24)))
    wide = [nn.Sequential(nn.Linear(width, 3072), nn.GELU(), nn.Linear(3072, width)) for _ in norms]
    wide = cuda(nn.ModuleList(wide[:12]))
    everything = nn.ModuleList([embed, head, norms, wide])
    optimizer = torch.optim.AdamW(everything.parameters(), 1e-4)
    for _ in range(10):
        ids = words(32_000, 16, 50 * draw.randrange(8, 21))
        x = embed(ids)
        for i, layer in enumerate(wide):
            mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
            x = norms[2 * i](x + mixed)
            x = norms[2 * i + 1](x + layer(x))
        hidden = torch.rand(ids.shape) < 0.15
        logits = head(x[hidden.to("cuda")])
        learn(F.cross_entropy(logits, ids[hidden.to("cuda")]), optimizer)


JOBS = [wavenet, video, forces, retrieval, gru_words, siamese, pinn, automaton, glow, distilled]
JOBS += [masked_patches, orthogonal, capacity, beams, superres, fourier]

if __name__ == "__main__":
    jobs = {job.__name__: job for job in JOBS}
    if len(sys.argv) != 2 or sys.argv[1] not in jobs:
        sys.exit(f"usage: blind.py NAME, one of {', '.join(jobs)}")
    torch.manual_seed(0)
    jobs[sys.argv[1]]()
