"""Engines: who wraps the model, and what a step is. Here those of one model on one GPU, and DDP.

Every engine gets the options and a kind (`build`, `batch`), and makes `--steps` steps.
"""

import importlib
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist


def names():
    return sorted(ENGINES)


def run(given, kind):
    torch.manual_seed(0)
    ENGINES[given.engine](given, kind)


def place():
    """This rank's device."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def join():
    """This rank's device, once it belongs to the group of all ranks."""
    device = place()
    dist.init_process_group("nccl", device_id=device)
    return device


def blocks(model):
    """The class of the block that the model repeats most."""
    lists = [m for m in model.modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential))]
    return type(max(lists, key=len)[-1])


def prepared(given, kind, device):
    """The model where `device` says, with LoRA, checkpointing and types of weights as asked for."""
    with torch.device(device):
        model = kind.build(given)
    if given.precision == "pure":
        model = model.to(torch.bfloat16)
    if given.lora:
        model = adapted(model, given.lora)
    if given.checkpointing and hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    elif given.checkpointing:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

        block = blocks(model)
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, block))
    return model.train()


def adapted(model, rank):
    """The model frozen, with an adapter for each linear layer."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear")
    if hasattr(model, "enable_input_require_grads"):
        model.enable_input_require_grads()
    return get_peft_model(model, lora)


def trained(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def optimizer(given, model):
    """Over the parameters that are trained."""
    parameters = trained(model)
    if given.optimizer == "adafactor":
        from transformers import Adafactor

        return Adafactor(parameters, lr=1e-4, relative_step=False, scale_parameter=False)
    if given.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[given.optimizer](parameters, lr=1e-4)


def batches(given, kind, device):
    """All batches, on the device; each rank draws its own."""
    draw = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
    for _ in range(given.steps * given.accumulate):
        items = kind.batch(given, draw)
        yield moved(items, device)


def moved(value, device):
    """The same on the device; lists and dictionaries with all that is in them."""
    if isinstance(value, dict):
        return {name: moved(item, device) for name, item in value.items()}
    if isinstance(value, list):
        return [moved(item, device) for item in value]
    return value.to(device, non_blocking=True)


def autocast(given):
    types = {"fp16": torch.float16, "bf16": torch.bfloat16}
    return torch.autocast("cuda", types[given.precision]) if given.precision in types else nullcontext()


def steps(given, kind, model, device, waits=nullcontext, after=lambda: None):
    """Trains a model that is wrapped already.

    `waits` is entered where gradients are not yet summed, `after` is called when a step is done.
    """
    chosen = optimizer(given, model)
    scaler = torch.amp.GradScaler("cuda", enabled=given.precision == "fp16")
    for number, batch in enumerate(batches(given, kind, device)):
        last = (number + 1) % given.accumulate == 0
        with nullcontext() if last else waits():
            with autocast(given):
                loss = model(**batch)["loss"] / given.accumulate
            scaler.scale(loss).backward()
        if last:
            scaler.unscale_(chosen)
            torch.nn.utils.clip_grad_norm_(trained(model), 1.0)
            scaler.step(chosen)
            scaler.update()
            chosen.zero_grad()
            after()
            print(f"step {number // given.accumulate}: loss {loss.item():.3f}")


def loop(given, kind):
    """A plain loop on one GPU."""
    device = place()
    model = prepared(given, kind, device)
    steps(given, kind, torch.compile(model) if given.compile else model, device)


def averaged(given, kind):
    """A plain loop, and next to the model an average of its weights over the steps."""
    device = place()
    model = prepared(given, kind, device)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    steps(given, kind, model, device, after=lambda: average.update_parameters(model))


def ddp(given, kind):
    """Each rank has the whole model; gradients are summed."""
    device = join()
    model = prepared(given, kind, device)
    model = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[device], find_unused_parameters=bool(given.lora)
    )
    steps(given, kind, model, device, model.no_sync)


def of(module, name):
    """An engine of another file, imported when it is used."""
    return lambda given, kind: getattr(importlib.import_module(module), name)(given, kind)


ENGINES = {"loop": loop, "averaged": averaged, "ddp": ddp}
ENGINES.update({name: of("shards", name) for name in ["fsdp1", "fsdp2", "hybrid", "zero1", "zero2", "zero3"]})
ENGINES.update({name: of("libraries", name) for name in ["accelerate", "accelerate_fsdp2", "trainer"]})
