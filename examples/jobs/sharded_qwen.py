"""A Qwen2.5 of 3 billion parameters, sharded over the GPUs by FSDP2: layers wrapped for activation
checkpointing, gradients accumulated without communication, texts of varied lengths.

usage: torchrun --nproc-per-node 2 sharded_qwen.py [--batch 4] [--accumulate 4] [--length 2048]
                                                   [--layers 36] [--steps 8]
"""

import argparse
import os

import torch
import torch.distributed as dist
from texts import Texts, pad
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, Qwen2Config

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4, help="of each GPU")
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--layers", type=int, default=36)
parser.add_argument("--steps", type=int, default=8)
given = parser.parse_args()

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)

config = Qwen2Config(
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=11008,
    num_hidden_layers=given.layers,
    num_attention_heads=16,
    num_key_value_heads=2,
    max_position_embeddings=32768,
    tie_word_embeddings=True,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
layers = model.model.layers
for number, layer in enumerate(layers):
    layers[number] = checkpoint_wrapper(layer)
    fully_shard(layers[number], mp_policy=precision)
fully_shard(model, mp_policy=precision)
model.to_empty(device=device)
model.init_weights()
model.train()

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95))
count = given.batch * given.accumulate * given.steps
texts = Texts(count, config.vocab_size, given.length, shortest=64, typical=350, seed=rank)
loader = torch.utils.data.DataLoader(texts, given.batch, collate_fn=pad, pin_memory=True)
for number, batch in enumerate(loader):
    batch = {name: values.to(device, non_blocking=True) for name, values in batch.items()}
    last = (number + 1) % given.accumulate == 0
    model.set_requires_gradient_sync(last)
    loss = model(**batch).loss / given.accumulate
    loss.backward()
    if last:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(f"batch {number}: {batch['input_ids'].shape[1]} tokens, loss {loss.item():.3f}")
dist.destroy_process_group()
