"""One rank of one training job of the paper's evaluation.

usage: torchrun ... train.py --engine zero3|fsdp|gemini --model opt-1.3b --strategy LRO
                             [--batch 8] [--length 512] [--steps 4]

Strategies: N none; L LoRA, R recomputation, O offload of optimizer and parameters to the host.
"""

import argparse
import importlib
import os
import time

import torch
from models import MODELS

parser = argparse.ArgumentParser()
parser.add_argument("--engine", choices=["zero3", "fsdp", "gemini"], required=True)
parser.add_argument("--model", choices=MODELS, required=True)
parser.add_argument("--strategy", choices=["N", "R", "LR", "RO", "LRO"], default="LR")
parser.add_argument("--batch", type=int, default=8, help="of each GPU")
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--steps", type=int, default=4)
given = parser.parse_args()

rank, device = int(os.environ["RANK"]), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(0)
start = time.time()
step = importlib.import_module(given.engine).engine(given, device)
for number in range(given.steps):
    ids = torch.randint(0, 32000, (given.batch, given.length)).to(device)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    loss = step(batch).item()
    if rank == 0:
        held = torch.cuda.max_memory_reserved() / 2**30
        print(f"step {number}: loss {loss:.3f}, {held:.2f} GiB, {time.time() - start:.0f} s")
