"""OPT of 2.7 billion parameters, fully sharded by FSDP1, each decoder layer wrapped by itself; bf16
parameters and gradients in communication, texts of varied lengths.

usage: torchrun --nproc-per-node 2 wrapped_opt.py [--batch 8] [--length 1024] [--layers 32]
                                                  [--steps 12]
"""

import argparse
import functools
import os

import torch
import torch.distributed as dist
from texts import Texts, pad
from torch.distributed.fsdp import BackwardPrefetch, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import OPTConfig, OPTForCausalLM
from transformers.models.opt.modeling_opt import OPTDecoderLayer

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8, help="of each GPU")
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=32)
parser.add_argument("--steps", type=int, default=12)
given = parser.parse_args()

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")

config = OPTConfig(
    hidden_size=2560,
    ffn_dim=10240,
    num_hidden_layers=given.layers,
    num_attention_heads=32,
    word_embed_proj_dim=2560,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("cuda"):
    model = OPTForCausalLM(config)
bf16 = torch.bfloat16
model = FSDP(
    model,
    auto_wrap_policy=functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={OPTDecoderLayer}
    ),
    mixed_precision=MixedPrecision(param_dtype=bf16, reduce_dtype=bf16, buffer_dtype=bf16),
    sharding_strategy=ShardingStrategy.FULL_SHARD,
    backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
    device_id=local,
    use_orig_params=True,
)
model.train()

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1)
texts = Texts(given.batch * given.steps, config.vocab_size, given.length, seed=rank)
loader = torch.utils.data.DataLoader(texts, given.batch, collate_fn=pad)
for step, batch in enumerate(loader):
    batch = {name: values.to("cuda") for name, values in batch.items()}
    loss = model(**batch).loss
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    if rank == 0:
        print(f"step {step}: {batch['input_ids'].shape[1]} tokens, loss {total.item():.3f}")
dist.destroy_process_group()
