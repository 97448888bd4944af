"""Detection: torchvision's detectors (`fasterrcnn_resnet50_fpn`, `maskrcnn_...`, `retinanet_...`, `fcos_...`).

`--length` is the longest side of an image. With `--varied` images have sizes of their own, and 1 to 40 objects;
else all are squares with 12.
"""

import torch
import torchvision
from learner import Learner, between

CLASSES = 91


def build(given):
    model = torchvision.models.get_model(given.family, weights=None, weights_backbone=None, num_classes=CLASSES)
    return Learner(model, lambda model, images, targets: sum(model(images, targets).values()))


def batch(given, draw):
    pairs = [example(given, draw) for _ in range(given.batch)]
    return {"images": [image for image, _ in pairs], "targets": [target for _, target in pairs]}


def example(given, draw):
    """An image, and the boxes, classes and masks of what is on it."""
    high, wide, count = given.length, given.length, 12
    if given.varied:
        high, wide = (between(draw, given.length // 2, given.length) for _ in range(2))
        count = between(draw, 1, 40)
    corners = torch.rand(count, 2, generator=draw) * torch.tensor([wide, high]) * 0.6
    extents = torch.rand(count, 2, generator=draw) * torch.tensor([wide, high]) * 0.3 + 8
    labels = torch.randint(1, CLASSES, (count,), generator=draw)
    target = {"boxes": torch.cat([corners, corners + extents], 1), "labels": labels}
    if given.family.startswith("maskrcnn"):
        target["masks"] = torch.zeros(count, high, wide, dtype=torch.uint8)
    return torch.zeros(3, high, wide), target
