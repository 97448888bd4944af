"""DeepSpeed ZeRO-3, with the settings of DeepSpeed-Chat's examples."""

import deepspeed
import torch
from models import build, prepare, trained
from transformers.initialization import no_init_weights


def engine(given, device):
    """A function that trains on one batch, and the loss as it comes out."""
    settings = configuration(given)
    deepspeed.init_distributed()
    with deepspeed.zero.Init(config_dict_or_path=settings, dtype=torch.bfloat16):
        with device, no_init_weights():
            model = build(given.model)
    model = prepare(model, given.model, given.strategy, reentrant=True)
    optimizer = torch.optim.AdamW(trained(model), lr=1e-5)
    whole, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

    def step(batch):
        loss = whole(**batch, use_cache=False).loss
        whole.backward(loss)
        whole.step()
        return loss

    return step


def configuration(given):
    """Thresholds as in DeepSpeed-Chat (`get_train_ds_config`)."""
    offload = {"device": "cpu" if "O" in given.strategy else "none", "pin_memory": False}
    return {
        "train_micro_batch_size_per_gpu": given.batch,
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1000,
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": offload,
            "offload_param": offload,
            "stage3_param_persistence_threshold": 1e4,
            "stage3_max_live_parameters": 3e7,
            "stage3_prefetch_bucket_size": 3e7,
        },
    }
