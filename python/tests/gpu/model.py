"""Models and batches of the workloads that the real traces were recorded from: same sizes, seeds and sequence lengths."""

import random

import torch

DEVICE = torch.device("cuda", 0)

MODELS = {
    "opt-1.3b": dict(hidden_size=2048, num_hidden_layers=24, ffn_dim=8192, num_attention_heads=32,
                     max_position_embeddings=2048, vocab_size=50272, word_embed_proj_dim=2048, dropout=0.1),
    "opt-13b": dict(hidden_size=5120, num_hidden_layers=40, ffn_dim=20480, num_attention_heads=40,
                    max_position_embeddings=2048, vocab_size=50272, word_embed_proj_dim=5120, dropout=0.1),
}
TARGETS = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]


def build(name, strategy, attention="eager"):
    """A randomly initialised model. Strategy: any of L (LoRA) and R (recomputation)."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("opt", **MODELS[name])
    config.use_cache = False
    torch.set_default_dtype(torch.bfloat16)
    with DEVICE:
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=torch.bfloat16)
    torch.set_default_dtype(torch.float32)
    if "L" in strategy:
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(r=64, lora_alpha=128, target_modules=TARGETS, lora_dropout=0.05)
        model = get_peft_model(model, lora)
    if "R" in strategy:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        model.enable_input_require_grads()
    return model.train()


class Batches:
    """Sentences of random words, padded to the longest of the batch; with a fixed length, all as long."""

    def __init__(self, vocabulary, size, length, is_fixed=False):
        self.random = random.Random(1234)
        self.vocabulary, self.size, self.length, self.is_fixed = vocabulary, size, length, is_fixed

    def next(self):
        lengths = [self.length] * self.size
        if not self.is_fixed:
            draw = self.random.lognormvariate
            lengths = [max(16, min(self.length, int(draw(5.3, 0.7)))) for _ in range(self.size)]
        longest = self.length if self.is_fixed else (max(lengths) + 7) // 8 * 8
        seed = torch.Generator().manual_seed(self.random.randrange(1 << 30))
        words = torch.randint(0, self.vocabulary, (self.size, longest), generator=seed)
        mask = torch.ones(self.size, longest, dtype=torch.long)
        for row, length in enumerate(lengths):
            mask[row, length:] = 0
        return words.to(DEVICE, non_blocking=True), mask.to(DEVICE, non_blocking=True)
