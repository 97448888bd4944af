"""What cuDNN's attention takes while it runs, forwards and backwards: bytes, as CSV.

usage: attention.py OUT.csv

On a GPU these are cuDNN's workspaces; on the virtual GPU (`gmlake run --virtual h100-80gb`) those of the rule.
"""

import csv
import itertools
import sys

import torch

from gmlake.measure.kinds import momentary

COLUMNS = ["type", "batch", "heads", "shared", "queries", "keys", "width", "causal", "dropout", "rows", "bias"]
BASE = {"type": "bfloat16", "batch": 4, "heads": 16, "shared": 16, "queries": 1024, "keys": 1024, "width": 64, "causal": 1,
        "dropout": 0.0, "rows": 0, "bias": 0}
VALUES = {
    "type": ["float16"],
    "batch": [1, 3, 32],
    "heads": [1, 64],
    "shared": [1, 4],
    "queries": [1, 77, 4096, 16384],
    "keys": [77, 513, 4096, 16384],
    "width": [8, 72, 96, 128],
    "causal": [0],
    "dropout": [0.1],
    "rows": [1],  # heads inside of tokens, as models have them
    "bias": [1],
}


def shapes():
    """Each with one setting that differs from BASE, then with two."""
    changes = [(name, value) for name, values in VALUES.items() for value in values]
    for change in [(), *itertools.combinations(changes, 1), *itertools.combinations(changes, 2)]:
        found = {**BASE, **dict(change)}
        if found["heads"] == 1 or found["shared"] > found["heads"] or "shared" not in dict(change):
            found["shared"] = found["heads"]
        if found["batch"] * found["heads"] * found["queries"] * found["keys"] < 1 << 34:
            yield found


def tensor(it, heads, tokens):
    kind = getattr(torch, it["type"])
    if it["rows"]:
        return torch.zeros(it["batch"], tokens, heads, it["width"], device="cuda", dtype=kind).transpose(1, 2)
    return torch.zeros(it["batch"], heads, tokens, it["width"], device="cuda", dtype=kind)


def measured(it):
    """Bytes forwards and backwards."""
    operations = torch.ops.aten
    q, k, v = tensor(it, it["heads"], it["queries"]), *(tensor(it, it["shared"], it["keys"]) for _ in "kv")
    bias = torch.zeros(1, 1, it["queries"], it["keys"], device="cuda", dtype=q.dtype) if it["bias"] else None
    is_causal = bool(it["causal"]) and bias is None

    def forward():
        return operations._scaled_dot_product_cudnn_attention(q, k, v, bias, True, it["dropout"], is_causal, False)

    ahead = momentary(forward)
    out, sums, _, _, most_q, most_k, seed, offset, _ = forward()
    gradient = torch.zeros_like(out)
    return ahead, momentary(lambda: operations._scaled_dot_product_cudnn_attention_backward(
        gradient, q, k, v, out, sums, seed, offset, bias, None, None, most_q, most_k, it["dropout"], is_causal))


def main(path):
    seen = set()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "forward", "backward"])
        for it in shapes():
            if tuple(it.values()) in seen:
                continue
            seen.add(tuple(it.values()))
            try:
                writer.writerow([*it.values(), *measured(it)])
            except RuntimeError as error:
                print(it, str(error).splitlines()[0], file=sys.stderr)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: attention.py OUT.csv")
    main(sys.argv[1])
