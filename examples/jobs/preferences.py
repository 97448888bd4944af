"""Learning from preferences (DPO): a Llama of 3 billion parameters in training next to a frozen one
that it is compared with.

usage: preferences.py [--batch 4] [--length 1024] [--layers 28] [--steps 8]
"""

import argparse

import torch
from texts import Texts, pad
from transformers import AutoModelForCausalLM, LlamaConfig

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4, help="pairs of a better and a worse answer")
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=28)
parser.add_argument("--beta", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=8)
given = parser.parse_args()

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=3072,
    intermediate_size=8192,
    num_hidden_layers=given.layers,
    num_attention_heads=24,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=True,
    use_cache=False,
)


def build():
    """One model on the GPU, with random weights."""
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def log_likelihood(model, batch):
    """Of each text as a whole, by the model."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    reply = labels != -100
    logs = logits[:, :-1].float().log_softmax(-1)
    chosen = logs.gather(2, labels.masked_fill(~reply, 0).unsqueeze(2)).squeeze(2)
    return (chosen * reply).sum(1)


torch.manual_seed(0)
policy, reference = build(), build().eval().requires_grad_(False)
policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
policy.train()
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
texts = Texts(2 * given.batch * given.steps, config.vocab_size, given.length)
loader = torch.utils.data.DataLoader(texts, 2 * given.batch, collate_fn=pad, pin_memory=True)
for step, batch in enumerate(loader):
    batch = {name: values.to("cuda", non_blocking=True) for name, values in batch.items()}
    with torch.no_grad():
        before = log_likelihood(reference, batch)
    better, worse = (log_likelihood(policy, batch) - before).chunk(2)
    loss = -torch.nn.functional.logsigmoid(given.beta * (better - worse)).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {batch['input_ids'].shape[1]} tokens, loss {loss.item():.3f}")
