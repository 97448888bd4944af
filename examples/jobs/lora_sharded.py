"""LoRA on a Llama of 6.7 billion parameters, sharded over the GPUs by FSDP2: activation
checkpointing, adapters in bf16 like the rest, texts of varied lengths.

usage: torchrun --nproc-per-node 2 lora_sharded.py [--batch 8] [--length 2048] [--rank 16]
                                                   [--layers 32] [--steps 10]
"""

import argparse
import os

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from texts import Texts, pad
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8, help="of each GPU")
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--rank", type=int, default=16, help="of the adapters")
parser.add_argument("--layers", type=int, default=32)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--steps", type=int, default=10)
given = parser.parse_args()

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)

config = LlamaConfig(
    hidden_size=given.width,
    intermediate_size=given.width * 43 // 16,
    num_hidden_layers=given.layers,
    num_attention_heads=given.width // 128,
    max_position_embeddings=4096,
    use_cache=False,
)
torch.manual_seed(0)
with device:
    model = LlamaForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
lora = LoraConfig(r=given.rank, lora_alpha=32, lora_dropout=0.05, target_modules=targets)
model = get_peft_model(model, lora, autocast_adapter_dtype=False)
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.base_model.model.model.layers:
    fully_shard(layer, mp_policy=precision)
fully_shard(model, mp_policy=precision)
model.train()

learned = [values for values in model.parameters() if values.requires_grad]
optimizer = torch.optim.AdamW(learned, lr=2e-4)
texts = Texts(given.batch * given.steps, config.vocab_size, given.length, seed=rank)
for step, batch in enumerate(torch.utils.data.DataLoader(texts, given.batch, collate_fn=pad)):
    batch = {name: values.to(device, non_blocking=True) for name, values in batch.items()}
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(learned, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step}: {batch['input_ids'].shape[1]} tokens, loss {loss.item():.3f}")
dist.destroy_process_group()
