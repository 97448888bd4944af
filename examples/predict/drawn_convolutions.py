"""Convolutions drawn at random, as a list for `python -m gmlake measure`: what estimates are judged by.

usage: drawn_convolutions.py SEED COUNT > layers.csv

In one, two and three dimensions; dense, by groups, by channels; dilated, with strides; as patches; both layouts. Sizes are
those of networks: channels by preference multiples of 8, tensors up to 1 GiB.
"""

import csv
import random
import sys

COLUMNS = ["kind", "arguments"]
CHANNELS = [1, 3, 4, 6, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 320, 384, 512, 768, 1024]
SIDES = {1: (50, 30_000), 2: (7, 300), 3: (6, 96)}
MOST = 1 << 30  # bytes of a tensor


def main(seed, count):
    draw = random.Random(seed)
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    while count:
        layer = drawn(draw)
        if layer:
            count -= 1
            writer.writerow(layer)


def drawn(draw):
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
    if len(sys.argv) != 3:
        sys.exit("usage: drawn_convolutions.py SEED COUNT")
    main(int(sys.argv[1]), int(sys.argv[2]))
