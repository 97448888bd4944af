"""Policies: a language model answers, token by token with a growing cache, and is then trained on its answers.

`--length` is the longest prompt; each answer has 32 tokens. `--accumulate` is the number of pieces in which the answers
are trained on. The family is one of `text.py`.
"""

import torch
import text
from engines import autocast, optimizer, place, prepared, trained
from learner import between

NEW = 32  # tokens of an answer


def build(given):
    return text.build(given)


def run(given, kind):
    torch.manual_seed(0)
    device, draw = place(), torch.Generator().manual_seed(0)
    model = prepared(given, kind, device)
    chosen = optimizer(given, model)
    for number in range(given.steps):
        longest = between(draw, given.length // 4, given.length, 8) if given.varied else given.length
        prompts = torch.randint(5, 20_000, (given.batch, longest), generator=draw).to(device)
        texts, before = sample(given, model, prompts)
        for piece, old in zip(texts.chunk(given.accumulate), before.chunk(given.accumulate)):
            with autocast(given):
                now = likelihood(model, piece, longest)
            ratio = (now - old).exp()
            gain = torch.randn(len(piece), 1, device=device)
            loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() / given.accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained(model), 1.0)
        chosen.step()
        chosen.zero_grad()
        print(f"step {number}: prompts of {longest}, loss {loss.item():.3f}")


@torch.no_grad()
def sample(given, model, prompts):
    """Prompts with answers, and how likely each token of the answers was."""
    model.eval()
    texts, ids, past = [prompts], prompts, None
    with autocast(given):
        for _ in range(NEW):
            found = model(input_ids=ids, past_key_values=past, use_cache=True, logits_to_keep=1)
            past, chances = found.past_key_values, found.logits[:, -1].float().softmax(-1)
            ids = torch.multinomial(chances, 1)
            texts.append(ids)
        del past, found
        texts = torch.cat(texts, 1)
        pieces = [likelihood(model, piece, prompts.shape[1]) for piece in texts.chunk(given.accumulate)]
    model.train()
    return texts, torch.cat(pieces)


def likelihood(model, texts, begin):
    """The logarithm of the chance of each token after the prompt."""
    scores = model(input_ids=texts, use_cache=False).logits[:, begin - 1 : -1].float().log_softmax(-1)
    return scores.gather(-1, texts[:, begin:, None]).squeeze(-1)
