"""LoRA on a Qwen3-MoE of 30 billion parameters, 3 billion of them active, by `Trainer`: adapters on
the attention alone, and instructions of varied lengths.

usage: qwen_moe.py [--batch 4] [--accumulate 2] [--length 1536] [--layers 48] [--steps 8]
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from texts import Texts, pad
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--length", type=int, default=1536)
parser.add_argument("--layers", type=int, default=48)
parser.add_argument("--experts", type=int, default=128)
parser.add_argument("--steps", type=int, default=8)
given = parser.parse_args()

config = Qwen3MoeConfig(
    vocab_size=151936,
    hidden_size=2048,
    num_hidden_layers=given.layers,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    moe_intermediate_size=768,
    num_experts=given.experts,
    num_experts_per_tok=8,
    norm_topk_prob=True,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.enable_input_require_grads()
targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
lora = LoraConfig(r=16, lora_alpha=32, target_modules=targets, task_type="CAUSAL_LM")
model = get_peft_model(model, lora)

arguments = TrainingArguments(
    output_dir="/tmp/qwen_moe",
    per_device_train_batch_size=given.batch,
    gradient_accumulation_steps=given.accumulate,
    gradient_checkpointing=True,
    max_steps=given.steps,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    bf16=True,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
data = Texts(given.batch * given.accumulate * given.steps, config.vocab_size, given.length)
Trainer(model=model, args=arguments, train_dataset=data, data_collator=pad).train()
