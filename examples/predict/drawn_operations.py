"""Operations drawn at random whose workspaces follow a rule: what the rules are judged by.

usage: python -m gmlake predict --gpu h100-80gb --unknown list.csv drawn_operations.py SEED COUNT

Recurrent layers, Fourier transforms, decompositions, products with sparse matrices, batch normalizations, CTC losses: COUNT
of each. `gmlake measure list.csv` measures them on a GPU; on the virtual GPU (`gmlake run --virtual h100-80gb`) it writes
what the rules say.
"""

import random
import sys

import torch
from torch import nn
from torch.nn import functional as F

KINDS = [torch.float32, torch.float32, torch.float64, torch.complex64, torch.complex128]


def size(draw, low, high):
    """A size of any order of magnitude, often a round one."""
    found = round(low * (high / low) ** draw.random())
    return max(low, found // 8 * 8) if draw.random() < 0.5 else found


def recurrent(draw):
    kind = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    layer = draw.choice([nn.LSTM, nn.LSTM, nn.GRU, nn.RNN])
    wide, hidden, steps, batch = size(draw, 8, 1500), size(draw, 16, 1500), size(draw, 2, 1000), size(draw, 1, 128)
    network = layer(wide, hidden, draw.randrange(1, 5), dropout=draw.choice([0, 0.1]), bidirectional=draw.random() < 0.3)
    network.to("cuda", kind)
    x = torch.zeros(steps, batch, wide, device="cuda", dtype=kind)
    if draw.random() < 0.5:
        x = nn.utils.rnn.pack_padded_sequence(x, sorted([steps, *draw.choices(range(1, steps + 1), k=batch - 1)], reverse=True))
    network(x)


def fourier(draw):
    lengths = [size(draw, 4, 200_000)] if draw.random() < 0.5 else [size(draw, 4, 1500) for _ in range(draw.choice([2, 2, 3]))]
    lengths = lengths if len(lengths) < 3 else [min(length, 300) for length in lengths]
    kind, batch = draw.choice(KINDS), size(draw, 1, 64)
    x = torch.zeros(batch, *lengths, device="cuda", dtype=kind)
    if x.numel() * x.element_size() < 1 << 31:
        (torch.fft.fftn if x.is_complex() else torch.fft.rfftn)(x, dim=tuple(range(1, x.dim())))


def decomposition(draw):
    rows, columns, kind = size(draw, 2, 3000), size(draw, 2, 3000), draw.choice(KINDS)
    square = torch.eye(rows, device="cuda", dtype=kind)
    tall = torch.ones(rows, min(columns, 1000), device="cuda", dtype=kind)
    run = draw.choice(["cholesky", "inv", "eigh", "eigvalsh", "lu_factor", "ldl_factor", "qr", "svd", "svdvals", "lstsq"])
    if run in ("qr", "svd", "svdvals"):
        getattr(torch.linalg, run)(tall, **({"full_matrices": False} if run == "svd" else {}))
    elif run == "lstsq":
        torch.linalg.lstsq(tall if rows >= columns else square, tall)
    else:
        getattr(torch.linalg, run)(square)


def sparse(draw):
    rows, columns, wide = size(draw, 10, 200_000), size(draw, 10, 200_000), size(draw, 1, 256)
    each, kind = min(columns, size(draw, 1, 60)), draw.choice(KINDS)
    offsets = torch.arange(rows + 1, device="cuda") * each
    values = torch.ones(rows * each, device="cuda", dtype=kind)
    matrix = torch.sparse_csr_tensor(offsets, torch.arange(each, device="cuda").repeat(rows), values, (rows, columns))
    dense = torch.zeros(columns, wide, device="cuda", dtype=kind)
    draw.choice([lambda: matrix @ dense, lambda: matrix @ dense[:, 0].contiguous(), lambda: matrix + matrix,
                 lambda: torch.sparse.mm(matrix.to_sparse_coo(), dense)])()


def batch_norm(draw):
    sides = [size(draw, 2, 120) for _ in range(draw.choice([2, 2, 3]))]
    x = torch.zeros(size(draw, 2, 64), size(draw, 2, 512), *sides, device="cuda", requires_grad=True)
    if x.numel() < 1 << 28:
        order = torch.channels_last if len(sides) == 2 else torch.channels_last_3d
        layer = nn.BatchNorm2d if len(sides) == 2 else nn.BatchNorm3d
        layer(x.shape[1]).cuda()(x.to(memory_format=order)).sum().backward()


def ctc_loss(draw):
    steps, batch, alphabet = size(draw, 20, 1500), size(draw, 1, 64), size(draw, 4, 2000)
    scores = torch.zeros(steps, batch, alphabet, device="cuda").log_softmax(2)
    lengths = [draw.randrange(1, min(steps // 2, 250)) for _ in range(batch)]
    F.ctc_loss(scores, torch.ones(sum(lengths), dtype=torch.int32), [steps] * batch, lengths)


def main(seed, count):
    draw = random.Random(seed)
    for operation in (recurrent, fourier, decomposition, sparse, batch_norm, ctc_loss):
        for _ in range(count):
            operation(draw)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    main(int(sys.argv[1]), int(sys.argv[2]))
