"""Inference in plain PyTorch, with requests of any size.

usage: inference.py KIND [options]        KIND is one of the functions below

Prompts, images and texts vary by a fixed seed; weights are random.
"""

import argparse
import random

import torch
import torchvision
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, DynamicCache

BF16 = torch.bfloat16


def chat(given, draw):
    """A batch in which requests come and go: each has a cache of its own that grows token by token."""
    model = causal(given)
    running = []
    for _ in rounds(given):
        while len(running) < given.batch:
            ids = torch.randint(5, 20_000, (1, draw.randrange(64, given.length)), device="cuda")
            running.append([ids, DynamicCache(), draw.randrange(4, 64)])
        for request in running:
            request[0], request[2] = answered(model, request[0], request[1]), request[2] - 1
        running = [request for request in running if request[2] > 0]


def batches(given, draw):
    """Prompts of a batch are padded to the longest, and answered together."""
    model = causal(given)
    for _ in rounds(given):
        ids = torch.randint(5, 20_000, (draw.randrange(1, given.batch + 1), draw.randrange(64, given.length)), device="cuda")
        cache = DynamicCache()
        for _ in range(draw.randrange(8, 40)):
            ids = answered(model, ids, cache)
        del cache


def translate(given, draw):
    """An encoder reads texts of any length, a decoder writes."""
    sizes = dict(d_model=given.width, num_layers=given.layers, num_heads=given.width // 64, d_ff=4 * given.width, d_kv=64)
    config = AutoConfig.for_model("t5", decoder_start_token_id=0, **sizes)
    with torch.device("cuda"):
        model = AutoModelForSeq2SeqLM.from_config(config, dtype=BF16).eval()
    for _ in rounds(given):
        ids = torch.randint(5, 20_000, (draw.randrange(1, given.batch + 1), draw.randrange(32, given.length)), device="cuda")
        model.generate(input_ids=ids, max_new_tokens=24, min_new_tokens=24, do_sample=False)


def embed(given, draw):
    """Texts are sorted by length, and embedded in batches of about as many tokens."""
    sizes = dict(hidden_size=given.width, num_hidden_layers=given.layers, num_attention_heads=given.width // 64)
    config = AutoConfig.for_model("bert", intermediate_size=4 * given.width, max_position_embeddings=4096, **sizes)
    with torch.device("cuda"):
        model = AutoModel.from_config(config, dtype=torch.float16).eval()
    for _ in rounds(given):
        lengths = sorted(draw.randrange(16, min(given.length, 2048)) for _ in range(given.batch * 8))
        found = []
        while lengths:
            count = max(1, given.batch * 256 // lengths[-1])
            taken, lengths = lengths[-count:], lengths[:-count]
            ids = torch.randint(5, 20_000, (len(taken), taken[-1]), device="cuda")
            found.append(model(input_ids=ids).last_hidden_state.mean(1))
        torch.cat(found).float().cpu()


def pictures(given, draw):
    """Pictures of any size through a network for segmentation."""
    model = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None).cuda().half().eval()
    for _ in rounds(given):
        shape = draw.randrange(1, given.batch + 1), 3, draw.randrange(256, given.length), draw.randrange(256, given.length)
        scores = model(torch.randn(shape, device="cuda", dtype=torch.float16))["out"]
        scores.argmax(1).cpu()
        del scores


def causal(given):
    """A Llama of the sizes asked for; four heads share their keys and values."""
    heads = given.width // 128
    sizes = dict(hidden_size=given.width, intermediate_size=given.width * 7 // 2, num_hidden_layers=given.layers)
    config = AutoConfig.for_model("llama", num_attention_heads=heads, num_key_value_heads=heads // 4, **sizes)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=BF16).eval()


def answered(model, ids, cache):
    """The next token of each text; the cache has what was read up to now."""
    found = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return found.logits[:, -1].argmax(-1, keepdim=True)


def rounds(given):
    """The numbers of the rounds; each is marked as PyTorch's profiler marks a step."""
    for number in range(given.rounds):
        with torch.profiler.record_function(f"ProfilerStep#{number}"):
            yield number
        print(f"round {number}")


def main():
    kinds = {kind.__name__: kind for kind in (chat, batches, translate, embed, pictures)}
    parser = argparse.ArgumentParser(description="inference with requests of any size")
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8, help="at most so many requests at a time")
    parser.add_argument("--length", type=int, default=1024, help="the longest: tokens or pixels")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    given = parser.parse_args()
    torch.manual_seed(0)
    with torch.inference_mode():
        kinds[given.kind](given, random.Random(11))


if __name__ == "__main__":
    main()
