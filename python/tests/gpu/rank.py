"""One rank of a small training run. usage: rank.py ddp|fsdp1|fsdp2|copies FILE (the rank is appended to its name)

With RECORD=FOLDER, stock PyTorch is recorded: FOLDER/ENGINE.RANK.pickle.
"""

import contextlib
import json
import os
import sys
import time

import torch

engine, file = sys.argv[1:]
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def train(wrap, device, steps=12, width=2048, depth=12):
    torch.manual_seed(0)
    model = wrap(torch.nn.Sequential(*[Block(width) for _ in range(depth)]).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(1 + torch.distributed.get_rank())
    losses, times = [], []
    for step in range(steps):
        start = time.perf_counter()
        rows = 512 * (1 + step * 7 % 5)
        batch = torch.randn(rows, width, device=device)
        loss = (model(batch) - batch.roll(1, 0)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        torch.cuda.synchronize()
        times.append(round(time.perf_counter() - start, 4))
    return losses, times


def recording(rank):
    if "RECORD" not in os.environ:
        return contextlib.nullcontext()
    import gmlake

    return gmlake.record(f"{os.environ['RECORD']}/{engine}.{rank}.pickle")


def distributed():
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    if engine == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        def wrap(model):
            return DistributedDataParallel(model, device_ids=[rank])
    elif engine == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        def wrap(model):
            for block in model:
                fully_shard(block)
            return fully_shard(model)
    else:
        import functools

        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})

        def wrap(model):
            return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=rank)

    with recording(rank):
        losses, times = train(wrap, device)
    write(rank, losses, times)
    dist.barrier()
    dist.destroy_process_group()


def copies(rounds=30, shapes=10):
    """One process, two GPUs: copies between them both ways, in the same ten sizes again and again; a model on both."""
    losses, times = [], []
    for step in range(rounds):
        rows = 3000 + step % shapes * 100
        torch.cuda.synchronize()
        start = time.perf_counter()
        here = torch.full((rows, 1000), float(step), device="cuda:0")
        there = here.to("cuda:1")
        back = (there * 2).to("cuda:0", non_blocking=True)
        del there
        losses.append(back.mean(dtype=torch.float64).item())
        times.append(round(time.perf_counter() - start, 6))
        assert abs(losses[-1] - 2.0 * step) < 1e-9, (step, losses)
    # Not in one piece on either side: a kernel on one GPU writes to the other's memory itself.
    here, there = torch.randn(3000, 1000, device="cuda:0"), torch.zeros(1000, 3000, device="cuda:1")
    there.t()[::2].copy_(here[::2])
    assert torch.equal(there.t()[::2].cpu(), here[::2].cpu()) and there.t()[1::2].abs().sum().item() == 0
    first, second = torch.nn.Linear(512, 512).to("cuda:0"), torch.nn.Linear(512, 512).to("cuda:1")
    second(first(torch.ones(64, 512, device="cuda:0")).to("cuda:1")).sum().backward()
    assert first.weight.grad.abs().sum().item() > 0
    write(0, losses, times)


def write(rank, losses, times):
    memory = dict(reserved=torch.cuda.max_memory_reserved(), in_tensors=torch.cuda.max_memory_allocated())
    with open(f"{file}.{rank}", "w") as out:
        json.dump(dict(rank=rank, losses=losses, step_s=times, **memory), out)


copies() if engine == "copies" else distributed()
