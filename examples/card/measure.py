"""What a GPU's memory is used for besides PyTorch's allocator, step by step: the truth behind `beside.csv`.

    python3 examples/card/measure.py all out.jsonl     # a process for each group of steps
    python3 examples/card/measure.py group NAME        # one group, in this process
    torchrun --nproc-per-node 2 examples/card/measure.py nccl

A line for each step: what NVML says this process holds, less what PyTorch has reserved, in bytes. On the virtual GPU
the same groups run, and count kernels instead.
"""

import ctypes
import json
import os
import subprocess
import sys
import time


def nvml():
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlInit_v2()
    handle = ctypes.c_void_p()
    index = int(os.environ.get("LOCAL_RANK", "0"))
    library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    return library, handle


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
                ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def device_memory(library, handle):
    memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
    library.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory))
    return memory


def processes(library, handle):
    found, count = (Process * 64)(), ctypes.c_uint(64)
    library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found)
    return {one.pid: one.used for one in found[:count.value]}


def kernels():
    function = getattr(ctypes.CDLL(None), "gmlake_gpu_report", None)
    if not function:
        return None
    buffer = ctypes.create_string_buffer(1 << 20)
    function(buffer, ctypes.c_size_t(1 << 20))
    return json.loads(buffer.value)


class Log:
    """Writes a line a step."""

    def __init__(self, group):
        self.group, self.virtual = group, kernels() is not None
        self.monitor = None if self.virtual else nvml()

    def __call__(self, step, **more):
        torch = sys.modules.get("torch")
        reserved = 0
        if torch and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            reserved = torch.cuda.memory_reserved()
        line = {"group": self.group, "step": step, "reserved": reserved, **more}
        if self.virtual:
            line["report"] = kernels()
        else:
            mine = processes(*self.monitor)
            line["mine"] = mine.get(os.getpid())
            line["processes"] = len(mine)
            line["used"] = device_memory(*self.monitor).used
            line["beside"] = (line["mine"] or line["used"]) - reserved
        print(json.dumps(line), flush=True)


def bare(log):
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    log("cuInit")
    context = ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    log("context")
    at = ctypes.c_ulonglong()
    cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20))
    log("1 MiB")


