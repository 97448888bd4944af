"""A Llama of 1.1 billion parameters through torch.compile: each batch has one of three lengths, so
that the second length makes the compiled program one of any length.

usage: compiled_llama.py [--batch 8] [--lengths 1024 1536 2048] [--layers 12] [--steps 12]
"""

import argparse
import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 1536, 2048])
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=2560)
parser.add_argument("--steps", type=int, default=12)
given = parser.parse_args()

config = LlamaConfig(
    vocab_size=32000,
    hidden_size=given.width,
    intermediate_size=given.width * 27 // 10,
    num_hidden_layers=given.layers,
    num_attention_heads=given.width // 128,
    num_key_value_heads=given.width // 512,
    max_position_embeddings=4096,
    use_cache=False,
)
torch.manual_seed(0)
draw = random.Random(0)
torch.set_float32_matmul_precision("high")
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
compiled = torch.compile(model)
for step in range(given.steps):
    length = draw.choice(given.lengths)
    ids = torch.randint(0, config.vocab_size, (given.batch, length)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = compiled(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step}: {length} tokens, loss {loss.item():.3f}")
