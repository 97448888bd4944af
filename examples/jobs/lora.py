"""LoRA on a Llama of 8 billion parameters by `Trainer`, with gradient checkpointing and texts of
varied lengths: the commonest way to fine-tune.

usage: lora.py [--batch 8] [--accumulate 2] [--length 2048] [--rank 32] [--steps 6]
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from texts import Texts, pad
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--rank", type=int, default=32)
parser.add_argument("--steps", type=int, default=6)
given = parser.parse_args()

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    use_cache=False,
)
torch.manual_seed(0)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.enable_input_require_grads()
model = get_peft_model(
    model,
    LoraConfig(
        r=given.rank,
        lora_alpha=2 * given.rank,
        lora_dropout=0.05,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    ),
)

arguments = TrainingArguments(
    output_dir="/tmp/lora",
    per_device_train_batch_size=given.batch,
    gradient_accumulation_steps=given.accumulate,
    max_steps=given.steps,
    learning_rate=1e-4,
    warmup_steps=2,
    bf16=True,
    gradient_checkpointing=True,
    logging_steps=4,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
count = given.batch * given.accumulate * given.steps
data = Texts(count, config.vocab_size, given.length)
Trainer(model=model, args=arguments, train_dataset=data, data_collator=pad).train()
