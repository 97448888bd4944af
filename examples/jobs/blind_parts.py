"""What the jobs of blind.py are made of: layers, an optimizer, and steps."""

import math

import torch
from torch import nn
from torch.nn import functional as F

BF16 = torch.bfloat16


class Block(nn.Module):
    """A transformer's layer: attention and a perceptron, each before a residual."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    """Tokens in, logits out, and the layers' outputs where they are wanted."""

    def __init__(self, words, width, layers, heads, causal=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(2048, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        inner = []
        for block in self.blocks:
            x = block(x)
            inner.append(x)
        return self.head(self.norm(x)), inner


def learn(loss, optimizer, most=1.0):
    """One step of the optimizer, after clipping."""
    loss.backward()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    nn.utils.clip_grad_norm_(parameters, most)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def cuda(model, **how):
    """The model on the GPU."""
    return model.to("cuda", **how)


def words(count, batch, length):
    """Random tokens."""
    return torch.randint(0, count, (batch, length)).to("cuda")


class Gated(nn.Module):
    """A dilated causal convolution with a gate, a residual and a skip."""

    def __init__(self, width, skip, dilation):
        super().__init__()
        self.width, self.behind = width, dilation
        self.look = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.out = nn.Conv1d(width, width + skip, 1)

    def forward(self, x):
        value, gate = self.look(F.pad(x, (self.behind, 0))).chunk(2, 1)
        out = self.out(torch.tanh(value) * torch.sigmoid(gate))
        return x + out[:, : self.width], out[:, self.width :]


class Interaction(nn.Module):
    """Messages along edges, by filters of their lengths, summed by scatter."""

    def __init__(self, width):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(64, width), nn.Softplus(), nn.Linear(width, width))
        self.inside, self.update = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h, radial, source, target):
        messages = self.inside(h)[source] * self.filter(radial)
        summed = torch.zeros_like(h).index_add(0, target, messages)
        return h + self.update(F.softplus(summed))


def stage(inside, outside):
    """Two convolutions, the first with a stride."""
    parts = []
    for i, width in enumerate((inside, outside)):
        parts += [nn.Conv2d(width, outside, 3, 2 - i, 1, bias=False), nn.BatchNorm2d(outside)]
        parts += [nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class Flow(nn.Module):
    """A step of Glow: scale, an invertible mixture of channels, and an affine coupling."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(2, channels, 1, 1))
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(channels, channels))[0])
        parts = [nn.Conv2d(channels // 2, 384, 3, padding=1), nn.ReLU(inplace=True)]
        parts += [nn.Conv2d(384, 384, 1), nn.ReLU(inplace=True)]
        self.net = nn.Sequential(*parts, nn.Conv2d(384, channels, 3, padding=1))

    def forward(self, x):
        pixels = x.shape[2] * x.shape[3]
        x = (x + self.scale[0]) * self.scale[1].exp()
        x = F.conv2d(x, self.mix[:, :, None, None])
        volume = pixels * (self.scale[1].sum() + torch.linalg.slogdet(self.mix)[1])
        a, b = x.chunk(2, 1)
        shift, raw = self.net(a).chunk(2, 1)
        gain = torch.sigmoid(raw + 2)
        return torch.cat([a, (b + shift) * gain], 1), volume + gain.log().flatten(1).sum(1)


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal by five iterations of Newton and Schulz."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                momentum = state.setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 0.05)
                x = p.grad.lerp(momentum, 0.95).to(BF16)
                x = x.T if x.shape[0] > x.shape[1] else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
                x = x if x.shape == p.shape else x.T
                p.add_(x, alpha=-group["lr"] * math.sqrt(max(1, p.shape[0] / p.shape[1])))


class Experts(nn.Module):
    """Sixteen experts of a fixed capacity: tokens are sent and fetched by products with masks."""

    def __init__(self, width, count=16):
        super().__init__()
        self.gate, self.count = nn.Linear(width, count), count
        self.up = nn.Parameter(0.02 * torch.randn(count, width, 2 * width))
        self.down = nn.Parameter(0.02 * torch.randn(count, 2 * width, width))

    def forward(self, x):
        capacity = 5 * x.shape[1] // (2 * self.count)
        shares, best = self.gate(x).softmax(-1).topk(2, -1)
        chosen = F.one_hot(best, self.count)
        place = (chosen.flatten(1, 2).cumsum(1) - 1).view_as(chosen).mul(chosen).sum(-1)
        slots = F.one_hot(place.clamp(max=capacity), capacity + 1)[..., :capacity].to(shares.dtype)
        sends = torch.einsum("bske,bskc->bsec", chosen.to(shares.dtype), slots)
        fetch = torch.einsum("bsk,bske,bskc->bsec", shares, chosen.to(shares.dtype), slots)
        inside = torch.einsum("bsec,bsd->ebcd", sends, x)
        inside = F.gelu(torch.einsum("ebcd,edh->ebch", inside, self.up))
        return torch.einsum("ebch,ehd,bsec->bsd", inside, self.down, fetch)


class Attentive(nn.Module):
    """Two convolutions and a gate for each channel, before a residual."""

    def __init__(self, width):
        super().__init__()
        first, second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.body = nn.Sequential(first, nn.ReLU(inplace=True), second)
        squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 16, 1), nn.ReLU(inplace=True)]
        self.gate = nn.Sequential(*squeeze, nn.Conv2d(width // 16, width, 1), nn.Sigmoid())

    def forward(self, x):
        change = self.body(x)
        return x + change * self.gate(change)
