"""Writes a model's folder for `predict --serve`: its config.json, and nothing else. Needs no download and no PyTorch.

    python examples/serve/model.py llama-8b FOLDER
    python -m gmlake predict --serve vllm serve FOLDER --load-format dummy --skip-tokenizer-init

Weights are made up by `--load-format dummy`, so that only shapes count.
"""

import json
import sys
from pathlib import Path

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    "bos_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 131072,
}
LLAMA_8B = {  # Llama 3.1 8B
    **LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
}
QWEN3_MOE = {
    **LLAMA, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True, "router_aux_loss_coef": 0.001,
    "max_position_embeddings": 40960,
}
SHAPES = {
    "llama-tiny": {
        **LLAMA, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000, "max_position_embeddings": 8192,
    },
    "llama-8b": LLAMA_8B,
    "llama-70b": {  # Llama 3.1 70B
        **LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    },
    "llama-8b-awq": {  # the same in 4 bits, by AWQ
        **LLAMA_8B,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    },
    "qwen3-8b": {
        **LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
    },
    "qwen3-30b-a3b": {
        **QWEN3_MOE, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    "gemma-3-4b": {  # its text model: five of six layers see 1,024 tokens
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "torch_dtype": "bfloat16", "hidden_size": 2560,
        "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "vocab_size": 262208, "max_position_embeddings": 131072, "sliding_window": 1024, "sliding_window_pattern": 6,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "tie_word_embeddings": True, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
    },
    "phi-4": {
        **LLAMA, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920,
        "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10, "vocab_size": 100352, "rope_theta": 250000.0,
        "max_position_embeddings": 16384, "original_max_position_embeddings": 16384, "pad_token_id": 0,
    },
}


def main(given):
    if len(given) != 2 or given[0] not in SHAPES:
        sys.exit(f"usage: model.py {'|'.join(SHAPES)} FOLDER")
    folder = Path(given[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPES[given[0]], indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
