"""A vision transformer (ViT-L/16, 304 million parameters) of torchvision, through torch.compile:
bf16 autocast, fused AdamW, mixup.

usage: compiled_vit.py [--batch 128] [--image 224] [--layers 24] [--steps 15]
"""

import argparse

import torch
from torch.nn.functional import cross_entropy, one_hot
from torchvision.models import VisionTransformer

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--image", type=int, default=224)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--steps", type=int, default=15)
given = parser.parse_args()

CLASSES = 1000

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = VisionTransformer(
    image_size=given.image,
    patch_size=16,
    num_layers=given.layers,
    num_heads=16,
    hidden_dim=1024,
    mlp_dim=4096,
    dropout=0.1,
    num_classes=CLASSES,
).to("cuda")
decayed = [values for values in model.parameters() if values.ndim > 1]
others = [values for values in model.parameters() if values.ndim <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.3}, {"params": others, "weight_decay": 0.0}],
    lr=3e-3,
    fused=True,
)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.03, total_iters=given.steps)
compiled = torch.compile(model)
share = torch.distributions.Beta(0.2, 0.2)
for step in range(given.steps):
    images = torch.randn(given.batch, 3, given.image, given.image).to("cuda")
    labels = torch.randint(0, CLASSES, (given.batch,)).to("cuda")
    kept = share.sample().item()
    targets = one_hot(labels, CLASSES).float()
    targets = kept * targets + (1 - kept) * targets.roll(1, 0)
    images = kept * images + (1 - kept) * images.roll(1, 0)
    with torch.autocast("cuda", torch.bfloat16):
        loss = cross_entropy(compiled(images), targets, label_smoothing=0.11)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    print(f"step {step}: loss {loss.item():.3f}")
