"""A Llama of 1.5 billion parameters that answers: token by token, or through CUDA graphs of one shape each.

usage: inference.py generate [--new 64]      transformers' `generate`, eight prompts of 512 tokens, bf16
       inference.py graphs                   the forward pass under torch.compile(mode="reduce-overhead"), four batch sizes
       inference.py hold                     as `generate`; then it says "ready" and keeps its memory until its input ends
"""

import argparse
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("mode", choices=["generate", "graphs", "hold"])
parser.add_argument("--new", type=int, default=64)
parser.add_argument("--layers", type=int, default=24)
given = parser.parse_args()

config = LlamaConfig(
    vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=given.layers, num_attention_heads=16,
    num_key_value_heads=4, max_position_embeddings=4096,
)
torch.manual_seed(0)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()

if given.mode == "graphs":
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.inference_mode():
        for size in [1, 2, 4, 8]:
            ids = torch.randint(0, config.vocab_size, (size, 256), device="cuda")
            for _ in range(3):
                chosen = compiled(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1)
            print(f"batch of {size}: {chosen.shape[0]} tokens")
else:
    ids = torch.randint(0, config.vocab_size, (8, 512), device="cuda")
    tokens = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=given.new, min_new_tokens=given.new, do_sample=True,
        pad_token_id=0,
    )
    print(f"{tokens.shape[0]} answers of {tokens.shape[1] - ids.shape[1]} tokens")
if given.mode == "hold":
    print("ready", flush=True)
    sys.stdin.read()
