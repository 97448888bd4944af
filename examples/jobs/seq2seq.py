"""T5 large (v1.1, 783 million parameters) learns to summarise: sources and targets of varied
lengths, Adafactor, and a few tokens generated every five steps.

usage: seq2seq.py [--batch 16] [--source 768] [--target 160] [--layers 24] [--steps 15]
"""

import argparse

import torch
from texts import Texts, pad
from torch.utils.data import DataLoader, StackDataset
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--source", type=int, default=768, help="of the longest source, in tokens")
parser.add_argument("--target", type=int, default=160, help="of the longest target, in tokens")
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--steps", type=int, default=15)
given = parser.parse_args()


def collate(pairs):
    """Sources and targets, each padded to its own longest."""
    sources, targets = zip(*pairs)
    return pad(sources) | {"labels": pad(targets)["labels"]}


config = T5Config(
    vocab_size=32128,
    d_model=1024,
    d_kv=64,
    d_ff=2816,
    num_layers=given.layers,
    num_heads=16,
    feed_forward_proj="gated-gelu",
    tie_word_embeddings=False,
    decoder_start_token_id=0,
)
torch.manual_seed(0)
model = T5ForConditionalGeneration(config).to("cuda")
optimizer = Adafactor(model.parameters(), lr=1e-3, scale_parameter=False, relative_step=False)
count = given.batch * given.steps
sources = Texts(count, config.vocab_size, given.source, shortest=64, typical=400)
targets = Texts(count, config.vocab_size, given.target, shortest=8, typical=60, seed=1)
loader = DataLoader(StackDataset(sources, targets), given.batch, collate_fn=collate)
for step, batch in enumerate(loader):
    model.train()
    batch = {name: values.to("cuda") for name, values in batch.items()}
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {tuple(batch['labels'].shape)} targets, loss {loss.item():.3f}")
    if step % 5 == 4:
        model.eval()
        asked = {name: batch[name][:8] for name in ("input_ids", "attention_mask")}
        with torch.autocast("cuda", torch.bfloat16):
            answers = model.generate(**asked, max_new_tokens=24)
        print(f"generated {tuple(answers.shape)}: {answers[0, :8].tolist()}")
