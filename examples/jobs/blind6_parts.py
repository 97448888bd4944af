"""What the jobs of blind6.py are made of."""

import torch
import torch.distributed as dist
from blind_parts import BF16, Block
from torch import nn
from torch.distributed.nn import functional as between
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def made(kind, *shape, **how):
    """A module that is made on the GPU."""
    with torch.device("cuda"):
        return kind(*shape, **how)


def sentences(count, vocabulary, longest, draw):
    """Sources and targets of many lengths."""
    lengths = [[min(longest, int(draw.lognormvariate(5, 0.6)) + 8) for _ in range(2)] for _ in range(count)]
    return [{"input_ids": torch.randint(4, vocabulary, (a,)), "labels": torch.randint(4, vocabulary, (b,))} for a, b in lengths]


def pad(rows):
    """A batch: sources are filled up with zeros, which the mask hides, and targets with -100."""
    ids = nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], True, 0)
    labels = nn.utils.rnn.pad_sequence([row["labels"] for row in rows], True, -100)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


class Vision(nn.Module):
    """Patches of a picture of any size through recomputed layers."""

    def __init__(self, width, layers, heads, classes=1000):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, width, 16, 16), nn.Linear(width, classes)
        self.places = nn.Parameter(0.02 * torch.randn(1, width, 14, 14))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, pictures):
        x = self.patches(pictures)
        x = (x + F.interpolate(self.places, x.shape[2:], mode="bicubic")).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x.mean(1))


class Towers(nn.Module):
    """Pictures, of which only some patches are seen, and texts, into one space."""

    def __init__(self):
        super().__init__()
        self.patches, self.words = nn.Conv2d(3, 768, 16, 16), nn.Embedding(32_000, 512)
        self.places, self.order = nn.Parameter(0.02 * torch.randn(196, 768)), nn.Parameter(0.02 * torch.randn(77, 512))
        self.looks = nn.Sequential(*[Block(768, 12) for _ in range(8)], nn.LayerNorm(768))
        self.reads = nn.Sequential(*[Block(512, 8, causal=True) for _ in range(6)], nn.LayerNorm(512))
        self.picture, self.text = nn.Linear(768, 512, bias=False), nn.Linear(512, 512, bias=False)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def seen(self, pictures, kept):
        """A picture's place, by the patches that are kept."""
        x = (self.patches(pictures).flatten(2).transpose(1, 2) + self.places)[:, kept]
        return F.normalize(self.picture(self.looks(x).mean(1)).float(), dim=-1)

    def said(self, ids):
        """A text's place."""
        return F.normalize(self.text(self.reads(self.words(ids) + self.order[: ids.shape[1]])[:, -1]).float(), dim=-1)

    def forward(self, pictures, kept, ids):
        return self.seen(pictures, kept), self.said(ids), self.scale.exp()


def rotate(x, first=0):
    """Rotary positions of queries or keys, counted from `first`."""
    half = x.shape[-1] // 2
    turns = torch.arange(first, first + x.shape[2], device=x.device)[:, None] * 10_000 ** -(
        torch.arange(half, device=x.device) / half
    )
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * turns.cos() - b * turns.sin(), b * turns.cos() + a * turns.sin()], -1).to(x.dtype)


class Attention(nn.Module):
    """Causal attention, over as many heads as the products' outputs hold here, or in a ring over the GPUs."""

    def __init__(self, width, ring=False):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.ring = ring

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (-1, 128)).transpose(1, 2) for part in (self.q, self.k, self.v))
        if self.ring:
            first = dist.get_rank() * x.shape[1]
            mixed = Ring.apply(rotate(q, first), rotate(k, first), v)
        else:
            mixed = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Perceptron(nn.Module):
    """A gated one."""

    def __init__(self, width):
        super().__init__()
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Attention and what follows it, each after a norm and before a residual."""

    def __init__(self, width, ring=False, then=Perceptron):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.mlp = Attention(width, ring), then(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, words, width, layers, **how):
        super().__init__()
        self.tokens, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
        self.layers = nn.ModuleList(Layer(width, **how) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def pass_on(*tensors):
    """Tensors go to the next GPU of the ring, and those of the one before come."""
    rank, world = dist.get_rank(), dist.get_world_size()
    come = [torch.empty_like(tensor) for tensor in tensors]
    calls = [dist.P2POp(dist.isend, tensor.contiguous(), (rank + 1) % world) for tensor in tensors]
    calls += [dist.P2POp(dist.irecv, tensor, (rank - 1) % world) for tensor in come]
    return come, dist.batch_isend_irecv(calls)


class Ring(torch.autograd.Function):
    """Causal attention over texts of which each GPU has a part: keys and values go round, and their gradients after them."""

    @staticmethod
    def forward(ctx, q, k, v):
        rank, world = dist.get_rank(), dist.get_world_size()
        k, v = k.contiguous(), v.contiguous()
        mine, out, log, rest = (k, v), None, None, None
        for i in range(world):
            if i < world - 1:
                come, waits = pass_on(k, v)
            if i <= rank:
                part, part_log, *more = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, i == 0)
                if i == 0:
                    out, log, rest = part.float(), part_log, more[:6]
                else:
                    share = torch.sigmoid(part_log - log)[..., None]
                    out, log = out - share * (out - part), torch.logaddexp(log, part_log)
            if i < world - 1:
                for wait in waits:
                    wait.wait()
                k, v = come
        out = out.to(q.dtype)
        ctx.save_for_backward(q, *mine, out, log)
        ctx.rest = rest
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, log = ctx.saved_tensors
        rank, world = dist.get_rank(), dist.get_world_size()
        seqs, seed, offset = ctx.rest[:4], *ctx.rest[4:6]
        dq, dk, dv = torch.zeros_like(q, dtype=torch.float32), None, None
        for i in range(world):
            if i < world - 1:
                come, waits = pass_on(k, v)
            if i <= rank:
                how = (q, k, v, out, log, *seqs, 0.0, i == 0, seed, offset)
                parts = torch.ops.aten._scaled_dot_product_flash_attention_backward(grad, *how)
                dq += parts[0]
                dk = parts[1].float() if dk is None else dk + parts[1]
                dv = parts[2].float() if dv is None else dv + parts[2]
            if i < world - 1:
                for wait in waits:
                    wait.wait()
                k, v = come
            (dk, dv), waits = pass_on(dk, dv)
            for wait in waits:
                wait.wait()
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


def average(parameters):
    """The gradients' mean over the GPUs, through one flat tensor."""
    grads = [p.grad for p in parameters]
    flat = torch._utils._flatten_dense_tensors(grads)
    dist.all_reduce(flat, dist.ReduceOp.AVG)
    for grad, mean in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
        grad.copy_(mean)


