"""Models: those of the paper's evaluation, by their published sizes, with random weights.

GLM-10B's own classes are in no library. Its blocks are those of GPT-2 (a norm before attention and
before a perceptron of four times the width), so that GPT-2's class stands for it.
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

MODELS = {
    "gpt2-1.5b": ("gpt2", dict(n_embd=1600, n_layer=48, n_head=25, n_positions=1024)),
    "opt-1.3b": (
        "opt",
        dict(hidden_size=2048, num_hidden_layers=24, ffn_dim=8192, num_attention_heads=32,
             word_embed_proj_dim=2048),
    ),
    "glm-10b": (
        "gpt2",
        dict(n_embd=4096, n_layer=48, n_head=64, n_positions=1024, vocab_size=50304),
    ),
    "opt-13b": (
        "opt",
        dict(hidden_size=5120, num_hidden_layers=40, ffn_dim=20480, num_attention_heads=40,
             word_embed_proj_dim=5120),
    ),
    "vicuna-13b": (
        "llama",
        dict(hidden_size=5120, num_hidden_layers=40, intermediate_size=13824,
             num_attention_heads=40, max_position_embeddings=2048, vocab_size=32000),
    ),
    "gpt-neox-20b": (
        "gpt_neox",
        dict(hidden_size=6144, num_hidden_layers=44, intermediate_size=24576,
             num_attention_heads=64, max_position_embeddings=2048, vocab_size=50432),
    ),
}
LORA = {
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "opt": ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"],
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "gpt_neox": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
}


def build(name, dtype=torch.bfloat16):
    """The model on the device that is the default; attention as it was written out in 2023."""
    kind, sizes = MODELS[name]
    config = AutoConfig.for_model(kind, torch_dtype=dtype, use_cache=False, **sizes)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def prepare(model, name, strategy, reentrant):
    """The model with LoRA (L) and recomputation (R), where the strategy has them."""
    if "L" in strategy:
        from peft import LoraConfig, get_peft_model

        kind = MODELS[name][0]
        lora = LoraConfig(
            r=64,
            lora_alpha=128,
            lora_dropout=0.05,
            target_modules=LORA[kind],
            fan_in_fan_out=kind == "gpt2",
        )
        model = get_peft_model(model, lora, autocast_adapter_dtype=False)
    if "R" in strategy:
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": reentrant}
        )
        model.enable_input_require_grads()
    return model.train()


def layer_class(model):
    """The class of the blocks that the model repeats."""
    blocks = max(
        (module for module in model.modules() if isinstance(module, torch.nn.ModuleList)), key=len
    )
    return type(blocks[0])


def trained(model):
    """Those parameters that are trained."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
