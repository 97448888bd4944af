"""A Llama of 70 billion parameters on 1,024 GPUs: sharded by FSDP2, and with `--tp 8` each layer is
also divided among the eight GPUs of a host (tensor parallel; sequence parallel between).

usage: torchrun ... llama_70b.py [--tp 8] [--batch 1] [--length 4096] [--steps 3]
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers import AutoModelForCausalLM, LlamaConfig

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=1)
parser.add_argument("--batch", type=int, default=1, help="of each GPU, or group of `--tp`")
parser.add_argument("--length", type=int, default=4096)
parser.add_argument("--layers", type=int, default=80)
parser.add_argument("--steps", type=int, default=3)
given = parser.parse_args()

WHOLE, PIECES = Replicate(), Shard(1)  # of the sequence, between the divided matrices
ENDS = {
    "model.embed_tokens": RowwiseParallel(input_layouts=WHOLE, output_layouts=PIECES),
    "model.norm": SequenceParallel(use_local_output=True),
    "lm_head": ColwiseParallel(input_layouts=PIECES, output_layouts=WHOLE),
}
LAYER = {
    "input_layernorm": SequenceParallel(),
    "self_attn": PrepareModuleInput(
        input_kwarg_layouts={"hidden_states": PIECES},
        desired_input_kwarg_layouts={"hidden_states": WHOLE},
    ),
    "self_attn.q_proj": ColwiseParallel(),
    "self_attn.k_proj": ColwiseParallel(),
    "self_attn.v_proj": ColwiseParallel(),
    "self_attn.o_proj": RowwiseParallel(output_layouts=PIECES),
    "post_attention_layernorm": SequenceParallel(),
    "mlp": PrepareModuleInput(input_layouts=PIECES, desired_input_layouts=WHOLE),
    "mlp.gate_proj": ColwiseParallel(),
    "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(output_layouts=PIECES),
}

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
mesh = init_device_mesh("cuda", (world // given.tp, given.tp), mesh_dim_names=("dp", "tp"))

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=8192,
    intermediate_size=28672,
    num_hidden_layers=given.layers,
    num_attention_heads=64,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
if given.tp > 1:
    parallelize_module(model, mesh["tp"], ENDS)
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], LAYER)
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh["dp"], mp_policy=precision)
fully_shard(model, mesh=mesh["dp"], mp_policy=precision)
model.to_empty(device=device)
model.init_weights()
model.train()

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
positions = torch.arange(given.length).unsqueeze(0).to(device)
for step in range(given.steps):
    ids = torch.randint(0, config.vocab_size, (given.batch, given.length)).to(device)
    loss = model(input_ids=ids, position_ids=positions, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
dist.destroy_process_group()
