"""Libraries that own the loop or a part of it: accelerate, and transformers' Trainer."""

import os
import tempfile

import torch
from engines import batches, blocks, optimizer, place, prepared, trained


def accelerate(given, kind):
    """accelerate on one GPU, or with DDP where there are more ranks."""
    from accelerate import Accelerator

    device = place()
    precision = given.precision if given.precision in ("fp16", "bf16") else "no"
    run(given, kind, Accelerator(mixed_precision=precision, gradient_accumulation_steps=given.accumulate), device)


def accelerate_fsdp2(given, kind):
    """accelerate with FSDP2 below it, which recomputes activations if asked to."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    device = place()
    with torch.device("meta"):
        block = blocks(kind.build(given))
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[block.__name__],
        activation_checkpointing=given.checkpointing,
        cpu_offload=given.offload,
        reshard_after_forward=True,
    )
    given.checkpointing = False
    accelerator = Accelerator(
        mixed_precision="bf16", gradient_accumulation_steps=given.accumulate, fsdp_plugin=plugin
    )
    run(given, kind, accelerator, device)


def run(given, kind, accelerator, device):
    model = prepared(given, kind, device)
    model, chosen = accelerator.prepare(model, optimizer(given, model))
    for number, batch in enumerate(batches(given, kind, device)):
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = model(**batch)["loss"]
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(trained(model), 1.0)
            chosen.step()
            chosen.zero_grad()
        print(f"batch {number}: loss {loss.item():.3f}")


def trainer(given, kind):
    """transformers' Trainer: one GPU, or DDP where there are more ranks."""
    from transformers import Trainer, TrainingArguments

    model = prepared(given, kind, place())
    optimizers = {"adamw": "adamw_torch", "adam": "adamw_torch_fused"}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=1,  # each example is a batch already
            gradient_accumulation_steps=given.accumulate,
            max_steps=given.steps,
            bf16=given.precision == "bf16",
            fp16=given.precision == "fp16",
            optim=optimizers.get(given.optimizer, given.optimizer),
            ddp_find_unused_parameters=False,
            dataloader_num_workers=0,
            remove_unused_columns=False,
            logging_steps=4,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=Batches(given, kind), data_collator=first).train()


class Batches(torch.utils.data.Dataset):
    """Whole batches, as one example each."""

    def __init__(self, given, kind):
        self.given, self.kind = given, kind
        self.count = given.steps * given.accumulate * int(os.environ.get("WORLD_SIZE", "1"))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.kind.batch(self.given, torch.Generator().manual_seed(index))


def first(examples):
    return examples[0]
