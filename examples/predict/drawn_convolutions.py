"""Convolutions drawn at random, as a list for `python -m gmlake measure`: what estimates are judged by.

usage: drawn_convolutions.py SEED COUNT [networks|pictures|transposed|grouped] > layers.csv

`networks`: in one, two and three dimensions; dense, by groups, by channels; dilated, with strides; as patches; both layouts.
Sizes are those of networks: channels by preference multiples of 8, tensors up to 1 GiB. `pictures`: one to four channels come
in or go out. `transposed`: by two, four and eight, as generators and U-Nets scale up. `grouped`: in 8 to 64 groups.
"""

import csv
import random
import sys

COLUMNS = ["kind", "arguments"]
CHANNELS = [1, 3, 4, 6, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 320, 384, 512, 768, 1024]
SIDES = {1: (50, 30_000), 2: (7, 300), 3: (6, 96)}
MOST = 1 << 30  # bytes of a tensor


def main(seed, count, what="networks"):
    draw = random.Random(seed)
    some = {"networks": network, "pictures": picture, "transposed": transposed, "grouped": grouped}[what]
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    while count:
        layer = some(draw)
        if layer:
            count -= 1
            writer.writerow(layer)


def network(draw):
    """A convolution, or nothing where it is empty or too large."""
    dimensions = draw.choice([1, 2, 2, 3])
    taps = draw.choice([1, 2, 3, 3, 3, 4, 5, 7, 8, 16])
    stride = taps if draw.random() < 0.15 else draw.choice([1, 1, 1, 2])
    dilation = draw.choice([1, 1, 1, 1, 2, 4]) if taps > 1 else 1
    padding = draw.choice([0, dilation * (taps - 1) // 2])
    inside, outside = (draw.choice(CHANNELS) if draw.random() < 0.8 else draw.randrange(1, 900) for _ in "io")
    groups = draw.choice([1, 1, 1, 1, 1, 1, 2, 4, inside])
    if inside % groups or outside % groups:
        outside = inside
        if inside % groups:
            return None
    low, high = SIDES[dimensions]
    sides = [round(low * (high / low) ** draw.random())] * dimensions
    if draw.random() < 0.3:
        sides[-1] = max(taps, round(sides[-1] * draw.uniform(0.6, 1.6)))
    batch = round(2 ** draw.uniform(0, 8)) if draw.random() < 0.5 else draw.choice([1, 2, 4, 8, 16, 32, 64])
    return layer(draw, batch, (inside, outside, groups), sides, (taps, stride, padding, dilation))


def picture(draw):
    """One of the first or the last layers of a network of pictures."""
    few, many = draw.choice([1, 2, 3, 3, 3, 3, 4]), draw.choice([16, 24, 32, 40, 48, 64, 64, 96, 128, 192, 256, 320, 768])
    inside, outside = (few, many) if draw.random() < 0.7 else (many, few)
    taps = draw.choice([1, 3, 3, 3, 4, 5, 7, 7, 8, 14, 16])
    stride = draw.choice([1, 1, 2, 2, taps, 4])
    padding = draw.choice([0, taps // 2, (taps - 1) // 2])
    side = draw.choice([28, 32, 64, 96, 128, 224, 224, 256, 299, 384, 512, 640])
    sides = [side, draw.choice([side, side, side, side * 3 // 4])]
    return layer(draw, batches(draw), (inside, outside, 1), sides, (taps, stride, padding, 1))


def transposed(draw):
    """A layer that scales up by its stride: what cuDNN takes for its input is what the layer makes."""
    dimensions = draw.choice([1, 2, 2, 2, 2, 3])
    stride = draw.choice([1, 2, 2, 2, 2, 4, 8])
    taps = draw.choice([stride, 2 * stride, 2 * stride, 3, 4, 5])
    padding = draw.choice([0, max(0, taps - stride) // 2])
    wide = [3, 16, 32, 64, 96, 128, 192, 256, 320, 512, 1024]
    inside, outside = draw.choice(wide), draw.choice([64, 100, 128, 256, 384, 512, 1024])
    side = draw.choice([1, 4, 7, 8, 14, 16, 28, 32, 56, 64, 128])
    side = (side - 1) * stride + taps - 2 * padding
    return layer(draw, batches(draw), (inside, outside, 1), [side] * dimensions, (taps, stride, padding, 1))


def grouped(draw):
    """A layer of groups, as in ResNeXt and RegNet."""
    groups, each = draw.choice([8, 16, 32, 64]), draw.choice([2, 4, 4, 8, 8, 12, 16, 16, 24, 32, 32, 48, 64])
    outside = groups * draw.choice([each, each, each, each // 2, 2 * each])
    taps, stride = draw.choice([1, 3, 3, 3, 3, 5, 7]), draw.choice([1, 1, 1, 2])
    padding = draw.choice([0, taps // 2, taps // 2])
    sides = [draw.choice([4, 7, 8, 14, 16, 20, 28, 32, 40, 56, 64, 80, 112, 128])] * draw.choice([1, 2, 2, 2, 2, 2, 3])
    return layer(draw, batches(draw), (groups * each, outside, groups), sides, (taps, stride, padding, draw.choice([1, 1, 1, 2])))


def batches(draw):
    return round(2 ** draw.uniform(0, 8)) if draw.random() < 0.4 else draw.choice([1, 2, 4, 8, 16, 32, 64, 128, 256])


def layer(draw, batch, channels, sides, kernel):
    """A convolution in one direction, or nothing where it is empty or too large."""
    (inside, outside, groups), (taps, stride, padding, dilation) = channels, kernel
    dimensions = len(sides)
    out = [(side + 2 * padding - dilation * (taps - 1) - 1) // stride + 1 for side in sides]
    kind = draw.choice(["float32", "float32", "bfloat16", "bfloat16", "float16"])
    extra = [1] if dimensions == 1 else []  # PyTorch makes them two-dimensional
    shapes = {"input": [batch, inside, *extra, *sides], "weight": [outside, inside // groups, *extra, *[taps] * dimensions],
              "output": [batch, outside, *extra, *out]}
    if min(out) < 1 or any(bytes_of(shape) > MOST for shape in shapes.values()):
        return None
    lists = {"stride": [*extra, *[stride] * dimensions], "padding": [*[0] * len(extra), *[padding] * dimensions],
             "dilation": [*extra, *[dilation] * dimensions]}
    texts = {name: "x".join(map(str, sizes)) for name, sizes in {**shapes, **lists}.items()}
    found = {"direction": draw.choice(["forward", "data", "weight"]), "type": kind,
             "channels_last": int(draw.random() < 0.3), **texts}
    return {"kind": "convolution", "arguments": " ".join(f"{name}={value}" for name, value in found.items())}


def bytes_of(shape):
    """Bytes in 32 bits."""
    bytes = 4
    for size in shape:
        bytes *= size
    return bytes


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: drawn_convolutions.py SEED COUNT [networks|pictures|transposed|grouped]")
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
