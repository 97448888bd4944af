"""Whisper (medium, 764 million parameters) fine-tuned through accelerate, with transcripts of
varied lengths and gradient accumulation.

usage: whisper.py [--batch 16] [--accumulate 2] [--length 200] [--layers 24] [--steps 8]
"""

import argparse

import torch
from accelerate import Accelerator
from texts import Texts, pad
from transformers import WhisperConfig, WhisperForConditionalGeneration

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--length", type=int, default=200, help="of the longest transcript, in tokens")
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--steps", type=int, default=8)
given = parser.parse_args()


def collate(examples):
    """Thirty seconds of sound for each transcript."""
    sounds = torch.randn(len(examples), 80, 3000)
    return {"input_features": sounds, "labels": pad(examples)["labels"]}


accelerator = Accelerator(
    mixed_precision="bf16", gradient_accumulation_steps=given.accumulate
)
config = WhisperConfig(
    d_model=1024,
    encoder_layers=given.layers,
    decoder_layers=given.layers,
    encoder_attention_heads=16,
    decoder_attention_heads=16,
    encoder_ffn_dim=4096,
    decoder_ffn_dim=4096,
    vocab_size=51865,
    use_cache=False,
)
torch.manual_seed(0)
with accelerator.device:
    model = WhisperForConditionalGeneration(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
count = given.batch * given.accumulate * given.steps
texts = Texts(count, config.vocab_size, given.length, typical=60)
loader = torch.utils.data.DataLoader(texts, given.batch, collate_fn=collate)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model.train()
for number, batch in enumerate(loader):
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"batch {number}: {batch['labels'].shape[1]} tokens, loss {loss.item():.3f}")
