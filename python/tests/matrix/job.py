"""One operation of each kind that chooses its code by the card or by a library's version, forwards and backwards.

Whichever fails is named with its error; the others go on, and the script ends with exit code 1.
"""

import sys
import traceback

import torch
import torch.nn.functional as F


def random(*shape, **more):
    return torch.randn(*shape, device="cuda", **more)


def convolution():
    """By cuDNN: its graph interface, and its version."""
    assert torch.backends.cudnn.version() >= 90000
    layer = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
    layer(random(4, 16, 32, 32, requires_grad=True)).sum().backward()
    assert layer.weight.grad.shape == (32, 16, 3, 3)


def embedding():
    """Backwards through sorted indices, by CUB."""
    layer = torch.nn.Embedding(32000, 64).cuda()
    layer(torch.arange(4096, device="cuda").view(8, 512)).sum().backward()
    assert layer.weight.grad.shape == (32000, 64)


def cumsum():
    assert random(1 << 16).cumsum(0).shape == (1 << 16,)


def topk():
    assert random(64, 4096).topk(8).values.shape == (64, 8)


def sort():
    """Short rows, one long row by CUB, and what sorts inside."""
    assert random(64, 128).sort().indices.shape == (64, 128)
    assert random(1 << 18).sort().values.shape == (1 << 18,)
    assert torch.randperm(1 << 16, device="cuda").shape == (1 << 16,)
    numbers = torch.arange(1000, device="cuda") % 10
    assert numbers.unique().tolist() == list(range(10)) and numbers.nonzero().shape == (900, 1)


def attention():
    query, key, value = (random(2, 8, 256, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    F.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()
    assert key.grad.shape == key.shape


def compiled():
    """By Triton, whose code is compiled for the card."""
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).cuda()
    torch.compile(layer)(random(32, 64)).sum().backward()
    assert layer[0].weight.grad.shape == (64, 64)


def captured():
    layer, batch = torch.nn.Linear(64, 64).cuda(), random(32, 64)
    layer(batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = layer(batch).relu()
    graph.replay()
    torch.cuda.synchronize()
    assert result.shape == (32, 64)


def main():
    failed = 0
    for operation in [convolution, embedding, cumsum, topk, sort, attention, compiled, captured]:
        try:
            operation()
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {operation.__name__}", flush=True)
    sys.exit(failed > 0)


main()
