"""A mixture of experts: Qwen3-MoE of 3.9 billion parameters, all of them trained by `Trainer`.

usage: mixture_of_experts.py [--batch 8] [--length 1024] [--experts 64] [--layers 12] [--steps 8]
"""

import argparse

import torch
from texts import Texts, pad
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--experts", type=int, default=64)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--steps", type=int, default=8)
given = parser.parse_args()

config = Qwen3MoeConfig(
    vocab_size=64000,
    hidden_size=2048,
    num_hidden_layers=given.layers,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    moe_intermediate_size=768,
    num_experts=given.experts,
    num_experts_per_tok=8,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)

arguments = TrainingArguments(
    output_dir="/tmp/mixture_of_experts",
    per_device_train_batch_size=given.batch,
    max_steps=given.steps,
    learning_rate=1e-5,
    bf16=True,
    logging_steps=2,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
data = Texts(given.batch * given.steps, config.vocab_size, given.length)
Trainer(model=model, args=arguments, train_dataset=data, data_collator=pad).train()
