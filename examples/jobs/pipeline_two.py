"""A GPT of 1.3 billion parameters in a pipeline of as many stages as there are GPUs: one forward
and one backward in turn (1F1B), microbatches of one size.

usage: torchrun --nproc-per-node 2 pipeline_two.py [--batch 32] [--pieces 8] [--length 1024]
                                                   [--layers 24] [--width 2048] [--steps 10]
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--pieces", type=int, default=8, help="microbatches of a batch")
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--steps", type=int, default=10)
given = parser.parse_args()

VOCABULARY, HEAD = 50304, 128


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
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Enter(nn.Module):
    """Tokens and their positions."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, given.width)
        self.positions = nn.Embedding(given.length, given.width)

    def forward(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))


def part(number, count):
    """The layers of one stage; the first has the embeddings, the last has the logits."""
    layers = [Block(given.width) for _ in range(given.layers // count)]
    if number == 0:
        layers.insert(0, Enter())
    if number == count - 1:
        layers += [nn.LayerNorm(given.width), nn.Linear(given.width, VOCABULARY, bias=False)]
    return nn.Sequential(*layers)


def measure(logits, labels):
    """The loss of one microbatch."""
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(0)
model = part(rank, world).to(device, torch.bfloat16)
stage = PipelineStage(model, rank, world, device)
schedule = Schedule1F1B(stage, given.pieces, loss_fn=measure)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95))
draw = torch.Generator().manual_seed(0)
for step in range(given.steps):
    ids = torch.randint(0, VOCABULARY, (given.batch, given.length + 1), generator=draw).to(device)
    inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    losses = []
    if rank == 0:
        schedule.step(inputs)
    else:
        last = rank == world - 1
        schedule.step(target=labels if last else None, losses=losses if last else None)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if rank == world - 1:
        print(f"step {step}: loss {torch.stack(losses).mean().item():.3f}")
dist.destroy_process_group()
