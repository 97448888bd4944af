"""Eighteen more small jobs of what people run; no other script has these kinds.

usage: blind3.py NAME        NAME is one of the functions below

Sizes vary from step to step, by a fixed seed. Weights and data are random.
"""

import random
import sys

import torch
from blind3_parts import (
    Critic,
    Generator,
    Ragged,
    Vocoder,
    Volume,
    Windows,
    anchors,
    apply_boxes,
    cached_step,
    ema,
    graph,
    pictures,
    spectra,
)
from blind_parts import BF16, Block, Language, cuda, learn, words
from torch import nn
from torch.nn import functional as F

draw = random.Random(1711)


def gan():
    """Pictures from noise: a generator, a critic with a penalty on its gradient, an average of weights."""
    makes, judges = cuda(Generator()), cuda(Critic())
    slow = cuda(Generator())
    first, second = (torch.optim.Adam(part.parameters(), 2e-4, (0.0, 0.99)) for part in (makes, judges))
    for step in range(12):
        batch = draw.randrange(24, 48)
        real = pictures(batch, 64)
        loss = F.softplus(judges(makes(torch.randn(batch, 128, device="cuda")).detach())).mean()
        loss = loss + F.softplus(-judges(real)).mean()
        if step % 4 == 0:
            real.requires_grad_()
            slope = torch.autograd.grad(judges(real).sum(), real, create_graph=True)[0]
            loss = loss + 5 * slope.square().sum((1, 2, 3)).mean()
        learn(loss, second)
        learn(F.softplus(-judges(makes(torch.randn(batch, 128, device="cuda")))).mean(), first)
        ema(slow, makes)


def volume():
    """Scans in three dimensions: a U-shaped network, its patches of varied depth."""
    model = cuda(Volume([24, 48, 96]))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.99, nesterov=True)
    for _ in range(8):
        depth = 8 * draw.randrange(4, 9)
        scan = torch.randn(2, 1, depth, 96, 96).to("cuda")
        truth = torch.randint(0, 3, (2, depth, 96, 96)).to("cuda")
        with torch.autocast("cuda", torch.float16):
            out = model(scan)
            both = F.one_hot(truth, 3).movedim(-1, 1)
            share = out.float().softmax(1)
            dice = 1 - 2 * (share * both).sum((2, 3, 4)) / (share + both).sum((2, 3, 4))
            loss = F.cross_entropy(out, truth) + dice.mean()
        learn(loss, optimizer, 12.0)


def clicks():
    """Advertisements: bags of numbers in twelve tables, products of all pairs, Adagrad."""
    sizes = [draw.randrange(20_000, 400_000) for _ in range(12)]
    tables = cuda(nn.ModuleList(nn.EmbeddingBag(size, 64, mode="sum") for size in sizes))
    below = cuda(nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 64), nn.ReLU()))
    above = cuda(nn.Sequential(nn.Linear(64 + 78, 1024), nn.ReLU(), nn.Linear(1024, 1)))
    both = nn.ModuleList([tables, below, above])
    optimizer = torch.optim.Adagrad(both.parameters(), 0.01)
    pairs = torch.triu_indices(13, 13, 1, device="cuda")
    for _ in range(10):
        batch = draw.randrange(8_192, 32_768)
        dense = below(torch.randn(batch, 13).to("cuda"))
        parts = [dense]
        for table, size in zip(tables, sizes):
            counts = torch.randint(1, 20, (batch,), generator=torch.Generator().manual_seed(batch))
            starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)[:-1]])
            ids = torch.randint(0, size, (int(counts.sum()),))
            parts.append(table(ids.to("cuda"), starts.to("cuda")))
        each = torch.stack(parts, 1)
        dots = torch.bmm(each, each.transpose(1, 2))[:, pairs[0], pairs[1]]
        out = above(torch.cat([dense, dots], 1)).squeeze(1)
        learn(F.binary_cross_entropy_with_logits(out, (torch.rand(batch) < 0.3).float().to("cuda")), optimizer)


def boxes():
    """Objects in pictures: anchors that match by overlap, and what overlaps too much left out."""
    model = cuda(anchors([3, 64, 128, 256], 9 * 6))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(8):
        batch, side = draw.randrange(4, 12), 32 * draw.randrange(12, 20)
        out = model(pictures(batch, side)).permute(0, 2, 3, 1).reshape(batch, -1, 6)
        learn(apply_boxes(out), optimizer)


