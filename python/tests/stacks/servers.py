"""Servers of language models. What is expected is the memory of their weights and KV cache."""

from .listed import stack


@stack("vllm==0.26.0", mib=131475, arguments=("--serve",), alone=True)
def vllm():
    """A small Llama by vLLM, eager: its weights and KV cache"""
    import json
    import os
    from pathlib import Path

    os.environ |= {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from vllm import LLM

    shape = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="bfloat16", hidden_size=512, intermediate_size=1408,
        num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4, vocab_size=32000, max_position_embeddings=8192,
        tie_word_embeddings=False, rope_theta=500000.0, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1,
    )
    Path("llama").mkdir()
    Path("llama/config.json").write_text(json.dumps(shape))
    LLM("llama", load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=4096)
