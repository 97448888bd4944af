"""A diffusion transformer (DiT-XL/2, 675 million parameters) on latents of varied aspect ratios,
made of timm's layers, with an average of its weights next to it.

usage: diffusion_transformer.py [--batch 48] [--layers 28] [--width 1152] [--steps 12]
"""

import argparse
import random

import torch
from timm.layers import Mlp, PatchEmbed
from timm.models.vision_transformer import Attention
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=48)
parser.add_argument("--layers", type=int, default=28)
parser.add_argument("--width", type=int, default=1152)
parser.add_argument("--heads", type=int, default=16)
parser.add_argument("--steps", type=int, default=12)
given = parser.parse_args()

CHANNELS, PATCH, CLASSES = 4, 2, 1000
BUCKETS = [(32, 32), (24, 40), (40, 24), (48, 20), (64, 64), (48, 80)]


def modulate(x, shift, scale):
    """Scale and shift of all tokens by what the condition says."""
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Block(nn.Module):
    """Attention and a perceptron, their norms steered by the condition."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = Attention(width, num_heads=heads, qkv_bias=True)
        self.mlp = Mlp(width, hidden_features=4 * width)
        self.steer = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, condition):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.steer(condition).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attention(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiffusionTransformer(nn.Module):
    """Noisy latents, their time and class in; the noise out, patch by patch."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.patches = PatchEmbed(None, PATCH, CHANNELS, width, strict_img_size=False)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(CLASSES + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, PATCH * PATCH * CHANNELS)

    def forward(self, latents, time, label):
        rates = torch.exp(-torch.arange(128, device=time.device) * (9.21 / 128))
        angles = time[:, None].float() * rates
        condition = self.time(torch.cat([angles.cos(), angles.sin()], dim=1)) + self.label(label)
        x = self.patches(latents)
        for block in self.blocks:
            x = block(x, condition)
        return self.head(self.norm(x))


def to_patches(latents):
    """The target in the order in which the network answers."""
    x = latents.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)
    return x.permute(0, 2, 3, 4, 5, 1).flatten(1, 2).flatten(2)


torch.manual_seed(0)
draw = random.Random(0)
model = DiffusionTransformer(given.width, given.heads, given.layers).to("cuda")
average = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9999)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
for step in range(given.steps):
    height, width = draw.choice(BUCKETS)
    latents = torch.randn(given.batch, CHANNELS, height, width).to("cuda")
    label = torch.randint(0, CLASSES, (given.batch,)).to("cuda")
    time = torch.randint(0, 1000, (given.batch,), device="cuda")
    noise = torch.randn_like(latents)
    kept = (1 - time / 1000).sqrt()[:, None, None, None]
    with torch.autocast("cuda", torch.bfloat16):
        found = model(kept * latents + (1 - kept**2).sqrt() * noise, time, label)
        loss = nn.functional.mse_loss(found.float(), to_patches(noise))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    print(f"step {step}: {height} x {width}, loss {loss.item():.3f}")
