"""GPT-2 large (774 million parameters), all of it fine-tuned by `Trainer`: gradient accumulation,
gradient checkpointing, and an evaluation every four steps.

usage: gpt2_trainer.py [--batch 16] [--accumulate 2] [--length 1024] [--layers 36] [--steps 12]
"""

import argparse

import torch
from texts import Texts, pad
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=36)
parser.add_argument("--steps", type=int, default=12)
given = parser.parse_args()

config = GPT2Config(n_embd=1280, n_layer=given.layers, n_head=20, use_cache=False)
torch.manual_seed(0)
model = GPT2LMHeadModel(config)

arguments = TrainingArguments(
    output_dir="/tmp/gpt2_trainer",
    per_device_train_batch_size=given.batch,
    per_device_eval_batch_size=2 * given.batch,
    gradient_accumulation_steps=given.accumulate,
    gradient_checkpointing=True,
    max_steps=given.steps,
    learning_rate=5e-5,
    weight_decay=0.01,
    bf16=True,
    eval_strategy="steps",
    eval_steps=4,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
count = given.batch * given.accumulate * given.steps
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=Texts(count, config.vocab_size, given.length, typical=400),
    eval_dataset=Texts(100, config.vocab_size, given.length, typical=400, seed=1),
    data_collator=pad,
)
trainer.train()