def pieces():
    """Each family of operations: its steps, by name."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    def half(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    x = torch.ones(1024, 1024, device="cuda")
    q = half(2, 8, 1024, 64)

    def attention(backend):
        with torch.nn.attention.sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    backends = torch.nn.attention.SDPBackend

    def train(fused, net=None):
        net = net or nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 10)).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), fused=fused, foreach=not fused)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(net(x).float(), torch.zeros(1024, dtype=torch.long, device="cuda"))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def conv(kind=torch.float32, benchmark=False):
        torch.backends.cudnn.benchmark = benchmark
        net = nn.Sequential(nn.Conv2d(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
                            nn.Conv2d(64, 128, 3), nn.Conv2d(128, 128, 1)).cuda().to(kind)
        net(torch.randn(8, 3, 224, 224, device="cuda", dtype=kind)).sum().backward()

    def elementwise():
        y = x * 2 + 1
        for function in [torch.exp, torch.sin, torch.sqrt, torch.sigmoid, torch.tanh, torch.abs, torch.neg, torch.rsqrt,
                         torch.floor, torch.isnan, torch.log, F.relu, F.silu, F.gelu]:
            y = y + function(x)
        return (y > 1).float().mean(), y.max(), y.std(), torch.where(y > 0, x, y), torch.cat([x, y]), y.half(), y.int()

    def compiled():
        net = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024)).cuda()
        torch.compile(net)(x).sum().backward()

    def sparse():
        s = torch.eye(512, device="cuda").to_sparse_csr()
        s @ torch.ones(512, 512, device="cuda")

    def recurrent():
        nn.LSTM(256, 256, 2).cuda()(torch.randn(20, 8, 256, device="cuda"))[0].sum().backward()

    sym = torch.eye(256, device="cuda") + 0.1
    return {
        "fill": [lambda: x.zero_()],
        "random": [lambda: torch.randn(1000, device="cuda"), lambda: torch.randint(5, (100,), device="cuda"),
                   lambda: torch.randperm(1000, device="cuda"), lambda: F.dropout(x)],
        "elementwise": [elementwise],
        "product_bf16": [lambda: torch.mm(q[0, 0], q[0, 0].T), lambda: F.linear(q[0], half(64, 64), half(64)),
                         lambda: torch.bmm(q[0], q[0].transpose(1, 2)), lambda: torch.mm(half(4096, 4096), half(4096, 4096))],
        "product_fp32": [lambda: torch.mm(x, x), lambda: F.linear(x, x, x[0]), lambda: torch.bmm(x[None], x[None])],
        "training": [lambda: train(False), lambda: train(True), lambda: train(False)],
        "attention_math": [lambda: attention(backends.MATH)],
        "attention_flash": [lambda: attention(backends.FLASH_ATTENTION)],
        "attention_efficient": [lambda: attention(backends.EFFICIENT_ATTENTION)],
        "attention_cudnn": [lambda: attention(backends.CUDNN_ATTENTION)],
        "conv": [conv, lambda: conv(torch.bfloat16), lambda: conv(torch.bfloat16, True)],
        "recurrent": [recurrent],
        "sorting": [lambda: x.sort(), lambda: x.cumsum(0), lambda: x.int().unique(), lambda: x.topk(5),
                    lambda: x.nonzero(), lambda: x.index_put((torch.zeros(4, dtype=torch.long, device="cuda"),), x[:4]),
                    lambda: x.scatter_add(0, torch.zeros(4, 4, dtype=torch.long, device="cuda"), x)],
        "fourier": [lambda: torch.fft.fft2(x)],
        "solver": [lambda: torch.linalg.cholesky(sym), lambda: torch.linalg.svd(sym), lambda: torch.linalg.eigh(sym),
                   lambda: torch.linalg.solve(sym, sym), lambda: torch.linalg.qr(sym)],
        "sparse": [sparse],
        "compiled": [compiled, compiled],
    }


def family(name):
    def run(log):
        import torch

        log("imported")
        torch.cuda.init()
        log("init")
        torch.empty(1, device="cuda")
        log("empty")
        steps = pieces()
        log("tensors")
        for each in [name] if name != "everything" else steps:
            for number, step in enumerate(steps[each]):
                try:
                    step()
                except Exception as error:  # a step that this PyTorch refuses is said, and no reason to stop
                    log(f"{each} {number}", failed=str(error)[:200])
                    continue
                log(f"{each} {number}")
    return run


def graphs(log):
    import torch

    x = torch.zeros(1024, device="cuda")
    kept = []

    def capture(nodes, kind, is_launched=True):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                if kind == "add":
                    x.add_(1)
                elif kind == "copy":
                    y.copy_(x)
                else:
                    torch.mm(a, a, out=b)
        kept.append(graph)
        if is_launched:
            graph.replay()

    def captures(count, nodes, kind):
        for _ in range(count):
            capture(nodes, kind, False)
        log(f"{count} x {kind} {nodes}", nodes=nodes * count, graphs=count)
        for graph in kept[-count:]:
            graph.replay()
        log(f"{count} x {kind} {nodes}, launched")

    y, a, b = torch.zeros_like(x), torch.ones(256, 256, device="cuda"), torch.ones(256, 256, device="cuda")
    x.add_(1), y.copy_(x), torch.mm(a, a, out=b)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x.add_(1), torch.mm(a, a, out=b)
    log("before")
    for kind in ["add", "copy", "mm"]:
        for nodes in [1, 1, 10, 100, 1000, 1000, 5000]:
            capture(nodes, kind)
            log(f"{kind} {nodes}", nodes=nodes, kind=kind)
    for count, nodes in [(50, 100), (20, 500), (1000, 1), (1000, 15), (1000, 30)]:
        for kind in ["add", "copy", "mm"]:
            captures(count, nodes, kind)
    kept.clear()
    log("all gone")
    captures(1000, 15, "mm")


def streams(log):
    import torch

    x = torch.zeros(1024, device="cuda")
    x.add_(1)
    log("1")
    kept = [torch.cuda.Stream()]
    log("one more, without work")
    with torch.cuda.stream(kept[0]):
        x.add_(1)
    log("2")
    for wanted in [4, 8, 16, 32]:
        while len(kept) + 1 < wanted:
            kept.append(torch.cuda.Stream())
            with torch.cuda.stream(kept[-1]):
                x.add_(1)
                torch.mm(x[:100].view(10, 10), x[:100].view(10, 10))
        log(str(wanted))
    pinned = torch.zeros(1 << 28, pin_memory=True)
    log("1 GiB pinned")
    pinned[:1 << 20].to("cuda", non_blocking=True)
    log("copied")


def local(log):
    import torch

    torch.zeros(1, device="cuda")
    log("before")
    import cupy

    log("cupy")
    for size in [256, 1024, 4096]:
        code = ("extern \"C\" __global__ void f(float* x, int n) { float a[%d]; for (int i = 0; i < n; i++) a[i * 7 %% %d] = x[i];"
                " float s = 0; for (int i = 0; i < n; i++) s += a[i]; x[0] = s; }" % (size // 4, size // 4))
        cupy.RawKernel(code, "f")((1,), (32,), (torch.zeros(8192, device="cuda").data_ptr(), 5))
        log(f"local {size}", local=size)


def nccl(log):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    x = torch.ones(1 << 24, device="cuda")
    x.add_(1)
    log("before", nccl=torch.cuda.nccl.version())
    dist.init_process_group("nccl")
    log("initialised")
    dist.all_reduce(x[:4])
    log("all_reduce 16 B")
    dist.all_reduce(x)
    log("all_reduce 64 MiB")
    y = torch.empty(2 * x.numel(), device="cuda")
    dist.all_gather_into_tensor(y, x)
    log("all_gather")
    dist.reduce_scatter_tensor(x, y)
    log("reduce_scatter")
    dist.all_to_all_single(y, y.clone())
    log("all_to_all")
    dist.broadcast(x, 0)
    log("broadcast")
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    log("send")
    dist.barrier()
    log("barrier")
    for number in range(4):
        group = dist.new_group([0, 1])
        log(f"group {number} made")
        dist.all_reduce(x, group=group)
        log(f"group {number} all_reduce")
        if number == 2:
            dist.all_gather_into_tensor(y, x, group=group)
            dist.all_to_all_single(y, y.clone(), group=group)
            log(f"group {number} all")
    alone = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
    dist.all_reduce(x, group=alone)
    log("group of one")
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    stats = getattr(backend, "memory_stats", None)
    log("end", memory_stats=str(stats()) if stats else None)
    dist.destroy_process_group()
    log("destroyed")


FAMILIES = ["fill", "random", "elementwise", "product_bf16", "product_fp32", "training", "attention_math", "attention_flash",
            "attention_efficient", "attention_cudnn", "conv", "recurrent", "sorting", "fourier", "solver", "sparse", "compiled",
            "everything"]
GROUPS = {"bare": bare, "graphs": graphs, "streams": streams, "local": local, "nccl": nccl,
          **{name: family(name) for name in FAMILIES}}


def all_groups(path):
    """Every group in a process of its own, four at a time."""
    waiting, running = [(name, {}) for name in GROUPS if name != "nccl"], []
    waiting += [("bare", {"CUDA_MODULE_LOADING": "EAGER"}), ("training", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})]
    with open(path, "w") as file:
        while waiting or running:
            while waiting and len(running) < 5:
                name, more = waiting.pop(0)
                command = [sys.executable, __file__, "group", name]
                running.append(subprocess.Popen(command, env={**os.environ, **more}, stdout=file, stderr=subprocess.PIPE, text=True))
            for child in list(running):
                if child.poll() is not None:
                    running.remove(child)
                    if child.returncode:
                        print(child.args, child.stderr.read()[-600:], file=sys.stderr)
            time.sleep(0.05)


def main():
    what = sys.argv[1]
    if what == "all":
        all_groups(sys.argv[2])
    else:
        name = sys.argv[2] if what == "group" else what
        GROUPS[name](Log(name))


if __name__ == "__main__":
    main()
