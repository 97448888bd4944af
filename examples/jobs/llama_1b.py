"""A Llama of 1.2 billion parameters, all of them trained; batch size and length are what one asks
about: `--vary batch=1,2,4,8 --vary length=512,1024,2048` makes a grid of it.

usage: llama_1b.py [--batch 8] [--length 2048] [--checkpointing] [--steps 3]
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--steps", type=int, default=3)
given = parser.parse_args()

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.train()
if given.checkpointing:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(given.steps):
    ids = torch.randint(0, config.vocab_size, (given.batch, given.length)).to("cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")
