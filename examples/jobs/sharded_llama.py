"""A Llama of 3 billion parameters, sharded over the GPUs by FSDP2, with activation checkpointing
and texts of 128 to 1,400 tokens.

usage: torchrun --nproc-per-node 2 sharded_llama.py [--batch 8] [--length 1400] [--steps 10]
"""

import argparse
import os

import torch
import torch.distributed as dist
from texts import Texts, pad
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8, help="of each GPU")
parser.add_argument("--length", type=int, default=1400)
parser.add_argument("--layers", type=int, default=28)
parser.add_argument("--steps", type=int, default=10)
given = parser.parse_args()

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=3072,
    intermediate_size=8192,
    num_hidden_layers=given.layers,
    num_attention_heads=24,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mp_policy=precision)
fully_shard(model, mp_policy=precision)
model.to_empty(device=device)
model.init_weights()
model.train()

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
count = given.batch * given.steps
texts = Texts(count, config.vocab_size, given.length, shortest=128, typical=400, seed=rank)
for step, batch in enumerate(torch.utils.data.DataLoader(texts, given.batch, collate_fn=pad)):
    batch = {name: values.to(device, non_blocking=True) for name, values in batch.items()}
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step}: {batch['input_ids'].shape[1]} tokens, loss {loss.item():.3f}")
dist.destroy_process_group()
