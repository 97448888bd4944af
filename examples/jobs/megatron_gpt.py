"""Megatron-core trains a GPT: tensor, pipeline and virtual pipeline parallelism, and experts.

usage: megatron_gpt.py [--tensor N] [--pipeline N] [--chunks N] [--experts N] [--expert-parallel N] [options]

torchrun, or `predict --world N --ranks R`, says how many ranks there are. Weights and texts are random.
"""

import argparse
import os
import random

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe import moe_utils

VOCABULARY = 32_000
# Megatron-core 0.16.1 leaves the name undefined where there is no Transformer Engine.
moe_utils.te_general_gemm = getattr(moe_utils, "te_general_gemm", None)


def main():
    given = options()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=given.tensor,
        pipeline_model_parallel_size=given.pipeline,
        virtual_pipeline_model_parallel_size=given.chunks if given.chunks > 1 else None,
        expert_model_parallel_size=given.expert_parallel,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = configuration(given)
    chunks = [wrapped(given, config, number) for number in range(given.chunks)]
    how = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True)
    optimizer = get_megatron_optimizer(how, chunks)
    config.grad_scale_func, config.finalize_model_grads_func = optimizer.scale_loss, finalize_model_grads
    train(given, chunks, optimizer)


def options():
    parser = argparse.ArgumentParser(description="one training job")
    parser.add_argument("--tensor", type=int, default=1, help="ranks that share each layer")
    parser.add_argument("--pipeline", type=int, default=1, help="stages")
    parser.add_argument("--chunks", type=int, default=1, help="of each stage: virtual pipeline parallelism")
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--expert-parallel", type=int, default=1, help="ranks that share the experts")
    parser.add_argument("--recompute", action="store_true", help="activations of whole layers")
    parser.add_argument("--varied", action="store_true", help="lengths that vary from step to step")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=2, help="texts of a microbatch")
    parser.add_argument("--microbatches", type=int, default=4, help="of a step")
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


def configuration(given):
    experts = {"moe_token_dispatcher_type": "alltoall"}
    if given.experts:
        experts |= dict(num_moe_experts=given.experts, moe_router_topk=2, add_bias_linear=False,
                        expert_model_parallel_size=given.expert_parallel)
    recompute = dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    return TransformerConfig(
        num_layers=given.layers, hidden_size=given.width, num_attention_heads=given.width // 128, bf16=True,
        params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, tensor_model_parallel_size=given.tensor,
        pipeline_model_parallel_size=given.pipeline,
        virtual_pipeline_model_parallel_size=given.chunks if given.chunks > 1 else None,
        **experts, **(recompute if given.recompute else {}),
    )


def wrapped(given, config, number):
    """A part of the model that this rank has, in bf16, with its buffers of gradients."""
    stage = number if given.chunks > 1 else None
    model = GPTModel(
        config, get_gpt_decoder_block_spec(config, use_transformer_engine=False, vp_stage=stage), VOCABULARY, given.length,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage), vp_stage=stage,
    )
    how = DistributedDataParallelConfig(use_distributed_optimizer=True)
    return DistributedDataParallel(config, how, Float16Module(config, model.cuda()))


def train(given, chunks, optimizer):
    draw, run = random.Random(7), get_forward_backward_func()
    for number in range(given.steps):
        length = draw.randrange(given.length // 4, given.length + 1, 128) if given.varied else given.length
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        run(forward_step_func=forward, data_iterator=[texts(given, length) for _ in chunks], model=chunks,
            num_microbatches=given.microbatches, seq_length=length, micro_batch_size=given.batch)
        optimizer.step()
        print(f"step {number}: {length} tokens")


def texts(given, length):
    """Endless microbatches: ids, their places, and what attention leaves out."""
    places = torch.arange(length, device="cuda").expand(given.batch, -1)
    mask = torch.ones(1, 1, length, length, device="cuda").tril() < 0.5
    while True:
        yield torch.randint(0, VOCABULARY, (given.batch, length), device="cuda"), places, mask


def forward(batches, model):
    ids, places, mask = next(batches)
    found = model(ids, places, mask, labels=ids)

    def loss(losses):
        mean = losses.float().mean()
        return mean, {"loss": mean.detach()}

    return found, loss


if __name__ == "__main__":
    main()
