"""How long matrix products take on a GPU whose rows do not begin at multiples of 16 bytes, as CSV.

usage: products.py OUT.csv

Each of five shapes, in the three layouts that a linear layer and its gradients use, with one extent larger by
1, 2, 4 or 8: type, layout, extents, and the median time of nine products in microseconds.
"""

import csv
import itertools
import statistics
import sys

import torch

SHAPES = [(12288, 50256, 1280), (4096, 30520, 1024), (8192, 4096, 4096), (2048, 1000, 2048), (16384, 128, 512)]
KINDS = {"bfloat16": torch.bfloat16, "float16": torch.float16, "tf32": torch.float32, "float32": torch.float32}


def main(out):
    with open(out, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kind", "layout", "m", "n", "k", "us"])
        for kind, shape, extent, more in itertools.product(KINDS, SHAPES, range(3), (0, 1, 2, 4, 8)):
            sizes = [size + more * (extent == at) for at, size in enumerate(shape)]
            if kind == "float32" and sizes[1] > 50000:
                continue  # half a second each
            for layout in ("nn", "nt", "tn"):
                writer.writerow([kind, layout, *sizes, round(microseconds(kind, layout, *sizes), 2)])


def microseconds(kind, layout, m, n, k):
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    left, right = (matrix(*sizes, KINDS[kind], turned == "t") for sizes, turned in zip([(m, k), (k, n)], layout))
    result = torch.empty(m, n, device="cuda", dtype=KINDS[kind])
    return statistics.median([once(left, right, result) for _ in range(12)][3:])


def matrix(rows, columns, kind, turned):
    if turned:
        return matrix(columns, rows, kind, False).t()
    return torch.randn(rows, columns, device="cuda", dtype=kind)


def once(left, right, result):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.mm(left, right, out=result)
    end.record()
    end.synchronize()
    return 1000 * start.elapsed_time(end)


if __name__ == "__main__":
    main(sys.argv[1])
