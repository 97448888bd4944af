"""A GPT of 124 million parameters, trained through torch.compile.

usage: compiled_gpt.py [--batch 32] [--length 1024] [--layers 12] [--width 768] [--steps 10]
                       [--mode default|reduce-overhead]
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--mode", default="default")
given = parser.parse_args()

VOCABULARY, HEAD = 50304, 64


class Block(nn.Module):
    """Attention and a perceptron, each before a residual."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, width // HEAD, HEAD)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Tokens and positions in, logits out; the two embeddings of tokens are one."""

    def __init__(self, layers, width, length):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = GPT(given.layers, given.width, given.length).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
compiled = torch.compile(model, mode=given.mode)
for step in range(given.steps):
    ids = torch.randint(0, VOCABULARY, (given.batch, given.length + 1)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        logits = compiled(ids[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")
