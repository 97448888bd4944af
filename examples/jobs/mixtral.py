"""A Mixtral of 4.6 billion parameters, eight experts of which each token takes two: all of them are
trained in bf16 by a plain loop, on sequences of one length.

usage: mixtral.py [--batch 8] [--length 1024] [--layers 16] [--experts 8] [--steps 10]
"""

import argparse

import torch
from transformers import MixtralConfig, MixtralForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=16)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--experts", type=int, default=8)
parser.add_argument("--steps", type=int, default=10)
given = parser.parse_args()

config = MixtralConfig(
    vocab_size=32000,
    hidden_size=given.width,
    intermediate_size=given.width * 11 // 4,
    num_hidden_layers=given.layers,
    num_attention_heads=given.width // 64,
    num_key_value_heads=given.width // 256,
    num_local_experts=given.experts,
    num_experts_per_tok=2,
    max_position_embeddings=4096,
    output_router_logits=True,
    router_aux_loss_coef=0.02,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("cuda"):
    model = MixtralForCausalLM(config).to(torch.bfloat16)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.steps)
for step in range(given.steps):
    ids = torch.randint(0, config.vocab_size, (given.batch, given.length)).to("cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")
