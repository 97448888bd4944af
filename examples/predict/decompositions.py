"""What decompositions of matrices take while they run: bytes at most beyond their results, as CSV.

usage: decompositions.py OUT.csv

On a GPU these are cuSOLVER's workspaces and PyTorch's own copies; on the virtual GPU (`gmlake run --virtual h100-80gb`) the
copies alone. The difference is the workspace.
"""

import csv
import sys

import torch

from gmlake.measure.kinds import momentary

SIZES = [2, 8, 16, 33, 64, 128, 200, 256, 400, 512, 768, 1024, 1500, 2048, 3000, 4096]


def operations(kind):
    """Each with its name, and what it is given."""
    for n in SIZES:
        for batch in (1, 8, 64):
            if batch * n * n <= 1 << 25:
                eye = torch.eye(n, device="cuda", dtype=kind).repeat(batch, 1, 1)
                yield from of_square(n, batch, eye[0] if batch == 1 else eye)
        for m in (n // 4, 4 * n):
            if m and m * n <= 1 << 24:
                tall = torch.eye(max(m, n), device="cuda", dtype=kind)[:m, :n].contiguous()
                yield "qr", m, n, 1, lambda tall=tall: torch.linalg.qr(tall)
                if m * n <= 1 << 21:
                    yield "svd", m, n, 1, lambda tall=tall: torch.linalg.svd(tall, full_matrices=False)


def of_square(n, batch, it):
    """Those of square matrices."""
    linalg, b = torch.linalg, torch.ones(*it.shape[:-1], 1, device="cuda", dtype=it.dtype)
    yield "cholesky", n, n, batch, lambda: linalg.cholesky(it)
    yield "cholesky_solve", n, n, batch, lambda: torch.cholesky_solve(b, it)
    yield "cholesky_inverse", n, n, batch, lambda: torch.cholesky_inverse(it)
    yield "solve", n, n, batch, lambda: linalg.solve(it, b)
    yield "inv", n, n, batch, lambda: linalg.inv(it)
    yield "lu_factor", n, n, batch, lambda: linalg.lu_factor(it)
    yield "slogdet", n, n, batch, lambda: linalg.slogdet(it)
    yield "qr", n, n, batch, lambda: linalg.qr(it)
    if n <= 1024 and batch * n * n <= 1 << 21:
        yield "eigh", n, n, batch, lambda: linalg.eigh(it)
        yield "eigvalsh", n, n, batch, lambda: linalg.eigvalsh(it)
        yield "svd", n, n, batch, lambda: linalg.svd(it, full_matrices=False)
        yield "svdvals", n, n, batch, lambda: linalg.svdvals(it)
        yield "lstsq", n, n, batch, lambda: linalg.lstsq(it, b)


def main(path):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["operation", "m", "n", "batch", "kind", "bytes"])
        for kind in (torch.float32, torch.float64):
            for name, m, n, batch, run in operations(kind):
                try:
                    row = [name, m, n, batch, str(kind).rpartition(".")[2], momentary(run)]
                except RuntimeError as error:
                    print(name, m, n, batch, str(error).splitlines()[0], file=sys.stderr)
                    continue
                writer.writerow(row)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: decompositions.py OUT.csv")
    main(sys.argv[1])
