"""ResNet-50 on ImageNet's sizes: bf16 autocast, channels last, SGD, images by workers, and a
validation at the end.

usage: resnet50.py [--batch 256] [--workers 4] [--steps 20]
"""

import argparse

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--steps", type=int, default=20)
given = parser.parse_args()


class Images(Dataset):
    """`count` images of 224 by 224 pixels with their classes, made from the number of each."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        pixels = torch.randint(0, 256, (3, 224, 224), dtype=torch.uint8, generator=draw)
        return pixels.float().div_(255).sub_(0.45).div_(0.225), index % 1000


def load(count, shuffle):
    """Batches of equal size, ready to be copied to the GPU."""
    options = {"num_workers": given.workers, "pin_memory": True, "drop_last": True}
    return DataLoader(Images(count), given.batch, shuffle=shuffle, **options)


def move(images, labels):
    """A batch on the GPU, the channels of each pixel side by side."""
    images = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)
    return images, labels.to("cuda", non_blocking=True)


torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
model = torchvision.models.resnet50(weights=None).to("cuda", memory_format=torch.channels_last)
measure = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True
)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.steps)
for step, batch in enumerate(load(given.batch * given.steps, shuffle=True)):
    images, labels = move(*batch)
    with torch.autocast("cuda", torch.bfloat16):
        loss = measure(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"step {step}: loss {loss.item():.3f}")

model.eval()
right = torch.zeros((), device="cuda")
with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
    for batch in load(2 * given.batch, shuffle=False):
        images, labels = move(*batch)
        right += (model(images).argmax(1) == labels).sum()
print(f"validation: {right.item() / (2 * given.batch):.4f} right")
