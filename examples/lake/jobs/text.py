"""Texts: language models of transformers' families, by their configurations, with random weights."""

import torch
from transformers import (
    AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification,
)

TASKS = {
    "causal": AutoModelForCausalLM,
    "masked": AutoModelForMaskedLM,
    "classes": AutoModelForSequenceClassification,
    "seq2seq": AutoModelForSeq2SeqLM,
}

# What families call width, layers, heads and the width of the perceptron; all others as Llama does.
NAMES = {
    "gpt2": ["n_embd", "n_layer", "n_head", "n_inner"],
    "gptj": ["n_embd", "n_layer", "n_head", "n_inner"],
    "bloom": ["hidden_size", "n_layer", "n_head", "-"],
    "falcon": ["hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_hidden_size"],
    "opt": ["hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_dim"],
    "t5": ["d_model", "num_layers", "num_heads", "d_ff"],
    "mt5": ["d_model", "num_layers", "num_heads", "d_ff"],
}
LLAMA = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
DENOISERS = ["bart", "pegasus"]  # an encoder and a decoder alike

# Perceptrons of families that have a gate are 8/3 as wide as the model, about; the others 4 times.
GATED = {
    "llama", "mistral", "qwen2", "gemma", "gemma2", "phi3", "olmo2", "granite", "stablelm", "glm", "cohere", "mixtral",
    "olmoe", "modernbert",
}
# Of these, those in which four heads share their keys and values.
GROUPED = {"llama", "mistral", "qwen2", "gemma2", "phi3", "olmo2", "granite", "glm", "cohere", "mixtral"}
EXPERTS = {
    "mixtral": dict(num_local_experts=8, num_experts_per_tok=2),
    "olmoe": dict(num_experts=16, num_experts_per_tok=4),
}


def sizes(given):
    """The configuration's sizes, under the family's names."""
    heads = max(1, given.width // given.head)
    wide = (given.width * 11 // 4 // 64 * 64) if given.family in GATED else 4 * given.width
    values = [given.width, given.layers, heads, wide]
    if given.family in DENOISERS:
        ends = {"layers": given.layers, "attention_heads": heads, "ffn_dim": wide}
        both = {f"{end}_{name}": value for end in ("encoder", "decoder") for name, value in ends.items()}
        return dict(d_model=given.width, max_position_embeddings=2048, **both)
    found = dict(zip(NAMES.get(given.family, LLAMA), values))
    found.pop("-", None)
    if given.family in GATED:
        shared = given.family in GROUPED
        found["num_key_value_heads"] = heads if not shared else heads // 4 if heads % 4 == 0 else 1
    found.update(special(given))
    return found


def special(given):
    """What single families need besides."""
    found = dict(EXPERTS.get(given.family, {}))
    if given.family == "gpt2":
        found["n_positions"] = 2048
    elif given.family == "opt":
        found["word_embed_proj_dim"] = given.width
    elif given.family in ("t5", "mt5"):
        found.update(d_kv=given.head, decoder_start_token_id=0)
    elif given.family in ("gemma", "gemma2", "glm"):
        found["head_dim"] = given.head
    elif given.family == "mamba2":
        found.update(num_heads=2 * given.width // given.head, head_dim=given.head)
    elif given.family in ("bert", "roberta", "electra", "deberta-v2", "albert"):
        found["max_position_embeddings"] = 1026
    return found


def build(given):
    config = AutoConfig.for_model(given.family, use_cache=False, **sizes(given))
    if given.task == "classes":
        config.num_labels, config.pad_token_id = 16, config.pad_token_id or 0
    attention = {} if given.attention == "sdpa" else {"attn_implementation": given.attention}
    dtype = torch.bfloat16 if given.precision == "pure" else torch.float32
    return TASKS[given.task].from_config(config, dtype=dtype, **attention)


def lengths(given, draw, longest):
    """How many tokens each text has: all the same, or as instructions and answers have, most of them short.

    The longest of a batch is then 0.6 of `longest` on average, whatever the batch.
    """
    if not given.varied:
        return torch.full((given.batch,), longest)
    typical = torch.tensor(longest / (2 * given.batch**0.35))
    logarithm = torch.randn(given.batch, generator=draw) * 0.7 + typical.log()
    return logarithm.exp().long().clamp(16, longest)


def padded(given, draw, longest):
    """Token ids up to the longest text of the batch, a multiple of eight, and the mask of what is text."""
    ends = lengths(given, draw, longest)
    width = -(-int(ends.max()) // 8) * 8
    mask = (torch.arange(width) < ends[:, None]).long()
    return torch.randint(5, 20_000, mask.shape, generator=draw) * mask, mask


def batch(given, draw):
    ids, mask = padded(given, draw, given.length)
    items = {"input_ids": ids, "attention_mask": mask}
    if given.task == "classes":
        return {**items, "labels": torch.randint(0, 16, (given.batch,), generator=draw)}
    if given.task == "seq2seq":
        ids, mask = padded(given, draw, max(16, given.length // 4))
    return {**items, "labels": ids.masked_fill(mask == 0, -100)}
