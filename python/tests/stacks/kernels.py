"""Libraries with kernels of their own, compiled ahead or by Triton."""

import tempfile

from .listed import stack


@stack("liger-kernel==0.8.5", "transformers==5.17.0", mib=104)
def liger():
    """A Llama with its Triton kernels and fused loss"""
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    from .common import causal, causal_model, train

    apply_liger_kernel_to_llama()
    train(causal_model().cuda().bfloat16(), causal)


@stack("bitsandbytes==0.50.2", mib=72)
def bitsandbytes_paged():
    """Linear layers in 4 and 8 bits, a paged optimizer of 8 bits"""
    import bitsandbytes
    import torch

    from .common import train

    model = torch.nn.Sequential(
        torch.nn.Linear(512, 512), bitsandbytes.nn.Linear4bit(512, 512, compute_dtype=torch.bfloat16, quant_type="nf4"),
        bitsandbytes.nn.Linear8bitLt(512, 512, has_fp16_weights=False), torch.nn.Linear(512, 512),
    ).cuda()
    free = [each for each in model.parameters() if each.requires_grad and each.is_floating_point()]
    optimizer = bitsandbytes.optim.PagedAdamW8bit(free, lr=1e-4)
    data = torch.randn(64, 512, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        train(model, lambda model: model(data).float().square().mean(), optimizer=optimizer)


@stack("bitsandbytes==0.50.2", "transformers==5.17.0", "peft==0.21.2", "accelerate==1.15.0", mib=102)
def qlora():
    """A Llama loaded in 4 bits, LoRA, 8-bit AdamW by Trainer"""
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

    from .common import causal_model, saved

    with tempfile.TemporaryDirectory() as folder:
        four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        path = saved(causal_model().bfloat16(), folder)
        model = AutoModelForCausalLM.from_pretrained(path, quantization_config=four, device_map={"": 0})
        model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(r=8, target_modules="all-linear"))
        data = [dict(input_ids=row, labels=row) for row in torch.randint(4, 1000, (32, 128))]
        given = TrainingArguments(folder, max_steps=3, bf16=True, optim="adamw_8bit", save_strategy="no", report_to="none")
        Trainer(model, given, train_dataset=data).train()


@stack("xformers==0.0.35", mib=62)
def xformers():
    """memory_efficient_attention, forwards and backwards, with a causal bias"""
    import torch
    from xformers.ops import LowerTriangularMask, memory_efficient_attention

    query, key, value = (torch.randn(4, 512, 16, 64, device="cuda", dtype=torch.half, requires_grad=True) for _ in range(3))
    for bias in [None, LowerTriangularMask()]:
        memory_efficient_attention(query, key, value, attn_bias=bias).sum().backward()


@stack("torchao==0.18.0", mib=140)
def torchao():
    """8-bit AdamW, and int8 weights"""
    import torch
    from torchao.optim import AdamW8bit
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    from .common import perceptron, train

    model, data = perceptron(512).cuda(), torch.randn(64, 512, device="cuda")
    train(model, lambda model: model(data).square().mean(), optimizer=AdamW8bit(model.parameters()))
    quantize_(model, Int8WeightOnlyConfig())
    with torch.no_grad():
        model(data)


@stack("flash-linear-attention==0.6.0", "transformers==5.17.0", mib=552)
def flash_linear_attention():
    """Gated linear attention, recurrent, by Triton"""
    import torch
    from fla.layers import GatedLinearAttention

    from .common import train

    layer = GatedLinearAttention(mode="fused_recurrent", hidden_size=256, num_heads=4).cuda().bfloat16()
    data = torch.randn(2, 256, 256, device="cuda", dtype=torch.bfloat16)
    train(layer, lambda layer: layer(data)[0].float().square().mean())


@stack("transformers==5.17.0", mib=1658)
def mamba():
    """Mamba2 as transformers has it, without compiled kernels"""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    from .common import causal, train

    sizes = dict(hidden_size=256, num_hidden_layers=2, vocab_size=1024, num_heads=8, head_dim=64, state_size=64, n_groups=1)
    train(Mamba2ForCausalLM(Mamba2Config(**sizes)).cuda(), causal)


@stack("torch==2.11.0", mib=64)
def compiled():
    """torch.compile and flex_attention"""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda _b, _h, query, key: query >= key, None, None, 256, 256, device="cuda")
    attend = torch.compile(flex_attention)
    query, key, value = (torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    attend(query, key, value, block_mask=mask).sum().backward()


@stack("galore-torch==1.0", mib=84)
def galore():
    """AdamW on gradients of low rank, by singular values"""
    import torch
    from galore_torch import GaLoreAdamW

    from .common import perceptron, train

    model, data = perceptron(512).cuda(), torch.randn(64, 512, device="cuda")
    matrices = [each for each in model.parameters() if each.ndim == 2]
    others = [each for each in model.parameters() if each.ndim != 2]
    groups = [dict(params=others), dict(params=matrices, rank=32, update_proj_gap=2, scale=0.25, proj_type="std")]
    train(model, lambda model: model(data).square().mean(), optimizer=GaLoreAdamW(groups))
