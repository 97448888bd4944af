"""Shards: engines in which no rank holds the whole model. PyTorch's FSDP of both kinds, DeepSpeed's ZeRO."""

import functools

import torch
import torch.distributed as dist
from engines import batches, blocks, join, optimizer, prepared, steps

BF16 = torch.bfloat16


def fsdp1(given, kind):
    """FullyShardedDataParallel: each block a flat parameter."""
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    device = join()
    model = prepared(given, kind, "meta")
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({blocks(model)}),
        mixed_precision=MixedPrecision(param_dtype=BF16, reduce_dtype=BF16),
        cpu_offload=CPUOffload(given.offload),
        device_id=device,
        use_orig_params=True,
        param_init_fn=lambda module: module.to_empty(device=device, recurse=False),
    )
    given.precision = "pure"
    steps(given, kind, model, device, model.no_sync)


def fsdp2(given, kind, mesh=None):
    """fully_shard: each parameter split along its first dimension, over all ranks or those of a mesh."""
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    device = join()
    model = prepared(given, kind, "meta")
    policy = dict(
        mesh=mesh and mesh(),
        mp_policy=MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32),
        offload_policy=CPUOffloadPolicy() if given.offload else OffloadPolicy(),
    )
    block = blocks(model)
    for module in list(model.modules()):
        if isinstance(module, block):
            fully_shard(module, **policy)
    fully_shard(model, **policy)
    model.to_empty(device="cpu" if given.offload else device)
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)
    given.precision = "pure"
    steps(given, kind, model, device)


def hybrid(given, kind):
    """fully_shard within each host of eight GPUs, and copies of the whole from host to host."""
    def mesh():
        sizes, names = (dist.get_world_size() // 8, 8), ("hosts", "gpus")
        return dist.device_mesh.init_device_mesh("cuda", sizes, mesh_dim_names=names)

    fsdp2(given, kind, mesh)


def zero(stage, given, kind):
    """DeepSpeed: stage 1 shards the optimizer's state, 2 the gradients too, 3 the parameters too."""
    import deepspeed

    settings = settings_of(stage, given)
    device = join()
    deepspeed.init_distributed()
    if stage == 3:
        plain_weights()
        with deepspeed.zero.Init(config_dict_or_path=settings, dtype=BF16):
            model = prepared(given, kind, device)
    else:
        model = prepared(given, kind, device)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer(given, model), config=settings)
    for number, batch in enumerate(batches(given, kind, device)):
        loss = engine(**{name: halved(value) for name, value in batch.items()})["loss"]
        engine.backward(loss)
        engine.step()
        print(f"batch {number}: loss {loss.item():.3f}")


def halved(value):
    """Numbers in the type of the weights: DeepSpeed leaves inputs as they are."""
    return value.to(BF16) if value.is_floating_point() else value


def settings_of(stage, given):
    """DeepSpeed's settings, as a user writes them."""
    place = {"device": "cpu" if given.offload else "none"}
    return {
        "train_micro_batch_size_per_gpu": given.batch,
        "gradient_accumulation_steps": given.accumulate,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": stage,
            "offload_optimizer": place,
            **({"offload_param": place} if stage == 3 else {}),
        },
        "steps_per_print": 1000,
    }


def plain_weights():
    """Weights of models whose parameters are divided while they are built are not set again."""
    from transformers import PreTrainedModel

    PreTrainedModel.init_weights = lambda self: None
    PreTrainedModel._init_weights = lambda self, module: None


zero1, zero2, zero3 = (functools.partial(zero, stage) for stage in (1, 2, 3))
