"""Images: classifiers and segmentation of torchvision (by its names) and timm (`timm/NAME`).

`--varied` trains with images of another size in each batch, from half of `--length` up to it.
"""

import torch
from learner import Learner, between
from torch.nn.functional import cross_entropy

CLASSES = 1000
SEGMENTS = 21  # classes of a pixel


def is_segmentation(family):
    return family.startswith(("deeplab", "fcn", "lraspp"))


def build(given):
    if given.family.startswith("timm/"):
        import timm

        name = given.family.removeprefix("timm/")
        sizes = {} if given.varied or "vit" not in name else {"img_size": given.length}
        return Learner(timm.create_model(name, num_classes=CLASSES, **sizes), classify)
    import torchvision

    sizes = {"image_size": given.length} if given.family.startswith("vit_") else {}
    if is_segmentation(given.family):
        model = torchvision.models.get_model(given.family, weights=None, weights_backbone=None)
        return Learner(model, segment)
    return Learner(torchvision.models.get_model(given.family, weights=None, **sizes), classify)


def classify(model, images, labels):
    scores = model(images)
    scores = scores if isinstance(scores, torch.Tensor) else scores[0]
    return cross_entropy(scores, labels, label_smoothing=0.1)


def segment(model, images, labels):
    found = model(images)
    loss = cross_entropy(found["out"], labels, ignore_index=255)
    return loss + 0.5 * cross_entropy(found["aux"], labels, ignore_index=255) if "aux" in found else loss


def batch(given, draw):
    high, wide = ((between(draw, given.length // 2, given.length, 32) if given.varied else given.length)
                  for _ in range(2))
    images = torch.zeros(given.batch, 3, high, wide)
    if is_segmentation(given.family):
        return {"images": images, "labels": torch.zeros(given.batch, high, wide, dtype=torch.long)}
    return {"images": images, "labels": torch.randint(0, CLASSES, (given.batch,), generator=draw)}
