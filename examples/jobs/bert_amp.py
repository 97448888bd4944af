"""BERT-large (335 million parameters) learns to classify texts: fp16 autocast with a GradScaler,
padding up to the longest text of each batch, and DDP.

usage: torchrun --nproc-per-node 2 bert_amp.py [--batch 64] [--length 512] [--layers 24]
                                               [--steps 20]
"""

import argparse
import os

import torch
import torch.distributed as dist
from texts import Texts, pad
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import BertConfig, BertForSequenceClassification

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64, help="of each GPU")
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--classes", type=int, default=3)
parser.add_argument("--steps", type=int, default=20)
given = parser.parse_args()


def collate(examples):
    """The texts of a batch, padded, and a class for each."""
    batch = pad(examples)
    batch["labels"] = batch["input_ids"].sum(1) % given.classes
    return batch


local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")

config = BertConfig(
    hidden_size=1024,
    num_hidden_layers=given.layers,
    num_attention_heads=16,
    intermediate_size=4096,
    num_labels=given.classes,
)
torch.manual_seed(0)
model = BertForSequenceClassification(config).to(local)
model = DistributedDataParallel(model, device_ids=[local])
model.train()

optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
scaler = torch.amp.GradScaler("cuda")
count = given.batch * dist.get_world_size() * given.steps
texts = Texts(count, config.vocab_size, given.length, typical=120)
sampler = DistributedSampler(texts, shuffle=True, seed=0)
loader = DataLoader(texts, given.batch, sampler=sampler, collate_fn=collate, num_workers=2)
for step, batch in enumerate(loader):
    batch = {name: values.to(local, non_blocking=True) for name, values in batch.items()}
    with torch.autocast("cuda", torch.float16):
        loss = model(**batch).loss
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if dist.get_rank() == 0:
        print(f"step {step}: {batch['input_ids'].shape[1]} tokens, loss {loss.item():.3f}")
dist.destroy_process_group()