def exchange(tensor, received, sent):
    """Rows to the other GPUs and from them, by their counts, with gradients."""
    return between.all_to_all_single(tensor.new_empty(sum(received), tensor.shape[1]), tensor.contiguous(), received, sent)


class Experts(nn.Module):
    """Sixteen experts, of which each GPU has some: each token goes to two, wherever they are, and none is dropped."""

    def __init__(self, width, count=16):
        super().__init__()
        self.gate, self.count = nn.Linear(width, count, bias=False), count
        self.here = nn.ModuleList()
        for _ in range(count // dist.get_world_size()):
            self.here.append(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)))

    def forward(self, x):
        flat, world = x.flatten(0, 1).to(BF16), dist.get_world_size()
        shares, chosen = self.gate(flat).float().softmax(-1).topk(2)
        order = chosen.flatten().argsort(stable=True)
        sizes = chosen.flatten().bincount(minlength=self.count)
        incoming = torch.empty_like(sizes)
        dist.all_to_all_single(incoming, sizes)
        sent, table = sizes.view(world, -1).sum(1).tolist(), incoming.view(world, -1).tolist()
        received = [sum(row) for row in table]
        pieces = exchange(flat[order // 2], received, sent).split([size for row in table for size in row])
        done = []
        for i, expert in enumerate(self.here):
            done.append(expert(torch.cat(pieces[i :: len(self.here)])).split([row[i] for row in table]))
        back = exchange(torch.cat([done[i][j] for j in range(world) for i in range(len(self.here))]), sent, received)
        weighted = back * shares.flatten()[order, None]
        return torch.zeros_like(flat, dtype=weighted.dtype).index_add(0, order // 2, weighted).view_as(x)


class Tables(nn.Module):
    """One table for all features, whose rows are divided among the GPUs: ids go to the owner of their row, rows come back."""

    def __init__(self, rows, width):
        super().__init__()
        here = torch.empty(rows // dist.get_world_size(), width, device="cuda")
        self.weight = nn.Parameter(here.uniform_(-0.01, 0.01))

    def forward(self, ids, bags, count):
        owners = ids // len(self.weight)
        order, sizes = owners.argsort(stable=True), owners.bincount(minlength=dist.get_world_size())
        incoming = torch.empty_like(sizes)
        dist.all_to_all_single(incoming, sizes)
        sent, received = sizes.tolist(), incoming.tolist()
        asked = ids.new_empty(sum(received))
        dist.all_to_all_single(asked, ids[order], received, sent)
        rows = F.embedding(asked - dist.get_rank() * len(self.weight), self.weight, sparse=True)
        back = exchange(rows, sent, received)
        return back.new_zeros(count, back.shape[1]).index_add(0, bags[order], back)


class Clicks(nn.Module):
    """The dense part: numbers through a perceptron, products of all pairs of features, and a second perceptron."""

    def __init__(self, features, width):
        super().__init__()
        self.below = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width))
        pairs = (features + 1) * features // 2
        last = [nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)]
        self.above = nn.Sequential(nn.Linear(pairs + width, 1024), nn.ReLU(), *last)
        self.register_buffer("pairs", torch.tril_indices(features + 1, features + 1, -1))

    def forward(self, numbers, pooled):
        x = self.below(numbers)
        all_ = torch.cat([x[:, None], pooled], 1)
        products = (all_ @ all_.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.above(torch.cat([x, products], 1)).squeeze(1)


class Rise(nn.Module):
    """Two convolutions after norms, twice as high and wide, before a residual."""

    def __init__(self, inside, outside):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inside), nn.BatchNorm2d(outside)
        self.first, self.second = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1)

    def forward(self, x):
        y = self.first(F.interpolate(F.relu(self.norm1(x)), scale_factor=2))
        return self.second(F.relu(self.norm2(y))) + F.interpolate(self.skip(x), scale_factor=2)


class Fall(nn.Module):
    """Two convolutions of bounded norms, half as high and wide, before a residual."""

    def __init__(self, inside, outside):
        super().__init__()
        bounded = nn.utils.parametrizations.spectral_norm
        self.first = bounded(nn.Conv2d(inside, outside, 3, padding=1))
        self.second = bounded(nn.Conv2d(outside, outside, 3, padding=1))
        self.skip = bounded(nn.Conv2d(inside, outside, 1))

    def forward(self, x):
        y = self.second(F.relu(self.first(F.relu(x))))
        return F.avg_pool2d(y + self.skip(x), 2)
