"""ResNet-152 on images of varied sizes, in mixed precision: convolutions through cuDNN.

usage: resnet.py [--batch 128] [--smallest 160] [--largest 288] [--steps 12] [--channels-last]
"""

import argparse
import random

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--smallest", type=int, default=160)
parser.add_argument("--largest", type=int, default=288)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--channels-last", action="store_true")
given = parser.parse_args()

torch.manual_seed(0)
draw = random.Random(0)
layout = torch.channels_last if given.channels_last else torch.contiguous_format
model = torchvision.models.resnet152(weights=None).to("cuda", memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
measure = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(given.steps):
    size = draw.randrange(given.smallest, given.largest + 1, 32)
    images = torch.randn(given.batch, 3, size, size).to("cuda", memory_format=layout)
    labels = torch.randint(0, 1000, (given.batch,)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = measure(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {size} pixels, loss {loss.item():.3f}")
