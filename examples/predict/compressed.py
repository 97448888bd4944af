"""Compressed matrices: what cuSPARSELt keeps of matrices of which two of four values are zero, and takes to compress them.

    python compressed.py sizes.csv                                     # on a GPU
    python -m gmlake predict --gpu h200 compressed.py sizes.csv        # on the virtual GPU

Writes a line for each matrix: its bytes, those that are kept, and the most memory that PyTorch used meanwhile.
"""

import csv
import sys

import torch

KINDS = [torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float32]
SHAPES = [(32, 32), (64, 64), (64, 128), (128, 128), (96, 192), (1024, 1024), (1024, 4096), (4096, 1024), (4096, 11008)]
SHAPES += [(11008, 4096), (3072, 768), (16384, 4096)]


def main(file):
    """Writes the table."""
    table = csv.writer(file)
    table.writerow(["kind", "rows", "columns", "bytes", "kept_bytes", "peak_bytes"])
    for kind in KINDS:
        for rows, columns in SHAPES:
            two_of_four = torch.tensor([1, 0, 0, 1], device="cuda").repeat(rows, columns // 4)
            dense = two_of_four.to(kind)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            kept = torch._cslt_compress(dense)
            peak = torch.cuda.max_memory_allocated() - before
            table.writerow([str(kind)[6:], rows, columns, dense.nbytes, kept.nbytes, peak])
            del two_of_four, dense, kept


with open(sys.argv[1], "w", newline="") as sizes:
    main(sizes)
