"""What the jobs of blind5.py are made of."""

import torch
from blind_parts import BF16
from torch import nn
from torch.nn import functional as F


def llama(width, layers, heads, groups, **more):
    """Hugging Face's Llama with random weights, made on the GPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": width, "intermediate_size": 11 * width // 4, "num_hidden_layers": layers}
    shape |= {"num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": 32_000}
    with torch.device("cuda"):
        return LlamaForCausalLM(LlamaConfig(**shape, max_position_embeddings=32_768, **more))


class Residual(nn.Module):
    """Two convolutions of space and time after norms, before a residual."""

    def __init__(self, width):
        super().__init__()
        parts = [(nn.GroupNorm(16, width), nn.SiLU(), nn.Conv3d(width, width, 3, padding=1)) for _ in range(2)]
        self.body = nn.Sequential(*[part for three in parts for part in three])

    def forward(self, x):
        return x + self.body(x)


def decoder(widths):
    """Latents to clips: each stage twice as high and wide, the first two also twice as long."""
    parts = [nn.Conv3d(16, widths[0], 3, padding=1), Residual(widths[0])]
    for i, (inside, width) in enumerate(zip(widths, widths[1:])):
        stride = (2 if i < 2 else 1, 2, 2)
        parts += [nn.ConvTranspose3d(inside, width, stride, stride), Residual(width), Residual(width)]
    return nn.Sequential(*parts, nn.GroupNorm(16, widths[-1]), nn.SiLU(), nn.Conv3d(widths[-1], 3, 3, padding=1))


class Ponder(nn.Module):
    """A perceptron with a residual for those that still think, and how sure each of them is."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down, self.sure = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Linear(width, 1)
        nn.init.constant_(self.sure.bias, -1.0)

    def forward(self, x):
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return x, self.sure(x).squeeze(1).sigmoid()


class Unpadded(nn.Module):
    """A transformer's layer whose perceptron and norms see no padding; attention pads again."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, places, mask):
        batch, length = mask.shape
        flat = self.qkv(self.norm1(x))
        padded = flat.new_zeros(batch * length, flat.shape[1]).index_copy(0, places, flat)
        q, k, v = padded.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, mask[:, None, None, :])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch * length, -1)[places])
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TwoPaths(nn.Module):
    """A GRU within each chunk of a sound, and one across chunks, both ways."""

    def __init__(self, width, hidden):
        super().__init__()
        self.grus = nn.ModuleList(nn.GRU(width, hidden, batch_first=True, bidirectional=True) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(2 * hidden, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in range(2))

    def forward(self, x):
        for gru, out, norm in zip(self.grus, self.outs, self.norms):
            batch, width, across, within = x.shape
            rows = x.permute(0, 2, 3, 1).reshape(batch * across, within, width)
            rows = out(gru(rows)[0]).view(batch, across, within, width).permute(0, 3, 1, 2)
            x = (x + norm(rows)).transpose(2, 3)
        return x


class Field(nn.Module):
    """A velocity at each place and time, and its divergence by one random direction."""

    def __init__(self, size, width):
        super().__init__()
        sizes = [size + 1, width, width, width, size]
        parts = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.Tanh())]
        self.net = nn.Sequential(*parts[:-1])

    def velocity(self, time, x, noise):
        x = x if x.requires_grad else x.requires_grad_()
        v = self.net(torch.cat([x, time.expand(len(x), 1)], 1))
        slope = torch.autograd.grad(v, x, noise, create_graph=True)[0]
        return v, -(slope * noise).sum(1)

    def forward(self, time, x, volume, noise, step):
        """One step of Runge and Kutta's method of the fourth order."""
        a, da = self.velocity(time, x, noise)
        b, db = self.velocity(time + step / 2, x + step / 2 * a, noise)
        c, dc = self.velocity(time + step / 2, x + step / 2 * b, noise)
        d, dd = self.velocity(time + step, x + step * c, noise)
        return x + step / 6 * (a + 2 * b + 2 * c + d), volume + step / 6 * (da + 2 * db + 2 * dc + dd)


def rounded(x):
    """Whole numbers from -127 to 127, and the scale of each row."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-6) / 127
    return (x / scale).round().to(torch.int8), scale


class Eight(nn.Module):
    """A linear layer in eight bits: weights are rounded once, rows of the input each time."""

    def __init__(self, inside, outside):
        super().__init__()
        weight, scale = rounded(torch.randn(outside, inside, device="cuda") / inside**0.5)
        self.register_buffer("weight", weight.t())
        self.register_buffer("scale", scale.t())

    def forward(self, x):
        flat, scale = rounded(x.flatten(0, -2))
        rows = len(flat)
        flat = F.pad(flat, (0, 0, 0, max(0, 32 - rows)))
        out = torch._int_mm(flat, self.weight)[:rows].float() * scale * self.scale
        return out.to(BF16).view(*x.shape[:-1], -1)


class EightBlock(nn.Module):
    """A transformer's layer in eight bits, its keys and values too."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = Eight(width, 3 * width), Eight(width, width)
        self.gate, self.down = Eight(width, 8 * width), Eight(4 * width, width)

    def forward(self, x, past):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        new = [*rounded(k), *rounded(v)]
        new = new if past is None else [torch.cat(pair, 2) for pair in zip(past, new)]
        k, v = (new[i].to(BF16) * new[i + 1].to(BF16) for i in (0, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        value, gate = self.gate(self.norm2(x)).chunk(2, -1)
        return x + self.down(value * F.silu(gate)), new


class Series(nn.Module):
    """Forecasts: patches of each series, a transformer over them, the next values at once."""

    def __init__(self, blocks, width, patch, ahead):
        super().__init__()
        self.patch, self.inlet = patch, nn.Linear(patch, width)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(width, ahead)

    def forward(self, x):
        mean, spread = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        patches = ((x - mean) / spread).unfold(1, self.patch, self.patch // 2)
        return self.head(self.blocks(self.inlet(patches)).mean(1)) * spread + mean


def chunked(q, k, v, decay, size=128):
    """Attention without softmax that fades: within chunks by a matrix, across them by a state."""
    batch, heads, length, width = q.shape
    q, k, v = (t.view(batch, heads, length // size, size, width) for t in (q, k, v))
    fade = decay.float().view(batch, heads, length // size, size).cumsum(-1)
    gaps = (fade[..., :, None] - fade[..., None, :]).tril()
    lower = torch.ones(size, size, device=q.device, dtype=torch.bool).tril()
    inner = (q @ k.transpose(-1, -2)) * gaps.exp().masked_fill(~lower, 0).to(q.dtype) @ v
    kept = (k * (fade[..., -1:] - fade).exp()[..., None].to(k.dtype)).transpose(-1, -2) @ v
    state, states = torch.zeros_like(kept[:, :, 0]), []
    for i in range(length // size):
        states.append(state)
        state = state * fade[:, :, i, -1].exp()[..., None, None].to(state.dtype) + kept[:, :, i]
    outer = (q * fade.exp()[..., None].to(q.dtype)) @ torch.stack(states, 2)
    return (inner + outer).view(batch, heads, length, width)


class Fading(nn.Module):
    """A layer of attention that fades, with gates, and a perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.inlet, self.decay = nn.Linear(width, 4 * width), nn.Linear(width, heads)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        h = self.norm1(x)
        q, k, v, gate = self.inlet(h).chunk(4, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        decay = F.logsigmoid(self.decay(h).float() + 4).transpose(1, 2)
        mixed = chunked(q * (width // self.heads) ** -0.5, k, v, decay).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(F.silu(gate) * mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))
