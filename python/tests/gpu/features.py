"""PyTorch's features under the plug-in: each in a process of its own, with a line that says what came of it.

usage: features.py OUT SECONDS        all, several at a time; the table is in OUT/features.md
       features.py NAME               one, in this process

MOUNT=pluggable tries the mount of a PyTorch that the package does not know.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ALLOCATOR = os.environ.get("ALLOCATORS", "gmlake").split()[0]
FEATURES = {}


def feature(title, expected="works"):
    def note(function):
        FEATURES[function.__name__] = (title, expected, function)
        return function

    return note


def net(torch, width=512):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)]
    return torch.nn.Sequential(*layers).cuda()


@feature("Activation checkpointing")
def checkpointing(torch, gmlake):
    from torch.utils.checkpoint import checkpoint

    model, batch = net(torch), torch.randn(4096, 512, device="cuda")
    for reentrant in (True, False):
        gradients = []
        for run in (model, lambda x: checkpoint(model, x, use_reentrant=reentrant)):
            model.zero_grad()
            run(batch.clone().requires_grad_()).square().mean().backward()
            gradients.append(model[0].weight.grad.clone())
        assert torch.allclose(*gradients, atol=1e-6)


@feature("Mixed precision (autocast, GradScaler)")
def autocast(torch, gmlake):
    model, batch = net(torch), torch.randn(4096, 512, device="cuda")
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(batch) - batch).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses


@feature("torch.compile, default mode")
def compile_default(torch, gmlake):
    model = net(torch)
    compiled = torch.compile(model)
    for rows in (256, 1024, 333):
        batch = torch.randn(rows, 512, device="cuda", requires_grad=True)
        torch.testing.assert_close(compiled(batch), model(batch), atol=1e-3, rtol=1e-3)
        compiled(batch).sum().backward()


@feature('torch.compile, mode="reduce-overhead" (CUDA graph trees)')
def compile_graphs(torch, gmlake):
    model = net(torch)
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(5):
            batch = torch.randn(256, 512, device="cuda")
            torch.testing.assert_close(compiled(batch), model(batch), atol=1e-3, rtol=1e-3)


class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        import torch

        return torch.full((100_000,), float(index))


@feature("DataLoader with workers and pinned memory")
def data_loader(torch, gmlake):
    torch.zeros(1, device="cuda")  # the GPU is in use when the workers are forked off
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    total = sum(batch.cuda(non_blocking=True).sum().item() for _ in range(2) for batch in loader)
    assert total == 2 * 100_000 * sum(range(64)), total


@feature("Generation with a growing cache (transformers)")
def generation(torch, gmlake):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=1000, **sizes)).cuda().eval()
    words = torch.randint(0, 1000, (4, 64), device="cuda")
    options = dict(max_new_tokens=100, do_sample=False, pad_token_id=0, eos_token_id=None)
    answers = [model.generate(words, use_cache=cached, **options) for cached in (True, False)]
    share = (answers[0] == answers[1]).float().mean().item()
    assert answers[0].shape == (4, 164) and share > 0.9, share  # ties may fall otherwise


@feature("Tensor.record_stream with side streams")
def record_stream(torch, gmlake):
    side = torch.cuda.Stream()
    wrong = 0
    for round_ in range(30):
        lent = torch.full((4_000_000,), float(round_), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(5_000_000)  # the reader comes late
            seen = lent.sum(dtype=torch.float64)
        lent.record_stream(side)
        del lent
        torch.full((4_000_000,), -1.0, device="cuda")  # would like to have that memory
        side.synchronize()
        wrong += seen.item() != 4_000_000.0 * round_
    assert wrong == 0, f"{wrong} of 30 sums are wrong"
    assert gmlake.stats(0)["deferred_frees"] >= 30


@feature("CUDA graphs, captured and replayed by hand")
def cuda_graphs(torch, gmlake):
    model = net(torch).eval()
    graphs = []
    with torch.no_grad():
        for rows in (256, 64, 8):
            static = torch.zeros(rows, 512, device="cuda")
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                model(static)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = model(static)
            graphs.append((graph, static, result))
        for round_ in range(60):
            graph, static, result = graphs[round_ % 3]
            batch = torch.randn_like(static)
            static.copy_(batch)
            graph.replay()
            others = [torch.randn(1000 + 37 * round_, 512, device="cuda") for _ in range(4)]
            torch.testing.assert_close(result, model(batch), atol=1e-3, rtol=1e-3)
            del others
    del graphs, graph, static, result
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@feature("torch.cuda.empty_cache()")
def empty_cache(torch, gmlake):
    tensors = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
    before = gmlake.stats(0)["held_bytes"]
    del tensors
    torch.cuda.empty_cache()
    assert before >= 512 << 20 and gmlake.stats(0)["held_bytes"] < 16 << 20


@feature("memory_allocated, max_memory_allocated, memory_reserved, memory_stats")
def queries(torch, gmlake):
    assert torch.cuda.memory_allocated() == 0
    tensor = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    assert 64 << 20 <= torch.cuda.memory_allocated() <= 66 << 20
    assert torch.cuda.memory_reserved() >= 64 << 20
    del tensor
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() >= 64 << 20
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    assert torch.cuda.memory_stats()["allocation.all.allocated"] >= 1


@feature("torch.OutOfMemoryError, and going on after it")
def out_of_memory(torch, gmlake):
    for _ in range(3):
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            assert "Tried to allocate 1" in str(error) and "gmlake" in str(error), error
        else:
            raise AssertionError("no exception")
        model = net(torch)
        model(torch.randn(64, 512, device="cuda")).sum().backward()
    keep = []
    torch.cuda.set_per_process_memory_fraction(0.3)  # others are on this GPU, too
    try:
        while True:
            keep.append(torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        assert len(keep) > 3
    keep.clear()
    torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
    # In the backward pass, which runs on another thread; what is cached would be stitched together for it.
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.01)
    batch = torch.randn(1000, 512, device="cuda", requires_grad=True)

    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.sum()

        @staticmethod
        def backward(context, gradient):
            return gradient.expand(1 << 33).contiguous()

    try:
        Greedy.apply(batch).backward()
    except torch.OutOfMemoryError as error:
        assert "this process may hold" in str(error), error
    else:
        raise AssertionError("no exception from the backward pass")


@feature("set_per_process_memory_fraction")
def memory_fraction(torch, gmlake):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.05)
    keep = []
    try:
        while len(keep) < 1000:
            keep.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    held = len(keep) * (256 << 20)
    assert 0.9 * 0.05 * total < held <= 0.05 * total, held


@feature("Allocation and frees from many threads")
def threads(torch, gmlake):
    wrong = []

    def work(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            kept = []
            for step in range(200):
                kept.append((step, torch.full((1000 * (1 + (seed * step) % 500),), float(step), device="cuda")))
                if len(kept) > 8:
                    value, tensor = kept.pop(seed % 8)
                    if not (tensor == value).all().item():
                        wrong.append((seed, value))
        stream.synchronize()

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, wrong
    assert gmlake.stats(0)["unknown_frees"] == 0


@feature("Tensors that outlive the interpreter")
def shutdown(torch, gmlake):
    import builtins

    builtins.kept = [net(torch), torch.zeros(1000, device="cuda"), torch.cuda.Stream()]


@feature("python -m gmlake run, snapshot for gmlake-sim and PyTorch's viewer")
def snapshots(torch, gmlake):
    with tempfile.TemporaryDirectory() as folder:
        script, file = Path(folder, "train.py"), Path(folder, "run.pickle")
        script.write_text("import torch, sys\nx = [torch.randn(1000, 1000, device='cuda') @ torch.randn(1000, 100, device='cuda')"
                          " for _ in range(20)]\nassert sys.argv[1:] == ['--flag']\ndel x\n")
        options = ["--allocator", ALLOCATOR, "--snapshot", str(file)]
        subprocess.run([sys.executable, "-m", "gmlake", "run", *options, str(script), "--flag"], check=True)
        for command in (["gmlake-sim", "inspect", str(file)], ["gmlake-sim", "compare", str(file)],
                        [sys.executable, "-m", "torch.cuda._memory_viz", "trace_plot", str(file), "-o", folder + "/x.html"]):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{command[:4]}: {done.stderr[-300:]}"


@feature("torch.cuda.memory_summary()")
def summary(torch, gmlake):
    tensor = torch.zeros(3 << 20, dtype=torch.uint8, device="cuda")
    text = torch.cuda.memory_summary()
    assert "| Requested memory      |   3072 KiB |   3072 KiB |" in text, text
    assert tensor.is_cuda and len(text.splitlines()) > len(torch.cuda.memory_summary(abbreviated=True).splitlines())


@feature("torch.cuda.memory._record_memory_history")
def history(torch, gmlake):
    torch.cuda.memory._record_memory_history()


@feature("torch.cuda.MemPool")
def mem_pool(torch, gmlake):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        torch.zeros(1000, device="cuda")


@feature("torch.backends.cudnn.benchmark")
def cudnn_benchmark(torch, gmlake):
    torch.backends.cudnn.benchmark = True
    torch.nn.Conv2d(8, 8, 3).cuda()(torch.randn(4, 8, 64, 64, device="cuda")).sum().backward()


def receive(queue, answer):
    answer.put(queue.get().sum().item())


@feature("CUDA tensors sent to another process (torch.multiprocessing)", expected="does not")
def ipc(torch, gmlake):
    context = torch.multiprocessing.get_context("spawn")
    queue, answer = context.Queue(), context.Queue()
    worker = context.Process(target=receive, args=(queue, answer), daemon=True)
    tensor = torch.ones(1000, device="cuda")
    torch.multiprocessing.reductions.reduce_tensor(tensor)  # raises here, and not in the queue's own thread
    worker.start()
    queue.put(tensor)
    assert answer.get(timeout=40) == 1000
    worker.terminate()


def one(name):
    import torch

    import gmlake

    gmlake.enable(ALLOCATOR)
    assert gmlake.mounted() == os.environ.get("MOUNT", "full")
    FEATURES[name][2](torch, gmlake)
    torch.cuda.synchronize()
    print("DONE", flush=True)


def attempt(name, seconds):
    """The verdict on a feature, and how long it took."""
    start = time.time()
    if seconds < 15:
        return name, "untried (no time left)", 0, ""
    try:
        command = [sys.executable, __file__, name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=min(seconds, 100))
        code, text, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as expired:
        code, text, errors = -1, "", f"timeout after {expired.timeout:.0f} s"
    if code == 0 and "DONE" in text:
        verdict = "works"
        if "gmlake:" in errors or "CUDA error" in errors:
            verdict = "works, with a message: " + last_line(errors)
    elif "DONE" in text:
        verdict = f"ends with exit code {code}: {last_line(errors)}"
    else:
        verdict = "does not: " + last_line(errors)
    return name, verdict, time.time() - start, errors


def last_line(errors):
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    plain = [line for line in lines if "Error" in line or "error" in line] or lines
    return plain[-1][:160].replace("|", "/") if plain else "no message"


def every(out, limit):
    start = time.time()
    found = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(lambda name=name: attempt(name, limit - (time.time() - start))) for name in FEATURES]
        for future in concurrent.futures.as_completed(waiting):
            name, verdict, seconds, errors = future.result()
            title, expected, _ = FEATURES[name]
            print(f"{'  ' if verdict.startswith(expected) else '!!'} {name}: {verdict} ({seconds:.0f} s)", flush=True)
            if not verdict.startswith(expected):
                print("      " + "\n      ".join(errors.splitlines()[-12:]), flush=True)
            found.append(dict(name=name, title=title, verdict=verdict, expected=expected, seconds=seconds, errors=errors[-4000:]))
            order = list(FEATURES)
            found.sort(key=lambda each: order.index(each["name"]))
            lines = [f"| {each['title']} | {each['verdict']} |" for each in found]
            head = f"Under `{ALLOCATOR}`.\n\n| feature | tried |\n|---|---|\n"
            Path(out, "features.md").write_text(head + "\n".join(lines) + "\n")
            Path(out, "features.json").write_text(json.dumps(found, indent=1))
    surprises = [each["name"] for each in found if not each["verdict"].startswith(each["expected"])]
    print("features:", f"unlike expected: {', '.join(surprises)}" if surprises else "all as expected")
    return 1 if surprises else 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(every(sys.argv[1], float(sys.argv[2])))
    one(sys.argv[1])