def linesearch():
    """A regression by L-BFGS: how often the loss is asked for is decided by its values."""
    model = cuda(nn.Sequential(nn.Linear(64, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 8)))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=6, history_size=10, line_search_fn="strong_wolfe")
    for _ in range(6):
        batch = draw.randrange(10_000, 40_000)
        x, y = torch.randn(batch, 64).to("cuda"), torch.randn(batch, 8).to("cuda")

        def loss(x=x, y=y):
            optimizer.zero_grad()
            out = (model(x) - y).square().mean()
            out.backward()
            return out

        optimizer.step(loss)


def ragged():
    """Sentences of their own lengths, side by side without padding: nested tensors."""
    model = cuda(Ragged(512, 8, 6), dtype=BF16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    for _ in range(10):
        lengths = [draw.randrange(20, 500) for _ in range(48)]
        texts = torch.nested.nested_tensor([torch.randn(n, 512) for n in lengths], layout=torch.jagged)
        out = model(texts.to("cuda", BF16))
        learn(out.values().float().square().mean(), optimizer)


def offloaded():
    """Activations that wait on the host until the way back."""
    model = cuda(Language(16_000, 1024, 12, 16, causal=True), dtype=BF16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(6):
        ids = words(16_000, 8, 64 * draw.randrange(6, 16))
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            out = model(ids)[0]
        learn(F.cross_entropy(out[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten()), optimizer)


@torch.inference_mode()
def captured():
    """A server of fixed places: keys and values that are written into, each step a captured graph."""
    model = cuda(Language(32_000, 1024, 16, 16, causal=True), dtype=BF16).eval()
    most = 1024
    sizes = [32, 16, 8, 1]
    keys = torch.zeros(16, 2, 32, 16, most, 64, device="cuda", dtype=BF16)
    steps, pool = {}, None
    for size in sizes:
        ids, at = torch.zeros(size, 1, dtype=torch.long, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            cached_step(model, ids, at, keys)
        torch.cuda.current_stream().wait_stream(side)
        taken = torch.cuda.CUDAGraph()
        with torch.cuda.graph(taken, pool=pool):
            out = cached_step(model, ids, at, keys)
        pool = taken.pool()
        steps[size] = (taken, ids, at, out)
    for turn in range(40):
        taken, ids, at, out = steps[sizes[draw.randrange(4)]]
        at.fill_(turn)
        taken.replay()
        ids.copy_(out.float().softmax(-1).argmax(-1, keepdim=True))


def chat():
    """A conversation that grows: Hugging Face's own `generate`, prompts padded on the left."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16}
    config = LlamaConfig(vocab_size=32_000, num_key_value_heads=4, eos_token_id=None, pad_token_id=0, **shape)
    model = LlamaForCausalLM(config).to("cuda", BF16).eval()
    ids = words(32_000, 8, 200)
    for _ in range(4):
        mask = torch.ones_like(ids)
        for row in mask:
            row[: draw.randrange(0, 100)] = 0
        ids = model.generate(ids, attention_mask=mask, max_new_tokens=draw.randrange(10, 60), do_sample=True)
        ids = torch.cat([ids, words(32_000, 8, draw.randrange(20, 200))], 1)


def evaluated():
    """Hugging Face's trainer: gradients of three batches, checkpoints, and an evaluation now and then."""
    from blind3_parts import trainer

    trainer(draw).train()


def factored():
    """A sequence model with Adafactor, its labels smoothed, lengths in buckets."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=32_128, d_model=512, d_ff=2048, num_layers=8, num_heads=8, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).to("cuda")
    optimizer = torch.optim.Adafactor(model.parameters(), 1e-2)
    for _ in range(8):
        batch = draw.randrange(8, 24)
        near, far = (words(32_128, batch, 16 * draw.randrange(4, 16)) for _ in range(2))
        with torch.autocast("cuda", BF16):
            out = model(input_ids=near, labels=far).logits
        learn(F.cross_entropy(out.flatten(0, 1).float(), far.flatten(), label_smoothing=0.1), optimizer)


def finder():
    """The largest batch that a part of the card holds, found by running out of memory; then training with it."""
    torch.cuda.set_per_process_memory_fraction(0.06)
    model = cuda(nn.Sequential(*[Block(1024, 16) for _ in range(8)]))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    batch, done = 256, 0
    while done < 5:
        try:
            learn(model(torch.randn(batch, 256, 1024, device="cuda")).square().mean(), optimizer)
            done += 1
        except torch.OutOfMemoryError:
            batch = batch * 2 // 3
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()


def sparse():
    """Nodes that average their neighbours: a sparse matrix and products with it, new for each batch."""
    first, second = cuda(nn.Linear(256, 512)), cuda(nn.Linear(512, 40))
    both = nn.ModuleList([first, second])
    optimizer = torch.optim.Adam(both.parameters(), 0.01)
    for _ in range(10):
        nodes = draw.randrange(60_000, 150_000)
        near = graph(nodes, 12)
        x = torch.randn(nodes, 256).to("cuda")
        hidden = F.relu(torch.sparse.mm(near, first(x)))
        out = torch.sparse.mm(near, second(F.dropout(hidden, 0.5)))
        learn(F.cross_entropy(out, torch.randint(0, 40, (nodes,)).to("cuda")), optimizer)


def vocoder():
    """Sound from spectra: transposed convolutions, compared by spectra of three resolutions."""
    model = cuda(Vocoder(80, 256))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4, (0.8, 0.99))
    for _ in range(8):
        frames = 8 * draw.randrange(8, 24)
        sound = model(torch.randn(16, 80, frames).to("cuda")).squeeze(1)
        truth = torch.randn(16, 64 * frames).to("cuda")
        learn(spectra(sound, truth), optimizer)


def subspaces():
    """Batches of small matrices: covariances, their eigenvectors, least squares and triangular solves."""
    model = cuda(nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 32 * 48)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(8):
        batch = draw.randrange(200, 600)
        x = model(torch.randn(batch, 128).to("cuda")).view(batch, 48, 32)
        spread = x.mT @ x + torch.eye(32, device="cuda")
        values, vectors = torch.linalg.eigh(spread)
        factor = torch.linalg.cholesky(spread)
        white = torch.linalg.solve_triangular(factor, x.mT, upper=False)
        fit = torch.linalg.solve(spread, x.mT @ torch.randn(batch, 48, 4).to("cuda"))
        q, r = torch.linalg.qr(x)
        learn(values.log().mean() + (vectors @ fit).square().mean() + (white @ q).square().mean() + r.abs().mean(), optimizer)


def windows():
    """Pictures in windows that shift: biases by place, paths that are dropped, an average by `foreach`."""
    model, slow = (cuda(Windows(96, [2, 2, 4])) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    for _ in range(8):
        batch = draw.randrange(12, 32)
        x, share = pictures(batch, 192), draw.random()
        mixed = share * x + (1 - share) * x.flip(0)
        label = torch.randint(0, 1000, (batch,)).to("cuda")
        with torch.autocast("cuda", BF16):
            out = model(mixed)
            loss = share * F.cross_entropy(out, label) + (1 - share) * F.cross_entropy(out, label.flip(0))
        learn(loss, optimizer)
        with torch.no_grad():
            torch._foreach_lerp_(list(slow.parameters()), list(model.parameters()), 0.01)


def pools():
    """Two streams and a pool of its own: tensors that cross over, by `record_stream`, and an emptied cache."""
    model, pool = cuda(nn.Sequential(*[Block(768, 12) for _ in range(6)]), dtype=BF16), torch.cuda.MemPool()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    side = torch.cuda.Stream()
    with torch.cuda.use_mem_pool(pool):
        kept = torch.zeros(64, 1024, 768, device="cuda", dtype=BF16)
    for step in range(10):
        length = 32 * draw.randrange(4, 24)
        with torch.cuda.stream(side):
            batch = torch.randn(32, length, 768).pin_memory().to("cuda", BF16, non_blocking=True)
            batch = batch * 0.5 + 1
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        out = model(batch)
        with torch.cuda.use_mem_pool(pool):
            kept[:32, :length] = out.detach()
            best = kept.float().norm(dim=-1).topk(8, -1).values
        learn(out.float().square().mean() + best.mean(), optimizer)
        if step % 4 == 3:
            torch.cuda.empty_cache()


def ordered():
    """Large rankings: sorts, quantiles, drawings without replacement, different values, and what is above a limit."""
    scores = nn.Parameter(torch.randn(2_000_000, device="cuda"))
    optimizer = torch.optim.RMSprop([scores], 1e-3)
    for _ in range(6):
        count = draw.randrange(500_000, 2_000_000)
        part = scores[:count]
        values, places = part.sort(descending=True)
        middle = part.detach()[:100_000].quantile(torch.tensor([0.1, 0.5, 0.9], device="cuda"))
        taken = torch.multinomial(part.detach()[:1_000_000].softmax(0), 50_000)
        different = torch.unique((part.detach() * 100).long())
        high = part[part.detach() > middle[2]]
        learn(values[:1000].mean() + part[taken % count].var() + high.mean() + places[0] + different.shape[0], optimizer)


if __name__ == "__main__":
    torch.manual_seed(3)
    globals()[sys.argv[1]]()
