"""Soak: a training loop of ever-changing shapes on several streams, with freed memory poisoned and looked at.

usage: soak.py OUT SECONDS, with ALLOCATORS, and optionally WIDTH of the model (1024)
Exit code 1 if a byte of free memory changed, a result was wrong, or memory grew.
"""

import json
import os
import random
import sys
import time

import torch

import gmlake

OUT, LIMIT = sys.argv[1], float(sys.argv[2])
WIDTH = int(os.environ.get("WIDTH", "1024"))
gmlake.enable(os.environ["ALLOCATORS"].split()[0], poison=True)
random.seed(1)
torch.manual_seed(1)
device = torch.device("cuda", 0)
side = [torch.cuda.Stream() for _ in range(2)]
model = torch.nn.Sequential(
    torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.LayerNorm(4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
held, kept, wrong, step = [], [], 0, 0
start = time.time()
while time.time() - start < LIMIT - 20:
    rows = random.randrange(1, 9000)
    batch = torch.randn(rows, WIDTH, device=device)
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    # Lent to a side stream and let go at once: the sums tell whether somebody wrote over it meanwhile.
    number = float(step % 1000)
    lent = torch.full((random.randrange(1, 3000 * WIDTH),), number, device=device)
    stream = side[step % 2]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000)
        is_right = (lent == number).all()
    lent.record_stream(stream)
    del lent
    is_right.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(stream)
    wrong += int(not is_right.item())
    # Some tensors live long, and are compared when they go.
    kept.append((step, torch.full((random.randrange(1, 2000 * WIDTH),), step, device=device, dtype=torch.int32)))
    if len(kept) > 30:
        value, tensor = kept.pop(random.randrange(len(kept)))
        wrong += int(not (tensor == value).all().item())
        del tensor
    step += 1
    if step % 20 == 0:
        held.append(gmlake.stats(0)["held_bytes"])
    if step % 400 == 0:
        torch.cuda.empty_cache()
stats = gmlake.stats(0)
half = len(held) // 2
growth = max(held[half:], default=0) / max(1, max(held[:half], default=1))
verdict = dict(steps=step, seconds=round(time.time() - start, 1), loss=loss.item(), wrong=wrong,
               growth_of_second_half=round(growth, 3), poison=stats["poison"], stats=stats)
with open(f"{OUT}/soak.json", "w") as file:
    json.dump(verdict, file, indent=1)
print(json.dumps({key: value for key, value in verdict.items() if key != "stats"}, indent=1))
is_bad = wrong or stats["poison"]["corrupted_bytes"] or stats["poison"]["checks"] == 0 or growth > 1.1
print("soak:", "BAD" if is_bad else "good")
sys.exit(1 if is_bad else 0)
