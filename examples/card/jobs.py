"""Small real jobs on which the memory besides PyTorch is predicted, and then measured.

    python3 examples/card/jobs.py NAME            # on a GPU: the ledger and the measured bytes, as a line of JSON
    torchrun --nproc-per-node 2 examples/card/jobs.py data_parallel
    python -m gmlake predict --gpu h100-80gb --json - examples/card/jobs.py NAME    # its beside_pytorch_bytes

On a GPU the process also watches who asks the driver, which takes 12 MiB; `--unwatched` leaves that out.
"""

import json
import os
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 4


def transformer(layers=6, width=1024):
    layer = nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.1)
    return nn.TransformerEncoder(layer, layers).cuda()


def steps(net, batch, autocast=True):
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = net(batch).float().square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def pretraining():
    steps(transformer(), torch.randn(16, 512, 1024, device="cuda"))


def full_precision():
    steps(transformer(3), torch.randn(8, 256, 1024, device="cuda"), False)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return F.relu(x + self.body(x))


def images():
    net = nn.Sequential(nn.Conv2d(3, 128, 7, 2, 3), *[Residual(128) for _ in range(6)], nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(128, 1000)).cuda().to(memory_format=torch.channels_last)
    steps(net, torch.randn(32, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last))


@torch.inference_mode()
def generation():
    width, heads = 2048, 16
    layers = [(nn.Linear(width, 3 * width).cuda().half(), nn.Linear(width, width).cuda().half()) for _ in range(12)]
    caches = [torch.zeros(2, 8, heads, 600, 128, device="cuda", dtype=torch.half) for _ in layers]
    head = nn.Linear(width, 32000).cuda().half()
    x, at = torch.randn(8, 512, width, device="cuda", dtype=torch.half), 0
    for _ in range(40):
        length = x.shape[1]
        for (qkv, out), cache in zip(layers, caches):
            q, k, v = qkv(x).view(8, length, 3, heads, 128).permute(2, 0, 3, 1, 4)
            cache[0, :, :, at:at + length], cache[1, :, :, at:at + length] = k, v
            seen = cache[:, :, :, :at + length]
            y = F.scaled_dot_product_attention(q, seen[0], seen[1], is_causal=length > 1)
            x = x + out(y.transpose(1, 2).reshape(8, length, width))
        at += length
        head(x[:, -1]).softmax(-1).topk(50)
        x = x[:, -1:]


def graphed():
    net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(60)]).cuda()
    graphs = []
    for size in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]:
        x = torch.randn(size, 512, device="cuda")
        with torch.no_grad():
            net(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                net(x)
        graph.replay()
        graphs.append(graph)
    return graphs


def prefetched():
    net = nn.LSTM(512, 512, 3, batch_first=True).cuda()
    head, side = nn.Linear(512, 512).cuda(), torch.cuda.Stream()
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.1)
    for _ in range(STEPS):
        with torch.cuda.stream(side):
            batch = torch.randn(64, 128, 512, pin_memory=True).to("cuda", non_blocking=True) * 2
        torch.cuda.current_stream().wait_stream(side)
        head(net(batch)[0]).square().mean().backward()
        optimizer.step()


def gaussian():
    x = torch.rand(2000, 8, device="cuda", requires_grad=True)
    kernel = (-torch.cdist(x, x).square()).exp() + 0.1 * torch.eye(2000, device="cuda")
    factor = torch.linalg.cholesky(kernel)
    solved = torch.cholesky_solve(torch.ones(2000, 1, device="cuda"), factor)
    (solved.sum() + factor.diagonal().log().sum()).backward()
    torch.linalg.eigh(kernel.detach()[:500, :500])


def spectra():
    x = torch.randn(16, 64, 128, 128, device="cuda", requires_grad=True)
    weight = torch.randn(64, 64, 128, 65, device="cuda", dtype=torch.cfloat, requires_grad=True)
    for _ in range(STEPS):
        y = torch.fft.irfft2(torch.einsum("bixy,ioxy->boxy", torch.fft.rfft2(x), weight))
        y.square().mean().backward()


def searching():
    rows = torch.randn(2_000_000, 64, device="cuda")
    for _ in range(STEPS):
        near = (rows @ rows[:64].T).topk(100, 0).indices
        rows[near.flatten().unique()].sort(0).values.cumsum(0)
        torch.randperm(1000, device="cuda")


def beside_another():
    """The same beside another process, which holds 6 GiB."""
    code = "import sys, torch; x = torch.ones(6 << 28, device='cuda'); print(1, flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.stdout.readline()
    pretraining()
    return other


def data_parallel():
    world()
    net = nn.parallel.DistributedDataParallel(transformer(3))
    steps(net, torch.randn(8, 512, 1024, device="cuda"))


def sharded():
    from torch.distributed.fsdp import fully_shard

    world()
    net = transformer(4)
    for layer in net.layers:
        fully_shard(layer)
    fully_shard(net)
    steps(net, torch.randn(8, 512, 1024, device="cuda"))


def experts():
    import torch.distributed as dist

    world()
    group = dist.new_group([0, 1])
    first, second = nn.Linear(1024, 4096).cuda(), nn.Linear(4096, 1024).cuda()
    for _ in range(STEPS):
        x = torch.randn(4096, 1024, device="cuda")
        sent = torch.empty_like(x)
        dist.all_to_all_single(sent, x, group=group)
        y = second(F.gelu(first(sent)))
        back = torch.empty_like(y)
        dist.all_to_all_single(back, y.detach(), group=group)
        y.square().mean().backward()
        for parameter in [*first.parameters(), *second.parameters()]:
            dist.all_reduce(parameter.grad)


def world():
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl")


ALONE = [pretraining, full_precision, images, generation, graphed, prefetched, gaussian, spectra, searching, beside_another]
TOGETHER = [data_parallel, sharded, experts]


def main():
    name, is_virtual = sys.argv[1], "GMLAKE_GPU_CUDA" in os.environ
    if is_virtual and name == "beside_another":
        name = "pretraining"  # the other process is not this one's need
    if not is_virtual and "--unwatched" not in sys.argv:
        import gmlake

        gmlake.watch()
    kept = {job.__name__: job for job in [*ALONE, *TOGETHER]}[name]()
    torch.cuda.synchronize()
    if is_virtual:
        return
    import gmlake

    card = gmlake.card()
    own = next(process.bytes for process in card.processes if process.pid == os.getpid())
    line = {
        "job": sys.argv[1], "rank": int(os.environ.get("RANK", "0")), "reserved": torch.cuda.memory_reserved(),
        "own": own, "beside": own - torch.cuda.memory_reserved(), "named": card.named_bytes / card.used_bytes,
        "card": card.to_json(),
    }
    print(json.dumps(line), flush=True)
    if "--show" in sys.argv:
        print(card, file=sys.stderr)
    if name == "beside_another":
        kept.kill()


if __name__ == "__main__":
    main()
