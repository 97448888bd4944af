"""Wav2Vec2 (large, 317 million parameters) fine-tuned to write down speech: fifteen seconds of
sound, convolutions, a transformer, the CTC loss; bf16 autocast and spans of time masked.

usage: wav2vec2.py [--batch 16] [--seconds 15] [--layers 24] [--steps 12]
"""

import argparse

import numpy
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--seconds", type=int, default=15)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--steps", type=int, default=12)
given = parser.parse_args()

RATE = 16000

config = Wav2Vec2Config(
    hidden_size=given.width,
    intermediate_size=4 * given.width,
    num_hidden_layers=given.layers,
    num_attention_heads=16,
    feat_extract_norm="layer",
    conv_bias=True,
    do_stable_layer_norm=True,
    layerdrop=0.1,
    ctc_loss_reduction="mean",
    ctc_zero_infinity=True,
)
torch.manual_seed(0)
numpy.random.seed(0)
model = Wav2Vec2ForCTC(config).to("cuda")
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.005)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=given.steps)
letters = 10 * given.seconds
for step in range(given.steps):
    sounds = torch.randn(given.batch, RATE * given.seconds).to("cuda")
    labels = torch.randint(1, config.vocab_size, (given.batch, letters)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_values=sounds, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    print(f"step {step}: loss {loss.item():.3f}")
