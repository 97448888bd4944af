"""Diffusion: a U-Net with attention (`unet`) or a transformer (`dit`) learns to find the noise in latents.

`--length` is a side of the latents; with `--varied` each batch has an aspect ratio and a size of its own.
"""

import torch
from learner import Learner, between
from torch import nn
from torch.nn.functional import mse_loss, scaled_dot_product_attention, silu

CHANNELS = 4


def waves(times, width):
    """Times as sines and cosines."""
    rates = torch.exp(-torch.arange(width // 2, device=times.device) * (9.2 / (width // 2)))
    angles = times[:, None].float() * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


class Residual(nn.Module):
    """Two convolutions around which goes a skip."""

    def __init__(self, before, after, times):
        super().__init__()
        self.in_layers = nn.Sequential(nn.GroupNorm(32, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.time = nn.Linear(times, after)
        self.out_layers = nn.Sequential(nn.GroupNorm(32, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x, time):
        h = self.in_layers(x) + self.time(silu(time))[:, :, None, None]
        return self.skip(x) + self.out_layers(h)


class Attention(nn.Module):
    """Every position looks at all others."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.all, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        size, length, width = x.shape
        heads = self.all(self.norm(x)).view(size, length, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
        return x + self.out(scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape))


class UNet(nn.Module):
    """Down to an eighth of the side and up again; what was on the way down is joined on the way up."""

    def __init__(self, width, layers):
        super().__init__()
        widths, self.width = [width, 2 * width, 4 * width, 4 * width], width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.first, self.down, self.up = nn.Conv2d(CHANNELS, width, 3, padding=1), nn.ModuleList(), nn.ModuleList()
        skips, now = [width], width
        for level, after in enumerate(widths):
            for _ in range(layers):
                self.down.append(self.block(now, after, level))
                now = after
                skips.append(now)
            if level < 3:
                self.down.append(nn.Conv2d(now, now, 3, stride=2, padding=1))
                skips.append(now)
        for level, after in reversed(list(enumerate(widths))):
            for index in range(layers + 1):
                self.up.append(self.block(now + skips.pop(), after, level))
                now = after
            if level:
                self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(now, now, 3, padding=1)))
        self.last = nn.Sequential(nn.GroupNorm(32, now), nn.SiLU(), nn.Conv2d(now, CHANNELS, 3, padding=1))

    def block(self, before, after, level):
        attention = Attention(after) if level else None
        return nn.ModuleList([Residual(before, after, 4 * self.width), *([attention] if attention else [])])

    def step(self, block, h, time):
        if not isinstance(block, nn.ModuleList):
            return block(h)
        h = block[0](h, time)
        if len(block) > 1:
            h = block[1](h.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(h.shape)
        return h

    def forward(self, x, times):
        time, h = self.time(waves(times, self.width).to(x.dtype)), self.first(x)
        skips = [h]
        for block in self.down:
            h = self.step(block, h, time)
            skips.append(h)
        for block in self.up:
            h = torch.cat([h, skips.pop()], 1) if isinstance(block, nn.ModuleList) else h
            h = self.step(block, h, time)
        return self.last(h)


class Layer(nn.Module):
    """A transformer's layer whose scales come from the time."""

    def __init__(self, width):
        super().__init__()
        self.attention, self.norm = Attention(width), nn.LayerNorm(width)
        self.scales = nn.Linear(width, 2 * width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, h, time):
        scale, gate = self.scales(silu(time)).unsqueeze(1).chunk(2, -1)
        h = self.attention(h)
        return h + gate * self.perceptron(self.norm(h) * (1 + scale))


class Transformer(nn.Module):
    """Patches of two by two, in a row."""

    def __init__(self, width, layers):
        super().__init__()
        self.width, self.first = width, nn.Conv2d(CHANNELS, width, 2, stride=2)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.last = nn.ConvTranspose2d(width, CHANNELS, 2, stride=2)

    def forward(self, x, times):
        time, h = self.time(waves(times, self.width).to(x.dtype)), self.first(x)
        high, wide = h.shape[2:]
        h = h.flatten(2).transpose(1, 2)
        for layer in self.layers:
            h = layer(h, time)
        return self.last(h.transpose(1, 2).unflatten(2, (high, wide)))


def denoise(model, latents, times):
    noise = torch.randn_like(latents)
    mixed = latents + noise * (times / 1000).to(noise.dtype)[:, None, None, None]
    return mse_loss(model(mixed, times).float(), noise.float())


def build(given):
    return Learner({"unet": UNet, "dit": Transformer}[given.family](given.width, given.layers), denoise)


def batch(given, draw):
    high, wide = ((between(draw, given.length // 2, given.length, 8) if given.varied else given.length)
                  for _ in range(2))
    times = torch.randint(0, 1000, (given.batch,), generator=draw)
    return {"latents": torch.zeros(given.batch, CHANNELS, high, wide), "times": times}
