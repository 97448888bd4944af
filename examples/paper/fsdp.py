"""PyTorch's FullyShardedDataParallel, each block a unit, as in PyTorch 2.0."""

import functools

import torch
import torch.distributed as dist
from models import build, layer_class, prepare, trained
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def engine(given, device):
    """A function that trains on one batch, and the loss as it comes out."""
    dist.init_process_group("nccl", device_id=device)
    with torch.device("meta"):
        model = build(given.model)
    model = prepare(model, given.model, given.strategy, reentrant=False)
    units = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={layer_class(model)}
    )
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=units,
        device_id=device,
        use_orig_params=True,
        limit_all_gathers=True,
        cpu_offload=CPUOffload("O" in given.strategy),
        param_init_fn=lambda module: module.to_empty(device=device, recurse=False),
    )
    optimizer = torch.optim.AdamW(trained(model), lr=1e-5)

    def step(batch):
        loss = model(**batch, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
